"""all_reduce: every block of every rank ends up as the reduction over all ranks. p ranks, N bytes in p blocks."""

from __future__ import annotations

from collections.abc import Callable

from rankwise.collective.algorithms import all_gather, reduce_scatter
from rankwise.collective.algorithms.steps import Recv, Rounds, Send, fold, powers_of_two

__all__ = ["halving_doubling", "recursive_doubling", "ring", "two_shot"]


def ring(rank: int, size: int) -> Rounds:
    """Pass blocks around a ring, first to reduce, then to gather them.

    Rounds: 2(p-1). Bytes sent: 2(p-1)/p N. Each rank talks to one neighbour only: best for very large N.
    """
    yield from reduce_scatter.ring(rank, size)
    yield from all_gather.ring(rank, size)


def two_shot(rank: int, size: int) -> Rounds:
    """Give each rank its block of everyone, and everyone the reduced blocks.

    Rounds: 2. Bytes sent: 2(p-1)/p N. All pairs at once: best for few ranks.
    """
    yield from reduce_scatter.direct(rank, size)
    yield from all_gather.direct(rank, size)


def recursive_doubling(rank: int, size: int) -> Rounds:
    """Exchange everything with partners at distances 1, 2, 4, ...

    Rounds: log2 p, and 2 more if p is no power of two. Bytes sent: up to N log2 p (+ N). Best for small N.
    """

    def rules(me: int, power: int, real: Callable[[int], int]) -> Rounds:
        everything = range(size)
        for distance in powers_of_two(power):
            partner = real(me ^ distance)
            yield Send(partner, everything), Recv(partner, everything, combine=True, left=bool(me & distance))

    return fold(rank, size, rules)


def halving_doubling(rank: int, size: int) -> Rounds:
    """Reduce halves, quarters, ... with partners at falling distances, then gather on the way back (Rabenseifner).

    Rounds: 2 log2 p, and 2 more if p is no power of two. Bytes sent: about 2N (+ N). Best for many ranks.
    """

    def rules(me: int, power: int, real: Callable[[int], int]) -> Rounds:
        low, high = 0, size
        path = []
        for distance in reversed(powers_of_two(power)):
            middle, partner = (low + high) // 2, real(me ^ distance)
            keep, give = range(low, middle), range(middle, high)
            if me & distance:
                keep, give = give, keep
            yield Send(partner, give), Recv(partner, keep, combine=True)
            path.append((partner, keep, give))
            low, high = keep.start, keep.stop
        for partner, keep, give in reversed(path):
            yield Send(partner, keep), Recv(partner, give)

    return fold(rank, size, rules)
