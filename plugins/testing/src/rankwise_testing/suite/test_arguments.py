"""Mistakes in arguments are told before anything is sent: the other ranks are not disturbed."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import rankwise as dist
from rankwise import P2POp, ReduceOp
from rankwise_testing.suite.arrays import on_device, other, plain
from rankwise_testing.suite.expect import error_of, numbers, still_usable
from rankwise_testing.suite.plugin import Kit, needs

pytestmark = needs("all_reduce")


def _read_only() -> Any:
    array = np.zeros(3, plain())
    array.flags.writeable = False
    return array


def _unwritable() -> Any:
    """Return an array that takes no result: one whose elements all share one place, or on a device, a strided one."""
    array = on_device(np.zeros(6, plain()))
    return np.lib.stride_tricks.as_strided(array, (3,), (0,)) if type(array) is np.ndarray else array[::2]


def _others(count: int) -> Any:
    return on_device(np.zeros(count, other()))


def _objects() -> Any:
    return np.array([None, {}], object)


def _parts(*lengths: int) -> list[Any]:
    return [numbers(*[0] * length) for length in lengths]


#: What rank 1 calls in a world of two, the error, words of its message, and the operation that it needs.
_MISTAKES: dict[str, tuple[Callable[[], Any], type[Exception], tuple[str, ...], str]] = {
    "a scalar": (lambda: dist.all_reduce(1.0), TypeError, ("all_reduce", "rank 1", "tensor"), "all_reduce"),  # type: ignore[call-overload]
    "a NumPy scalar": (lambda: dist.all_reduce(np.float32(1)), TypeError, ("tensor", "rank 1"), "all_reduce"),
    "a list": (lambda: dist.all_reduce([1.0]), TypeError, ("tensor", "list"), "all_reduce"),  # type: ignore[call-overload]
    "nothing": (lambda: dist.broadcast(None, src=0), TypeError, ("tensor", "rank 1"), "broadcast"),  # type: ignore[call-overload]
    "Python objects": (lambda: dist.all_reduce(_objects()), TypeError, ("object",), "all_reduce"),
    "a read-only output": (lambda: dist.all_reduce(_read_only()), ValueError, ("read-only", "rank 1"), "all_reduce"),
    "an output of one place": (lambda: dist.all_reduce(_unwritable()), ValueError, ("copy", "rank 1"), "all_reduce"),
    "a receive into one place": (lambda: dist.recv(_unwritable(), 0), ValueError, ("copy", "recv"), "recv"),
    "a broadcast into one place": (lambda: dist.broadcast(_unwritable(), src=0), ValueError, ("copy",), "broadcast"),
    "no reduce op": (lambda: dist.all_reduce(numbers(1), "sum"), TypeError, ("ReduceOp",), "all_reduce"),  # type: ignore[call-overload]
    "too few outputs": (
        lambda: dist.all_gather(_parts(1), numbers(1)),
        ValueError,
        ("tensor_list", "1", "2", "rank 1"),
        "all_gather",
    ),
    "no list": (lambda: dist.all_gather(numbers(1, 2), numbers(1)), TypeError, ("tensor_list",), "all_gather"),
    "outputs of another dtype": (
        lambda: dist.all_gather([_others(1), _others(1)], numbers(1)),
        ValueError,
        ("{other}", "{plain}"),
        "all_gather",
    ),
    "an own part of another size": (
        lambda: dist.all_gather(_parts(1, 2), numbers(1)),
        ValueError,
        ("tensor_list", "rank 1"),
        "all_gather",
    ),
    "a read-only part": (
        lambda: dist.all_gather([_read_only(), _read_only()], numbers(1, 2, 3)),
        ValueError,
        ("tensor_list[0]", "read-only"),
        "all_gather",
    ),
    "an output that is no multiple": (
        lambda: dist.all_gather_single(numbers(1, 2, 3), numbers(1)),
        ValueError,
        ("output_tensor", "3", "rank 1"),
        "all_gather",
    ),
    "an input that is no multiple": (
        lambda: dist.reduce_scatter_single(numbers(1), numbers(1, 2, 3)),
        ValueError,
        ("input", "rank 1"),
        "reduce_scatter",
    ),
    "rows that do not divide": (
        lambda: dist.all_to_all_single(numbers(1, 2, 3), numbers(1, 2, 3)),
        ValueError,
        ("3", "rank 1"),
        "all_to_all",
    ),
    "splits that do not add up": (
        lambda: dist.all_to_all_single(numbers(1, 2), numbers(1, 2), [1, 1], [1, 2]),
        ValueError,
        ("[1, 2]", "rank 1"),
        "all_to_all",
    ),
    "a gather list on the wrong rank": (
        lambda: dist.gather(numbers(1), _parts(1, 1), dst=0),
        ValueError,
        ("gather_list", "rank 1"),
        "gather",
    ),
    "no gather list on the root": (lambda: dist.gather(numbers(1), dst=1), ValueError, ("gather_list",), "gather"),
    "a scatter list on the wrong rank": (
        lambda: dist.scatter(numbers(1), _parts(1, 1), src=0),
        ValueError,
        ("scatter_list", "rank 1"),
        "scatter",
    ),
    "no scatter list on the root": (lambda: dist.scatter(numbers(1), src=1), ValueError, ("scatter_list",), "scatter"),
    "a root outside": (lambda: dist.broadcast(numbers(1), src=2), ValueError, ("src", "2"), "broadcast"),
    "a negative root": (lambda: dist.broadcast(numbers(1), src=-1), ValueError, ("src", "-1"), "broadcast"),
    "no root": (lambda: dist.broadcast(numbers(1)), ValueError, ("src", "group_src"), "broadcast"),
    "two roots": (lambda: dist.broadcast(numbers(1), src=0, group_src=0), ValueError, ("group_src",), "broadcast"),
    "a root that is no number": (lambda: dist.reduce(numbers(1), "0"), TypeError, ("dst",), "reduce"),  # type: ignore[call-overload]
    "a group that is none": (lambda: dist.all_reduce(numbers(1), group="all"), TypeError, ("group",), "all_reduce"),  # type: ignore[call-overload]
    "a peer outside": (lambda: dist.send(numbers(1), 7), ValueError, ("dst", "7"), "send"),
    "a negative tag": (lambda: dist.send(numbers(1), 0, tag=-1), ValueError, ("tag", "-1"), "send"),
    "a tag of the core": (lambda: dist.send(numbers(1), 0, tag=2**30), ValueError, ("tag",), "send"),
    "a tag that is no number": (lambda: dist.send(numbers(1), 0, tag=1.5), TypeError, ("tag",), "send"),  # type: ignore[arg-type]
    "an empty batch": (lambda: dist.batch_isend_irecv([]), ValueError, ("empty",), "send"),
    "a batch of something else": (lambda: dist.batch_isend_irecv([1]), TypeError, ("P2POp",), "send"),  # type: ignore[list-item]
    "a batch of collectives": (lambda: P2POp(dist.all_reduce, numbers(1), 0), ValueError, ("isend",), "send"),
    "a batch with a mistake at its end": (
        lambda: dist.batch_isend_irecv([P2POp(dist.isend, numbers(1), 0), P2POp(dist.irecv, _unwritable(), 0)]),
        ValueError,
        ("copy",),
        "send",
    ),
    "a PREMUL_SUM without its factor": (
        lambda: dist.all_reduce(numbers(1), ReduceOp.PREMUL_SUM),  # type: ignore[call-overload]
        TypeError,
        ("ReduceOp",),
        "all_reduce",
    ),
}

_HOST_ONLY = ("Python objects", "a read-only output", "a read-only part")


@pytest.mark.parametrize("what", list(_MISTAKES))
def test_a_mistake_is_told_where_it_is_made_and_disturbs_nobody(kit: Kit, what: str) -> None:
    if reason := kit.lacks(_MISTAKES[what][3]):
        pytest.skip(reason)
    if what in _HOST_ONLY and kit.device != "cpu":
        pytest.skip("there are no such arrays on a GPU")
    kit.run(2, mistaken, what)


def mistaken(what: str) -> None:
    call, kind, words, _ = _MISTAKES[what]
    if dist.get_rank() == 1:
        error = error_of(kind, call)
        words = tuple(word.format(other=other(), plain=plain()) for word in words)
        missing = [word for word in words if word not in str(error)]
        assert not missing, f"the error does not say {missing}: {error}"
    still_usable()
