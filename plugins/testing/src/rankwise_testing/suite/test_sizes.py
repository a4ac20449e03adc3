"""Every operation in worlds of one to four, with every root, and with counts that the ranks do not divide."""

from __future__ import annotations

import pytest

import rankwise as dist
from rankwise.kits import OPS
from rankwise_testing.suite.exercises import Case, perform
from rankwise_testing.suite.plugin import Kit
from rankwise_testing.suite.worlds import MAX_SIZE, MORE_SIZES

_COUNTS = (0, 1, 2, 3, 7, 64, 1001)
_LARGE = 300_007  # more than sockets and eager protocols hold
#: On both sides of every power of two, where blocks and protocols change.
_POWERS = tuple((1 << bits) + more for bits in range(3, 18) for more in (-1, 0, 1))
_ROOTED = ("broadcast", "reduce", "gather", "scatter")


@pytest.mark.parametrize("size", range(1, MAX_SIZE + 1))
@pytest.mark.parametrize("op", [pytest.param(op, marks=pytest.mark.needs(op)) for op in OPS])
def test_any_count_and_root(kit: Kit, op: str, size: int) -> None:
    kit.run(size, perform_all, op, _COUNTS)


@pytest.mark.parametrize("op", [pytest.param(op, marks=pytest.mark.needs(op)) for op in OPS])
def test_large_arrays(kit: Kit, op: str) -> None:
    """With every root: a rank may be the last in some order of another."""
    for size in kit.sizes(2, 3, 4):
        kit.run(size, perform_all, op, (5_003, 40_009) if size != 3 else (5_003, _LARGE))


@pytest.mark.parametrize("op", [pytest.param(op, marks=pytest.mark.needs(op)) for op in OPS if op != "barrier"])
def test_counts_on_both_sides_of_every_power_of_two(kit: Kit, op: str) -> None:
    for size in kit.sizes(2, 3):
        kit.run(size, perform_powers, op)


@pytest.mark.parametrize("size", MORE_SIZES)
def test_larger_worlds(kit: Kit, size: int) -> None:
    ops = [op for op in OPS if not kit.lacks(op)]
    if not ops:
        pytest.skip(kit.lacks("send"))
    kit.run(size, perform_some, ops)


def perform_powers(op: str) -> None:
    for count in _POWERS:
        perform(Case(op, reduce="SUM" if "reduce" in op else None, count=count, root=count % 2))


def perform_some(ops: list[str]) -> None:
    for op in ops:
        perform_all(op, (0, 1, 13, 5_003))


def perform_all(op: str, counts: tuple[int, ...]) -> None:
    for count in counts if op != "barrier" else (0, 0, 0):
        for root in range(dist.get_world_size()) if op in _ROOTED and count != _LARGE else (0,):
            perform(Case(op, reduce="SUM" if "reduce" in op else None, count=count, root=root, salt=root))
