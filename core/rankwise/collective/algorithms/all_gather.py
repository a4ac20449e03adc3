"""all_gather: block i of every rank ends up as block i of rank i. p ranks, N bytes in p blocks, of any sizes."""

from __future__ import annotations

from collections.abc import Iterator

from rankwise.collective.algorithms.steps import Recv, Rounds, Send, distances, one

__all__ = ["bruck", "direct", "open_bruck", "open_ring", "ring"]


def ring(rank: int, size: int) -> Iterator[tuple[Send, Recv]]:
    """Pass every block once around a ring.

    Rounds: p-1. Bytes sent: N less the right neighbour's block.
    """
    right, left = (rank + 1) % size, (rank - 1) % size
    for k in range(size - 1):
        yield Send(right, one(rank - k, size)), Recv(left, one(rank - k - 1, size))


def open_ring(rank: int, size: int, begin: int) -> Rounds:
    """Pass every block around a ring that ends before `begin`: that rank has all blocks, and may not write to them.

    Rounds: p-1. Bytes sent: as on a ring, but none to `begin`.
    """
    for send, receive in ring(rank, size):
        if rank == begin:
            yield (send,)
        elif (rank + 1) % size == begin:
            yield (receive,)
        else:
            yield send, receive


def direct(rank: int, size: int) -> Rounds:
    """Send the own block to everyone.

    Rounds: 1. Bytes sent: p-1 times the own block.
    """
    others = [(rank + k) % size for k in range(1, size)]
    if others:
        mine = one(rank, size)
        yield (*(Send(other, mine) for other in others), *(Recv(other, one(other, size)) for other in others))


def bruck(rank: int, size: int) -> Iterator[tuple[Send, Recv]]:
    """Send all that is there to ranks at distances 1, 2, 4, ...

    Rounds: ceil(log2 p). Bytes sent: p-1 blocks. Best for small N.
    """
    for distance in distances(size):
        count = min(distance, size - distance)
        have = tuple((rank - i) % size for i in range(count))
        come = tuple((rank - distance - i) % size for i in range(count))
        yield Send((rank + distance) % size, have), Recv((rank - distance) % size, come)


def open_bruck(rank: int, size: int, begin: int) -> Rounds:
    """Do as `bruck` does, but send nothing to `begin`: that rank has all blocks, and may not write to them.

    Rounds: ceil(log2 p). Bytes sent: at most p-1 blocks.
    """
    for send, receive in bruck(rank, size):
        steps = (send,) if rank == begin else (receive,) if send.to == begin else (send, receive)
        yield steps
