"""broadcast: every block of every rank ends up as the root's. p ranks, N bytes in p blocks."""

from __future__ import annotations

from rankwise.collective.algorithms import all_gather, scatter
from rankwise.collective.algorithms.steps import Recv, Rounds, Send
from rankwise.collective.algorithms.trees import binomial_children, binomial_parent

__all__ = ["binomial", "flat", "scatter_bruck", "scatter_ring"]


def flat(rank: int, size: int, root: int) -> Rounds:
    """Let the root send to everyone.

    Rounds: 1. Bytes sent: (p-1) N by the root.
    """
    everything = range(size)
    if rank != root:
        yield (Recv(root, everything),)
    elif size > 1:
        yield tuple(Send((root + k) % size, everything) for k in range(1, size))


def binomial(rank: int, size: int, root: int) -> Rounds:
    """Send along a tree in which each rank that has the data sends to one that has not.

    Rounds: at most ceil(log2 p). Bytes sent: N to each child, of which the root has ceil(log2 p).
    """
    everything = range(size)
    parent = binomial_parent(rank, size, root)
    if parent is not None:
        yield (Recv(parent, everything),)
    for child, _ in binomial_children(rank, size, root):
        yield (Send(child, everything),)


def scatter_ring(rank: int, size: int, root: int) -> Rounds:
    """Scatter the blocks along a tree, then pass them around a ring (van de Geijn), which ends before the root.

    Rounds: at most ceil(log2 p) + p-1. Bytes sent: about 2N by the root, N by others, but nothing by the rank before
    the root, which has all blocks already. Best for large N.
    """
    yield from scatter.binomial(rank, size, root)
    yield from all_gather.open_ring(rank, size, root)


def scatter_bruck(rank: int, size: int, root: int) -> Rounds:
    """Scatter the blocks along a tree, then let each rank send all that it has to ranks at distances 1, 2, 4, ...

    Rounds: at most 2 ceil(log2 p). Bytes sent: about 2N by the root, N by others. Best for many ranks.
    """
    yield from scatter.binomial(rank, size, root)
    yield from all_gather.open_bruck(rank, size, root)
