"""all_reduce: every block of every rank ends up as the reduction over all ranks. p ranks, N bytes in p blocks."""

from __future__ import annotations

from collections.abc import Callable

from rankwise.collective.algorithms import all_gather, reduce_scatter
from rankwise.collective.algorithms.steps import Recv, Rounds, Send, distances, fold

__all__ = ["halving_doubling", "pat", "recursive_doubling", "ring", "two_shot"]


def ring(rank: int, size: int) -> Rounds:
    """Pass blocks around a ring, first to reduce, then to gather them.

    Rounds: 2(p-1). Bytes sent: 2(p-1)/p N. Each rank talks to one neighbour only: best for very large N.
    """
    yield from reduce_scatter.ring(rank, size)
    yield from all_gather.ring(rank, size)


def two_shot(rank: int, size: int) -> Rounds:
    """Give each rank its block of everyone, and everyone the reduced blocks.

    Rounds: 2. Bytes sent: 2(p-1)/p N. All pairs at the same time: best for few ranks.
    """
    yield from reduce_scatter.direct(rank, size)
    yield from all_gather.direct(rank, size)


def recursive_doubling(rank: int, size: int) -> Rounds:
    """Exchange everything with partners at distances 1, 2, 4, ...

    Rounds: log2 p, and 2 more if p is no power of two. Bytes sent: up to N log2 p (+ N). Best for small N.
    """

    def rules(me: int, power: int, real: Callable[[int], int]) -> Rounds:
        everything = range(size)
        for distance in distances(power):
            partner = real(me ^ distance)
            yield Send(partner, everything), Recv(partner, everything, combine=True, left=bool(me & distance))

    return fold(rank, size, rules)


def halving_doubling(rank: int, size: int) -> Rounds:
    """Halve the blocks between partners at distances p/2, p/4, ..., reducing, and double them back (Rabenseifner).

    Rounds: 2 log2 p, and 2 more if p is no power of two. Bytes sent: 2(p-1)/p N, and up to N more then. As many blocks
    as ranks make a message of blocks that lie side by side, which those of `pat` do not.
    """

    def rules(me: int, power: int, real: Callable[[int], int]) -> Rounds:
        def span(begin: int, width: int) -> range:
            return range(size * begin // power, size * (begin + width) // power)

        for distance in reversed(distances(power)):
            mine, other = me & -distance, (me ^ distance) & -distance
            partner = real(me ^ distance)
            yield Send(partner, span(other, distance)), Recv(partner, span(mine, distance), combine=True)
        for distance in distances(power):
            mine, other = me & -distance, (me ^ distance) & -distance
            partner = real(me ^ distance)
            yield Send(partner, span(mine, distance)), Recv(partner, span(other, distance))

    return fold(rank, size, rules)


def pat(rank: int, size: int) -> Rounds:
    """Reduce each block on the way up a tree of its own, and gather the blocks on the way down.

    Rounds: 2 ceil(log2 p). Bytes sent: 2(p-1)/p N, as on a ring. Best for many ranks.
    """
    yield from reduce_scatter.pat(rank, size)
    yield from all_gather.bruck(rank, size)
