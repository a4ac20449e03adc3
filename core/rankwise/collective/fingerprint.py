"""What each rank is about to do, compared before anything moves.

Every derived collective begins with an exchange of 40-byte records among all ranks. If they agree, each rank also knows
how many elements every other contributes. If they do not, every rank knows that too: all exchange their calls in words,
and all raise the same `CollectiveMismatchError`, which names the odd one out.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Protocol

import numpy as np

from rankwise.basics.deadline import Deadline
from rankwise.basics.messages import FINGERPRINT_TAG
from rankwise.basics.systems import blake2b
from rankwise.collective.executor import PointToPoint
from rankwise.errors import CollectiveMismatchError

_RECORD = struct.Struct("<QQQQQ")
_MASK = (1 << 64) - 1


class Members(PointToPoint, Protocol):
    """The ranks that compare their calls."""

    @property
    def context(self) -> Any:
        """Whose `name` is the group's, and whose `global_ranks` are theirs, for errors."""


class OrdersDifferError(CollectiveMismatchError):
    """The ranks make the same call, on arrays of different memory orders: all make it again, in C order.

    All ranks raise it, and no program sees it.
    """


@dataclass(frozen=True)
class Fingerprint:
    """One rank's call of one collective.

    Attributes:
        op: Name of the collective.
        reduce_op: Name of the reduce op, if there is one.
        root: Group rank of the root, or -1.
        dtype: The dtype, byte order included.
        count: Number of elements that this rank contributes.
        parts: Number of elements of each part, where all ranks must have the same parts.
        sent: Number of elements to each rank, where each pair must agree for itself.
        received: Number of elements from each rank, likewise.
        shape: The array's shape, where all ranks must have the same; else None.
        order: The mark of the array's memory order, 0 for that of C. Where only that differs, all make the call again.
    """

    op: str
    reduce_op: str = ""
    root: int = -1
    dtype: str = ""
    count: int = 0
    parts: tuple[int, ...] = ()
    sent: tuple[tuple[int, int], ...] = ()
    received: tuple[tuple[int, int], ...] = ()
    shape: tuple[int, ...] | None = None
    order: int = 0

    def digest(self) -> int:
        """Return a hash of what must be the same on every rank."""
        # With parts, ranks may contribute different counts: either all know all parts, or each pair agrees for itself.
        count = -1 if self.shape is None else self.count
        order = (self.order,) if self.order else ()
        return _digest(self.op, self.reduce_op, self.root, self.dtype, count, self.parts, self.shape, *order)

    @staticmethod
    def digest_of(text: bytes) -> int:
        """Return the digest of a call whose fields `digest` writes like this; compiled code does too."""
        return int.from_bytes(blake2b(text, digest_size=8).digest(), "little")

    def record(self, rank: int, sequence: int) -> bytes:
        """Return what the ranks exchange: 40 bytes that tell whether they make the same call."""
        return _RECORD.pack(sequence, self.digest(), self.count, *self.sums(rank))

    def sums(self, rank: int) -> tuple[int, int]:
        """Return what stands for all counts that this rank sends, and receives: over all ranks both are the same."""
        if not self.sent and not self.received:  # as with most calls
            return 0, 0
        sent = sum(_pair(rank, peer, count) for peer, count in self.sent) & _MASK
        received = sum(_pair(peer, rank, count) for peer, count in self.received) & _MASK
        return sent, received


def same_call(records: Sequence[bytes]) -> bool:
    """Tell whether the records of all ranks belong to one call."""
    sequences, digests, _, sent, received = zip(*map(_RECORD.unpack, records), strict=True)
    return len(set(sequences)) == len(set(digests)) == 1 and sum(sent) & _MASK == sum(received) & _MASK


def counts(records: Sequence[bytes]) -> tuple[int, ...]:
    """Return how many elements each rank contributes."""
    return tuple(_RECORD.unpack(record)[2] for record in records)


def exchange(comm: Members, record: bytes, deadline: Deadline) -> list[bytes]:
    """Give all other ranks a record, and return the records of all, which have one length."""
    from rankwise.collective import derived  # which a backend with comparisons of its own need not load

    table = np.empty((comm.size, len(record)), np.uint8)
    table[comm.rank] = np.frombuffer(record, np.uint8)
    derived.all_gather(comm, list(table), table[comm.rank], deadline, tag=FINGERPRINT_TAG)
    return [row.tobytes() for row in table]


def _pair(source: int, target: int, count: int) -> int:
    """Mix one pair's count so that sums over all pairs are equal only if all pairs are."""
    mixed = (source * 0x9E3779B97F4A7C15 + target * 0xC2B2AE3D27D4EB4F + count * 0x165667B19E3779F9) & _MASK
    mixed = ((mixed ^ (mixed >> 31)) * 0xBF58476D1CE4E5B9) & _MASK
    return mixed ^ (mixed >> 29)


@lru_cache(maxsize=1024)
def _digest(*fields: Any) -> int:
    return Fingerprint.digest_of(repr(fields).encode())
