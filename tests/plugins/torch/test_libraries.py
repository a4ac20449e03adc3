"""Arrays of torch and of JAX on the CPU, as they are: no library is told of the other, and DLPack is all they share."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from tests.threads import run_local

import rankwise as dist
from rankwise import functional
from rankwise_testing import run_ranks

torch = pytest.importorskip("torch")
jax = pytest.importorskip("jax")
jnp = pytest.importorskip("jax.numpy")

Make = Callable[[Any], Any]

#: Makes an array of a library of what NumPy has.
LIBRARIES: dict[str, tuple[type, Make]] = {"torch": (torch.Tensor, torch.asarray), "jax": (jax.Array, jnp.asarray)}
SIZE = 3


@pytest.fixture(params=list(LIBRARIES))
def library(request: pytest.FixtureRequest) -> tuple[type, Make]:
    """Give the type of a library's arrays, and what makes them."""
    return LIBRARIES[request.param]


def parts(rank: int) -> np.ndarray[Any, Any]:
    return np.arange(6, dtype=np.float32).reshape(3, 2) + 10 * rank


TOTAL = sum(map(parts, range(SIZE)))

#: What a call makes of the array of a rank, and what that must be on a rank.
FUNCTIONAL: dict[str, tuple[Callable[[Any], Any], Callable[[int], Any]]] = {
    "all_reduce": (functional.all_reduce, lambda rank: TOTAL),
    "broadcast": (lambda array: functional.broadcast(array, 1), lambda rank: parts(1)),
    "all_gather": (functional.all_gather, lambda rank: np.stack([parts(peer) for peer in range(SIZE)])),
    "reduce_scatter": (functional.reduce_scatter, lambda rank: TOTAL[rank : rank + 1]),
    "all_to_all": (
        functional.all_to_all,
        lambda rank: np.concatenate([parts(peer)[rank : rank + 1] for peer in range(SIZE)]),
    ),
    "scan": (functional.scan, lambda rank: sum(map(parts, range(rank + 1)))),
    "permute": (
        lambda array: functional.permute(array, [(rank, (rank + 1) % SIZE) for rank in range(SIZE)]),
        lambda rank: parts((rank - 1) % SIZE),
    ),
}


@pytest.mark.parametrize("call", list(FUNCTIONAL))
def test_a_functional_call_takes_and_gives_arrays_of_the_callers_library(library: tuple[type, Make], call: str) -> None:
    kind, make = library
    run, wanted = FUNCTIONAL[call]

    def calls() -> None:
        mine = make(parts(dist.get_rank()))
        found = run(mine)
        assert isinstance(found, kind)
        np.testing.assert_array_equal(np.asarray(found), wanted(dist.get_rank()))
        np.testing.assert_array_equal(np.asarray(mine), parts(dist.get_rank()))

    run_local(SIZE, calls)


@pytest.mark.parametrize("dtype", ["float64", "float32", "float16", "bfloat16", "int32", "uint8", "bool", "complex64"])
def test_every_dtype_of_jax_is_taken(dtype: str) -> None:
    def calls() -> None:
        with jax.enable_x64(True):  # of this thread
            gathers(jnp.ones(5, dtype))

    def gathers(given: Any) -> None:
        found = functional.all_gather(given)
        assert isinstance(found, jax.Array)
        assert found.dtype == given.dtype
        assert bool((found == 1).all())
        whole = [np.zeros(5, given.dtype) for _ in range(2)]
        dist.all_gather(whole, given)
        assert all((part == 1).all() for part in whole)

    run_local(2, calls)


def test_what_cannot_be_written_to_is_read_and_refused_as_an_output_in_one_sentence() -> None:
    def calls() -> str:
        mine, got = jnp.full(4, float(dist.get_rank())), np.empty(4, np.float32)
        if dist.get_rank() == 0:
            dist.send(mine, 1)
        else:
            dist.recv(got, 0)
            assert (got == 0).all()
        with pytest.raises(ValueError, match=r"tensor is read-only, but is written to; pass a copy") as caught:
            dist.all_reduce(mine)
        return str(caught.value)

    assert [text.partition("\n")[2] for text in run_local(2, calls)] == ["", ""]


def test_a_tensor_of_torch_is_worked_on_in_place_also_where_it_is_not_contiguous() -> None:
    def calls() -> None:
        whole = torch.zeros(4, 6)
        column = whole[:, 2]
        column += dist.get_rank() + 1
        dist.all_reduce(column)
        assert whole[:, 2].tolist() == [3.0] * 4
        assert whole.sum() == 12

    run_local(2, calls)


def test_a_question_may_be_asked_with_an_array_and_a_dtype_of_the_library(library: tuple[type, Make]) -> None:
    _, make = library
    array = make(np.ones(2, np.float32))
    assert dist.supports("all_reduce", array, backend="gloo")
    assert dist.supports("all_reduce", array, array.dtype, backend="gloo")


def both_between_processes() -> list[list[float]]:
    """One rank has an array of torch, the other one of JAX."""
    dist.init_process_group("gloo", timeout=60)
    make = torch.asarray if dist.get_rank() == 0 else jnp.asarray
    found = functional.all_reduce(make(np.arange(3, dtype=np.float32)))
    assert isinstance(found, torch.Tensor if dist.get_rank() == 0 else jax.Array)
    got = np.zeros(3, np.float32)
    dist.all_gather([np.empty(3, np.float32), got], found)
    dist.destroy_process_group()
    return [np.asarray(found).tolist(), got.tolist()]


def test_ranks_may_use_different_libraries() -> None:
    assert run_ranks(both_between_processes, 2) == [[[0.0, 2.0, 4.0]] * 2] * 2
