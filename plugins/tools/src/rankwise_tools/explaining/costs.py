"""What the algorithms cost, counted from their rounds."""

from __future__ import annotations

from typing import NamedTuple

from rankwise.collective.algorithms.steps import Rounds
from rankwise.collective.algorithms.table import ALGORITHMS, rooted

__all__ = ["Cost", "costs"]


class Cost(NamedTuple):
    """What one rank does: rounds, and bytes sent."""

    rounds: int
    nbytes: int


def costs(op: str, name: str, size: int, part_nbytes: list[int], root: int = 0) -> list[Cost]:
    """Return what each rank does in one run, counted from the rounds themselves.

    Args:
        op: The operation.
        name: The algorithm.
        size: Number of ranks.
        part_nbytes: Size of each block.
        root: The root, for operations that have one.
    """
    return [_cost(ALGORITHMS[op][name](rank, size, *rooted(op, root)), part_nbytes) for rank in range(size)]


def _cost(rounds: Rounds, part_nbytes: list[int]) -> Cost:
    count = nbytes = 0
    for steps in rounds:
        count += 1
        nbytes += sum(part_nbytes[b] for step in steps if not hasattr(step, "source") for b in step.blocks)
    return Cost(count, nbytes)
