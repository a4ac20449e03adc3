"""gather: block i of the root ends up as block i of rank i; other ranks' other blocks are scratch.

p ranks, N bytes in p blocks, which may differ in size.
"""

from __future__ import annotations

from rankwise.collective.algorithms.steps import Recv, Rounds, Send, one
from rankwise.collective.algorithms.trees import binomial_children, binomial_parent, subtree

__all__ = ["binomial", "flat"]


def flat(rank: int, size: int, root: int) -> Rounds:
    """Let everyone send to the root.

    Rounds: 1. Bytes sent: the own block.
    """
    if rank != root:
        yield (Send(root, one(rank, size)),)
    elif size > 1:
        yield tuple(Recv((root + k) % size, one(root + k, size)) for k in range(1, size))


def binomial(rank: int, size: int, root: int) -> Rounds:
    """Send along a tree the blocks of whole subtrees.

    Rounds: at most ceil(log2 p). Bytes sent: the blocks of the own subtree.
    """
    for child, below in reversed(list(binomial_children(rank, size, root))):
        yield (Recv(child, below),)
    parent = binomial_parent(rank, size, root)
    if parent is not None:
        yield (Send(parent, subtree(rank, size, root)),)
