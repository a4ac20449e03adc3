"""The collectives that this backend carries out itself, as functions of a communicator, a call and a deadline.

They run one at a time and in the same order on all ranks, so one tag for each step suffices. Their messages are of a
kind of their own, which no receive of the program's ever sees.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np

from rankwise.backends import Call, Deadline

if TYPE_CHECKING:
    from rankwise_wire.communicator import WireCommunicator

_WHOLE, _PARTS, _RESULTS = range(3)


def broadcast(comm: WireCommunicator, call: Call, deadline: Deadline) -> None:
    """Pass the array down a binomial tree. Steps: ceil(log2 p)."""
    me = (comm.rank - call.root) % comm.size
    if me:
        parent = (me & (me - 1)) + call.root
        comm.end([(parent % comm.size, comm.receive_own(call.array, parent % comm.size, _WHOLE))], deadline)
    children = [(child + call.root) % comm.size for child in _children(me, comm.size)]
    comm.end([(child, comm.send_own(call.array, child, _WHOLE)) for child in children], deadline)


def _children(me: int, size: int) -> Iterator[int]:
    """Yield those that get it from a rank of the tree, the one with the most below it first."""
    lowest = me & -me or 1 << size.bit_length()
    bit = lowest >> 1
    while bit:
        if me + bit < size:
            yield me + bit
        bit >>= 1


# --8<-- [start:all_reduce]
def all_reduce(comm: WireCommunicator, call: Call, deadline: Deadline) -> None:
    """Let each rank reduce one part of the array, in the order of the ranks, so that all get the same bits.

    Steps: 2. Bytes: 2 n (p - 1) / p.
    """
    op, rank, size = call.reduce_op, comm.rank, comm.size
    assert op is not None
    total = op.accumulator(call.array)  # flat, scaled by this rank's factor, and perhaps of a wider dtype
    edges = [total.size * peer // size for peer in range(size + 1)]
    parts = [total[begin:end] for begin, end in pairwise(edges)]
    others = [peer for peer in range(size) if peer != rank]

    come = [np.empty_like(parts[rank]) for _ in range(size)]
    come[rank] = parts[rank]
    works = [(peer, comm.receive_own(come[peer], peer, _PARTS)) for peer in others]
    works += [(peer, comm.send_own(parts[peer], peer, _PARTS)) for peer in others]
    comm.end(works, deadline)

    result = come[0].copy()
    for contribution in come[1:]:
        op.merge(result, contribution, result)
    works = [(peer, comm.receive_own(parts[peer], peer, _RESULTS)) for peer in others]
    works += [(peer, comm.send_own(result, peer, _RESULTS)) for peer in others]
    parts[rank][...] = result
    comm.end(works, deadline)
    op.finish(total, call.array, size)  # divides by the size if it is AVG, and rounds to the array's dtype


# --8<-- [end:all_reduce]
