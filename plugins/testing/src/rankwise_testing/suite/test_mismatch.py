"""Ranks that do not make the same call all get the same error, and may go on."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import rankwise as dist
from rankwise import ReduceOp
from rankwise.errors import CollectiveMismatchError
from rankwise.kits import GroupLike
from rankwise_testing.suite.arrays import on_device, other, plain
from rankwise_testing.suite.expect import error_of, numbers, settled, still_usable
from rankwise_testing.suite.plugin import Kit, needs

pytestmark = needs("mismatch")

_Call = Callable[..., Any]


def _another() -> Any:
    return on_device(np.ones(1).astype(other()))


def _parts(*lengths: int) -> list[Any]:
    return [numbers(*[0] * length) for length in lengths]


#: What most ranks call, what the odd one calls, the ops that are needed, and words of the error. The size is told.
_MISTAKES: dict[str, tuple[_Call, _Call, tuple[str, ...], tuple[str, ...]]] = {
    "size": (
        lambda **g: dist.all_reduce(numbers(1), **g),
        lambda **g: dist.all_reduce(numbers(1, 2), **g),
        ("all_reduce",),
        (),
    ),
    "shape": (
        lambda **g: dist.all_reduce(numbers(1, 2).reshape(1, 2), **g),
        lambda **g: dist.all_reduce(numbers(1, 2).reshape(2, 1), **g),
        ("all_reduce",),
        ("(1, 2)", "(2, 1)"),
    ),
    "dtype": (
        lambda **g: dist.all_reduce(numbers(1), **g),
        lambda **g: dist.all_reduce(_another(), **g),
        ("all_reduce",),
        ("{plain}", "{other}"),
    ),
    "reduce op": (
        lambda **g: dist.all_reduce(numbers(1), ReduceOp.SUM, **g),
        lambda **g: dist.all_reduce(numbers(1), ReduceOp.MAX, **g),
        ("all_reduce",),
        ("SUM", "MAX"),
    ),
    "root": (
        lambda **g: dist.broadcast(numbers(1), group_src=0, **g),
        lambda **g: dist.broadcast(numbers(1), group_src=1, **g),
        ("broadcast",),
        ("root=0", "root=1"),
    ),
    "operation": (
        lambda **g: dist.all_reduce(numbers(1), **g),
        lambda **g: dist.broadcast(numbers(1), group_src=0, **g),
        ("all_reduce", "broadcast"),
        ("all_reduce", "broadcast"),
    ),
    "barrier": (
        lambda **g: dist.barrier(**g),
        lambda **g: dist.all_reduce(numbers(1), **g),
        ("all_reduce", "barrier"),
        ("all_reduce", "barrier"),
    ),
    "root of gather": (
        lambda **g: dist.gather(numbers(1), _parts(*[1] * _size(g)) if _rank(g) == 0 else None, group_dst=0, **g),
        lambda **g: dist.gather(numbers(1), _parts(*[1] * _size(g)) if _rank(g) == 1 else None, group_dst=1, **g),
        ("gather",),
        ("root=0", "root=1"),
    ),
    "size of all_gather": (
        lambda **g: dist.all_gather(_parts(*[1] * _size(g)), numbers(1), **g),
        lambda **g: dist.all_gather(_parts(*[2] * _size(g)), numbers(1, 2), **g),
        ("all_gather",),
        (),
    ),
    "size of reduce_scatter": (
        lambda **g: dist.reduce_scatter(numbers(1), _parts(*[1] * _size(g)), **g),
        lambda **g: dist.reduce_scatter(numbers(1, 2), _parts(*[2] * _size(g)), **g),
        ("reduce_scatter",),
        (),
    ),
}


def _rank(terms: dict[str, GroupLike]) -> int:
    return dist.get_rank(terms.get("group"))


def _size(terms: dict[str, GroupLike]) -> int:
    return dist.get_world_size(terms.get("group"))


@pytest.mark.parametrize("what", list(_MISTAKES))
def test_the_odd_rank_is_named_to_all_and_the_group_lives(kit: Kit, what: str) -> None:
    _require(kit, what)
    _alike(kit.run(3, mistaken, what, 2))
    _alike(kit.run(4, mistaken, what, 1))


@pytest.mark.parametrize("what", list(_MISTAKES))
def test_two_ranks_that_disagree_are_both_named(kit: Kit, what: str) -> None:
    _require(kit, what)
    _alike(kit.run(2, mistaken, what, 1))


def mistaken(what: str, odd: int) -> str:
    usual, odd_call, _, words = _MISTAKES[what]
    rank, size = dist.get_rank(), dist.get_world_size()
    error = error_of(CollectiveMismatchError, settled, odd_call if rank == odd else usual)
    assert set(error.odd_ranks) == ({odd} if size > 2 else {0, 1}), f"odd ranks {error.odd_ranks}: {error}"
    missing = [word for word in (word.format(plain=plain(), other=other()) for word in words) if word not in str(error)]
    assert not missing, f"the error does not say {missing}: {error}"
    still_usable()
    return str(error)


@needs("all_reduce")
def test_in_a_subgroup_the_odd_one_is_named_by_its_global_rank(kit: Kit) -> None:
    kit.sizes(3)
    kit.run(4, mistaken_in_a_group)


def mistaken_in_a_group() -> None:
    group = dist.new_group([3, 1, 2], sort_ranks=False)
    if isinstance(group, int):
        return
    array = numbers(1, 2) if dist.get_rank() == 3 else numbers(1)
    error = error_of(CollectiveMismatchError, settled, dist.all_reduce, array, group=group)
    assert set(error.odd_ranks) == {3}, error
    still_usable(group)


@needs("scatter")
def test_a_part_that_does_not_fit_its_receiver(kit: Kit) -> None:
    _alike(kit.run(3, scatter_wrong))


def scatter_wrong() -> str:
    rank = dist.get_rank()
    array = numbers(*[0] * (2 if rank == 2 else 1))
    error = error_of(CollectiveMismatchError, settled, dist.scatter, array, _parts(1, 1, 1) if rank == 0 else None)
    assert 2 in error.odd_ranks, f"odd ranks {error.odd_ranks}: {error}"
    still_usable()
    return str(error)


@needs("all_to_all")
def test_a_pair_that_disagrees_about_its_part(kit: Kit) -> None:
    if kit.lacks("uneven"):
        pytest.skip(kit.lacks("uneven"))
    _alike(kit.run(3, exchange_wrong))


def exchange_wrong() -> str:
    rank = dist.get_rank()
    outs = _parts(1, 1, 1) if rank != 2 else _parts(2, 1, 1)
    error = error_of(CollectiveMismatchError, settled, dist.all_to_all, outs, _parts(1, 1, 1))
    assert 2 in error.odd_ranks, f"odd ranks {error.odd_ranks}: {error}"
    still_usable()
    return str(error)


@needs("async", "all_reduce")
def test_of_several_pending_operations_the_wrong_one_fails_alone(kit: Kit) -> None:
    kit.run(2, wrong_among_others)


def wrong_among_others() -> None:
    rank = dist.get_rank()
    first, second, third = numbers(1), numbers(*[1] * (rank + 1)), numbers(1)
    works = [dist.all_reduce(array, async_op=True) for array in (first, second, third)]
    for work, fails in zip(works, (False, True, False), strict=True):
        assert work is not None
        if fails:
            error_of(CollectiveMismatchError, work.synchronize)
        else:
            work.wait()
    still_usable()


def _require(kit: Kit, what: str) -> None:
    """Skip a mistake that the table does not let anyone make."""
    for op in _MISTAKES[what][2]:
        if reason := kit.lacks(op):
            pytest.skip(reason)
    if what == "dtype":
        kit.require(kit.other, "all_reduce", reduce="SUM")
    if what == "reduce op":
        kit.require(kit.plain, "all_reduce", reduce="MAX")


def _alike(texts: list[str]) -> None:
    """Raise unless all ranks were told the same."""
    assert len(set(texts)) == 1, f"the ranks were told different things: {texts}"
