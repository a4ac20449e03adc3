"""Algorithms that no table chooses, beside those of the core: so one sees, and measures, what they would cost."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType

from rankwise.launching import Recv, Rounds, Send, distances, fold, rounds
from rankwise.launching import table as chosen


def all_gather_open_ring(rank: int, size: int, begin: int) -> Rounds:
    """Pass every block around a ring that ends before `begin`: that rank has all blocks, and may not write to them.

    Rounds: p-1. Bytes sent: as on a ring, but none to `begin`.
    """
    for send, receive in rounds.all_gather_ring(rank, size):
        if rank == begin:
            yield (send,)
        elif (rank + 1) % size == begin:
            yield (receive,)
        else:
            yield send, receive


def all_gather_open_bruck(rank: int, size: int, begin: int) -> Rounds:
    """Do as `all_gather_bruck` does, but send nothing to `begin`: that rank has all blocks, and may not write to them.

    Rounds: ceil(log2 p). Bytes sent: at most p-1 blocks.
    """
    for send, receive in rounds.all_gather_bruck(rank, size):
        steps = (send,) if rank == begin else (receive,) if send.to == begin else (send, receive)
        yield steps


def broadcast_scatter_ring(rank: int, size: int, root: int) -> Rounds:
    """Scatter the blocks along a tree, then pass them around a ring (van de Geijn), which ends before the root.

    Rounds: at most ceil(log2 p) + p-1. Bytes sent: about 2N by the root, N by others, but nothing by the rank before
    the root, which has all blocks already. Best for large N.
    """
    yield from rounds.scatter_binomial(rank, size, root)
    yield from all_gather_open_ring(rank, size, root)


def broadcast_scatter_bruck(rank: int, size: int, root: int) -> Rounds:
    """Scatter the blocks along a tree, then let each rank send all that it has to ranks at distances 1, 2, 4, ...

    Rounds: at most 2 ceil(log2 p). Bytes sent: about 2N by the root, N by others. Best for many ranks.
    """
    yield from rounds.scatter_binomial(rank, size, root)
    yield from all_gather_open_bruck(rank, size, root)


def all_reduce_halving_doubling(rank: int, size: int) -> Rounds:
    """Halve the blocks between partners at distances p/2, p/4, ..., reducing, and double them back (Rabenseifner).

    Rounds: 2 log2 p, and 2 more if p is no power of two. Bytes sent: 2(p-1)/p N, and up to N more then. As many blocks
    as ranks make a message of blocks that lie side by side, which those of `all_reduce_pat` do not.
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


_MORE: Mapping[str, Mapping[str, Callable[..., Rounds]]] = {
    "all_reduce": {"halving_doubling": all_reduce_halving_doubling},
    "broadcast": {"scatter_bruck": broadcast_scatter_bruck, "scatter_ring": broadcast_scatter_ring},
}
#: All that are compared, by operation and name.
ALGORITHMS: Mapping[str, Mapping[str, Callable[..., Rounds]]] = MappingProxyType(
    {op: {**family, **_MORE.get(op, {})} for op, family in chosen.ALGORITHMS.items()}
)
