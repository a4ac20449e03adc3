"""barrier: no rank leaves before every rank has come. What the messages carry does not matter."""

from __future__ import annotations

from rankwise.collective.algorithms.steps import Recv, Rounds, Send

__all__ = ["dissemination"]


def dissemination(rank: int, size: int) -> Rounds:
    """Signal ranks at distances 1, 2, 4, ... (Hensgen, Finkel and Manber).

    Rounds: ceil(log2 p). Messages sent: as many.
    """
    distance = 1
    while distance < size:
        yield Send((rank + distance) % size, ()), Recv((rank - distance) % size, ())
        distance *= 2
