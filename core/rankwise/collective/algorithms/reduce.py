"""reduce: every block of the root ends up as the reduction over all ranks; those of others are scratch."""

from __future__ import annotations

from rankwise.collective.algorithms import gather, reduce_scatter
from rankwise.collective.algorithms.steps import Recv, Rounds, Send
from rankwise.collective.algorithms.trees import binomial_children, binomial_parent

__all__ = ["binomial", "pat_gather", "scatter_gather"]


def binomial(rank: int, size: int, root: int) -> Rounds:
    """Combine along a tree.

    Rounds: at most ceil(log2 p). Bytes sent: N. Best for small N.
    """
    everything = range(size)
    for child, _ in reversed(list(binomial_children(rank, size, root))):
        yield (Recv(child, everything, combine=True),)
    parent = binomial_parent(rank, size, root)
    if parent is not None:
        yield (Send(parent, everything),)


def scatter_gather(rank: int, size: int, root: int) -> Rounds:
    """Reduce each block at its owner, then gather the blocks at the root.

    Rounds: at most 1 + ceil(log2 p). Bytes sent: about N. Best for large N.
    """
    yield from reduce_scatter.direct(rank, size)
    yield from gather.binomial(rank, size, root)


def pat_gather(rank: int, size: int, root: int) -> Rounds:
    """Reduce each block on the way up a tree of its own to its owner, then gather the blocks at the root.

    Rounds: at most 2 ceil(log2 p). Bytes sent: about 2N. Best for large N and many ranks.
    """
    yield from reduce_scatter.pat(rank, size)
    yield from gather.binomial(rank, size, root)
