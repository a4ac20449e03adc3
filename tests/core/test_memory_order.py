"""Dense arrays as the memory that they fill, and how calls on them are compared and made again."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import rankwise as dist
from rankwise.backends import Call, Fingerprint, Reordered, reordered
from rankwise.basics.memory_order import LEAST_NBYTES
from rankwise.collective.fingerprint import OrdersDifferError, error_of
from rankwise_local import local_world

LARGE = LEAST_NBYTES // 8


def found(array: Any, flat: bool = False) -> Reordered:
    seen = reordered(array, flat)
    assert seen is not None
    return seen


@pytest.mark.parametrize(
    "array",
    [
        np.zeros((LARGE, 2)),
        np.zeros(LARGE),
        np.zeros((0, LARGE)).T,
        np.zeros((LARGE // 16, 8)).T,  # small
        np.zeros((LARGE, 2))[:, 1],
        np.zeros((LARGE, 2, 2)).T[:, 1],
        np.zeros((LARGE, 2)).T[::-1],
        np.broadcast_to(np.zeros(LARGE), (2, LARGE)),
        np.broadcast_to(np.zeros(LARGE), (2, LARGE)).T,
        np.lib.stride_tricks.as_strided(np.zeros(2 * LARGE), (LARGE, 2), (8, 8)),
        np.zeros((1, LARGE, 1)).T,
    ],
    ids=str,
)
def test_others_are_not_seen_as_their_memory(array: Any) -> None:
    assert reordered(array) is None


@pytest.mark.parametrize("flat", [False, True])
@pytest.mark.parametrize("axes", [(1, 0, 2), (2, 1, 0), (0, 2, 1), (1, 2, 0), (2, 0, 1)])
@pytest.mark.parametrize("dtype", ["f8", "f2", "S3", "i8,u1"])
def test_a_dense_array_is_its_memory(axes: tuple[int, ...], dtype: str, flat: bool) -> None:
    lain = np.zeros((64, 32, 33), dtype)
    lain.view(np.uint8).reshape(-1)[:] = np.arange(lain.nbytes) % 251 if dtype != "f8" else 0
    array = lain.transpose(axes)
    seen = found(array, flat)
    assert np.shares_memory(seen.memory, lain)
    assert seen.memory.flags.carray
    assert seen.memory.shape == ((array.size,) if flat else array.shape)
    assert seen.memory.tobytes() == lain.tobytes()
    copy = seen.in_order()
    assert copy.flags.c_contiguous
    assert copy.shape == seen.memory.shape
    assert copy.tobytes() == array.tobytes()
    lain[...] = np.zeros((), dtype)
    seen.fill(copy)
    assert array.tobytes() == copy.tobytes()


def test_the_mark_tells_orders_apart_and_nothing_else() -> None:
    shape = (64, 32, 32)
    marks = {axes: found(np.zeros(shape).transpose(axes)).mark for axes in ((1, 0, 2), (2, 1, 0), (0, 2, 1), (1, 2, 0))}
    assert len(set(marks.values())) == 4
    assert all(-(1 << 63) <= mark < 0 for mark in marks.values())
    assert found(np.zeros((128, 64)).T).mark == found(np.zeros((64, 256), "f4").T).mark
    # Where only their number is compared, the shape says where an element lies.
    assert found(np.zeros((128, 64)).T, True).mark != found(np.zeros((64, 128)).T, True).mark


def test_axes_of_length_one_lie_anywhere() -> None:
    array = np.zeros((64, 128)).T
    one = np.lib.stride_tricks.as_strided(array, (128, 1, 64), (8, 3, 1024))
    other = np.lib.stride_tricks.as_strided(array, (128, 1, 64), (8, 1 << 20, 1024))
    assert found(one).mark == found(other).mark


def test_a_read_only_array_has_read_only_memory() -> None:
    array = np.zeros((64, 128)).T
    array.flags.writeable = False
    assert not found(array).memory.flags.writeable


def test_calls_on_memory_are_of_another_kind() -> None:
    plain, seen = np.zeros((128, 64)), found(np.zeros((64, 128)).T)
    calls = [Call("all_reduce", plain, dist.ReduceOp.SUM)]
    calls.append(Call("all_reduce", seen.memory, dist.ReduceOp.SUM, reordered=seen))
    assert calls[0].kind != calls[1].kind
    assert calls[0].fingerprint.digest() != calls[1].fingerprint.digest()
    assert calls[0].fingerprint.order == 0


def test_only_calls_that_differ_in_nothing_else_are_made_again() -> None:
    def explained(*calls: Fingerprint) -> type:
        told = [{**vars(call), "sequence": 7, "at": ""} for call in calls]
        return type(error_of(told, (0, 1), "default"))

    call = Fingerprint("all_reduce", "SUM", shape=(3, 4), count=12)
    ordered = Fingerprint("all_reduce", "SUM", shape=(3, 4), count=12, order=-5)
    assert explained(call, ordered) is OrdersDifferError
    assert explained(Fingerprint("all_reduce", "MAX", shape=(3, 4), count=12), ordered) is dist.CollectiveMismatchError


def content(rank: int) -> Any:
    return np.arange(64 * 200.0).reshape(64, 200) + rank


@pytest.mark.parametrize("orders", ["FFF", "CFF", "FCC"])
def test_on_a_backend_that_keeps_nothing_they_are_right(orders: str) -> None:
    def program() -> None:
        for _ in range(3):
            array = np.array(content(dist.get_rank()), order=orders[dist.get_rank()])  # type: ignore[call-overload]
            dist.all_reduce(array)
            assert np.array_equal(array, sum(map(content, range(3))))

    with local_world(3, timeout=20) as world:
        world.run(program)


def test_a_read_only_array_is_sent_but_not_filled_in_any_order() -> None:
    def program() -> None:
        array = np.asfortranarray(content(0))
        array.flags.writeable = False
        with pytest.raises(ValueError, match="is read-only"):
            dist.all_reduce(array)
        other = np.zeros((200, 64)).T
        dist.broadcast(array if dist.get_rank() == 0 else other, 0)
        assert dist.get_rank() == 0 or np.array_equal(other, array)

    with local_world(2, timeout=20) as world:
        world.run(program)
