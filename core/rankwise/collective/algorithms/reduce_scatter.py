"""reduce_scatter: block i of rank i ends up as the reduction of everyone's block i; other blocks are scratch.

p ranks, N bytes in p blocks, which may differ in size.
"""

from __future__ import annotations

from rankwise.collective.algorithms.steps import Recv, Rounds, Send, distances, one

__all__ = ["direct", "pat", "ring"]


def ring(rank: int, size: int) -> Rounds:
    """Pass each block once around a ring that ends at its owner, reducing on the way.

    Rounds: p-1. Bytes sent: N less the own block.
    """
    right, left = (rank + 1) % size, (rank - 1) % size
    for k in range(1, size):
        yield Send(right, one(rank - k, size)), Recv(left, one(rank - k - 1, size), combine=True)


def direct(rank: int, size: int) -> Rounds:
    """Send each block straight to its owner.

    Rounds: 1. Bytes sent: N less the own block.
    """
    others = [(rank + k) % size for k in range(1, size)]
    if others:
        mine = one(rank, size)
        sends = (Send(other, one(other, size)) for other in others)
        # In rank order, so that the result does not depend on who is the owner or the faster.
        yield (*sends, *(Recv(other, mine, combine=True) for other in sorted(others)))


def pat(rank: int, size: int) -> Rounds:
    """Send half of what is left to add up, then a quarter, ...: `all_gather.bruck` backwards, with sums on the way.

    Each block goes up a tree of its own to its owner, and the trees' messages between two ranks are one, as in NCCL's
    parallel aggregated trees. Rounds: ceil(log2 p). Bytes sent: N less the own block. Best for many ranks.
    """
    for distance in reversed(distances(size)):
        count = min(distance, size - distance)
        give = tuple((rank + distance + i) % size for i in range(count))
        keep = tuple((rank + i) % size for i in range(count))
        yield Send((rank + distance) % size, give), Recv((rank - distance) % size, keep, combine=True)
