"""scatter: block i of rank i ends up as block i of the root; other blocks are scratch. p ranks, N bytes in p blocks."""

from __future__ import annotations

from rankwise.collective.algorithms.steps import Recv, Rounds, Send, one
from rankwise.collective.algorithms.trees import binomial_children, binomial_parent, subtree

__all__ = ["binomial", "flat"]


def flat(rank: int, size: int, root: int) -> Rounds:
    """Let the root send each block to its owner.

    Rounds: 1. Bytes sent: N less the root's block, by the root.
    """
    if rank != root:
        yield (Recv(root, one(rank, size)),)
    elif size > 1:
        yield tuple(Send((root + k) % size, one(root + k, size)) for k in range(1, size))


def binomial(rank: int, size: int, root: int) -> Rounds:
    """Send along a tree the blocks of whole subtrees.

    Rounds: at most ceil(log2 p). Bytes sent: to each child the blocks of its subtree.
    """
    parent = binomial_parent(rank, size, root)
    if parent is not None:
        yield (Recv(parent, subtree(rank, size, root)),)
    for child, below in binomial_children(rank, size, root):
        yield (Send(child, below),)
