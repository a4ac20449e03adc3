"""`CallMark`: what a rank shows the others of its call of a collective, so that they can tell whether it is theirs.

It is made of the core's fingerprint once for each kind of call, and looked up after that.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np

from rankwise.backends import Array, Fingerprint, ReduceOp, dtype_text

#: Words have 64 bits.
WORD_MASK = (1 << 64) - 1

_Sizes = tuple[int, ...]
_NO_SIZES: _Sizes = ()


class CallMark(NamedTuple):
    """One rank's call.

    Attributes:
        word: A hash of all that must be the same on every rank.
        balance: What this rank sends less what it receives, by hashes of each pair's count: zero over all ranks.
        paired: Whether each pair of ranks agrees about a count of its own, so that the balance matters.
        fingerprint: The call in full.
    """

    word: int
    balance: int
    paired: bool
    fingerprint: Fingerprint


def uniform(op: str, array: Array, reduce_op: ReduceOp | None = None, root: int = -1) -> CallMark:
    """Return the mark of a call for which all ranks have arrays of one shape."""
    return _uniform(op, reduce_op.name if reduce_op is not None else "", root, array.dtype, array.shape)


def parted(op: str, dtype: np.dtype[Any], parts: Sequence[Array], reduce_op: ReduceOp | None = None) -> CallMark:
    """Return the mark of a call for which all ranks have the same parts."""
    return _parted(op, reduce_op.name if reduce_op is not None else "", dtype, tuple([part.size for part in parts]))


def pairwise(
    op: str,
    dtype: np.dtype[Any],
    rank: int,
    sent: Sequence[Array] | None = None,
    received: Sequence[Array] | None = None,
    root: int = -1,
    own: int = 0,
) -> CallMark:
    """Return the mark of a call for which each pair of ranks agrees for itself.

    Args:
        op: The operation.
        dtype: The dtype of all arrays.
        rank: This process's rank in the group.
        sent: What goes to each rank, if anything does.
        received: What comes from each rank, if anything does.
        root: The root, where there is one.
        own: The size of what this rank exchanges with the root.
    """
    sizes_sent = None if sent is None else tuple([part.size for part in sent])
    sizes_received = None if received is None else tuple([part.size for part in received])
    return _pairwise(op, root, dtype, rank, sizes_sent, sizes_received, own)


@lru_cache(maxsize=1024)
def _uniform(op: str, reduce_op: str, root: int, dtype: np.dtype[Any], shape: _Sizes) -> CallMark:
    count = int(np.prod(shape, dtype=object))
    return _mark(Fingerprint(op, reduce_op, root, dtype_text(dtype), count, shape=shape))


@lru_cache(maxsize=1024)
def _parted(op: str, reduce_op: str, dtype: np.dtype[Any], sizes: _Sizes) -> CallMark:
    return _mark(Fingerprint(op, reduce_op, dtype=dtype_text(dtype), parts=sizes))


@lru_cache(maxsize=1024)
def _pairwise(
    op: str, root: int, dtype: np.dtype[Any], rank: int, sent: _Sizes | None, received: _Sizes | None, own: int
) -> CallMark:
    to = ((root, own),) if op == "gather" else _numbered(sent)
    of = ((root, own),) if op == "scatter" else _numbered(received)
    call = Fingerprint(op, root=root, dtype=dtype_text(dtype), sent=to, received=of)
    all_sent, all_received = call.sums(rank)
    return _mark(call, (all_sent - all_received) & WORD_MASK, paired=True)


def _numbered(sizes: _Sizes | None) -> tuple[tuple[int, int], ...]:
    return tuple(enumerate(sizes or _NO_SIZES))


def _mark(call: Fingerprint, balance: int = 0, paired: bool = False) -> CallMark:
    return CallMark(call.digest() & WORD_MASK, balance, paired, call)


#: All barriers are the same.
BARRIER = _mark(Fingerprint("barrier"))
