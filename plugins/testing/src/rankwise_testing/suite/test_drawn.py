"""Calls that nobody has thought of: dtypes, reduce ops, counts and roots are drawn, from the seed that is printed."""

from __future__ import annotations

from random import Random

import pytest

from rankwise.kits import COLLECTIVES, DTYPES, OPS, REDUCE_OPS
from rankwise_testing.suite.arrays import why_not
from rankwise_testing.suite.exercises import Case, perform
from rankwise_testing.suite.plugin import Kit
from rankwise_testing.suite.worlds import MAX_SIZE, REDUCING

_CASES, _MOST = 25, 18


@pytest.mark.parametrize("size", range(2, MAX_SIZE + 1))
@pytest.mark.parametrize("op", [pytest.param(op, marks=pytest.mark.needs(op)) for op in OPS if op != "barrier"])
def test_drawn_calls(kit: Kit, op: str, size: int) -> None:
    random = Random(f"{kit.seed} {op} {size}")
    cells = [
        (reduce, dtype)
        for reduce in (REDUCE_OPS if op in REDUCING else (None,))
        for dtype in DTYPES
        if kit.measurements.declares(op, reduce, dtype) and not why_not(dtype, kit.device)
    ]
    kit.run(size, perform_drawn, [_drawn(random, op, size, *random.choice(cells)) for _ in range(_CASES)])


def _drawn(random: Random, op: str, size: int, reduce: str | None, dtype: str) -> Case:
    """Draw a count of any magnitude, as often a power of two or next to one as not."""
    bits = random.randrange(_MOST)
    count = random.choice([1 << bits, (1 << bits) + 1, (1 << bits) - 1, *(random.randrange(1 << bits) for _ in "123")])
    root = random.randrange(size) if op in COLLECTIVES else 0
    return Case(op, dtype, reduce, count, root, random.randrange(50))


def perform_drawn(cases: list[Case]) -> None:
    for case in cases:
        try:
            perform(case)
        except Exception as error:
            raise AssertionError(f"{case}, salt {case.salt}: {type(error).__name__}: {error}") from error
