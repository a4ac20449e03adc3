"""all_to_all: block j of rank i goes to rank j, where it is block i of the output. Blocks may differ in size.

The only family with two buffers: a send names a block of the input, a receive one of the output.
"""

from __future__ import annotations

from rankwise.collective.algorithms.steps import Recv, Rounds, Send, one

__all__ = ["direct", "pairwise"]


def direct(rank: int, size: int) -> Rounds:
    """Exchange with all others at the same time.

    Rounds: 1. Bytes sent: the input less the own block. Best for few ranks or small blocks.
    """
    if size > 1:
        targets = [(rank + k) % size for k in range(1, size)]
        sources = [(rank - k) % size for k in range(1, size)]
        yield (*(Send(t, one(t, size)) for t in targets), *(Recv(s, one(s, size)) for s in sources))


def pairwise(rank: int, size: int) -> Rounds:
    """Exchange with one other at a time, at rising distances.

    Rounds: p-1. Bytes sent: the input less the own block. In a round no rank is sent to by two.
    """
    for k in range(1, size):
        target, source = (rank + k) % size, (rank - k) % size
        yield Send(target, one(target, size)), Recv(source, one(source, size))
