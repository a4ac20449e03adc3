"""What each rank is about to do, compared before anything moves.

Every derived collective begins with an exchange of 40-byte records among all ranks. If they agree, each rank also knows
how many elements every other contributes. If they do not, every rank knows that too: all exchange their calls in words,
and all raise the same `CollectiveMismatchError`, which names the odd one out.
"""

from __future__ import annotations

import os
import struct
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from functools import lru_cache
from types import FrameType
from typing import Any, Protocol

import numpy as np

from rankwise.basics.arrays import plain_text
from rankwise.basics.deadline import Deadline
from rankwise.basics.messages import FINGERPRINT_TAG
from rankwise.basics.systems import blake2b
from rankwise.basics.tracebacks import is_skipped
from rankwise.collective.executor import PointToPoint
from rankwise.errors import CollectiveMismatchError

_RECORD = struct.Struct("<QQQQQ")
_MASK = (1 << 64) - 1
#: Names of modules of ours and of our plugins begin so; a frame of theirs is not the program's.
_OURS = ("rankwise.", "rankwise_")


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


# The calls of all ranks, compared; if they differ, exchanged in words, in which each rank finds the odd ones


def agree(comm: Members, mine: Fingerprint, sequence: int, deadline: Deadline) -> tuple[int, ...]:
    """Compare this call with those of all other ranks, and return how many elements each of them contributes.

    Steps: ceil(log2 p). Bytes: 40 (p - 1).

    Raises:
        CollectiveMismatchError: They are not the same call; every rank raises this, and nothing has moved. It
            is an `OrdersDifferError` if they differ in the memory order alone.
    """
    if comm.size == 1:
        return (mine.count,)
    records = exchange(comm, mine.record(comm.rank, sequence), deadline)
    if not same_call(records):
        raise mismatch(comm, mine, sequence, deadline)
    return counts(records)


def mismatch(comm: Members, mine: Fingerprint, sequence: int, deadline: Deadline) -> CollectiveMismatchError:
    """Exchange the calls in words, and return the error that all ranks are to raise; all must call this."""
    import json  # which few programs need

    words = json.dumps({**asdict(mine), "sequence": sequence, "at": _call_site()}).encode()
    # All ranks must send the same number of bytes, and a rank may have a count for each of its peers.
    room = 1024 + 64 * comm.size
    calls = [json.loads(row.rstrip(b"\0")) for row in exchange(comm, words[:room].ljust(room, b"\0"), deadline)]
    return error_of(calls, comm.context.global_ranks, comm.context.name)


def error_of(calls: list[dict[str, Any]], names: tuple[int, ...], group: str) -> CollectiveMismatchError:
    """Turn everyone's calls into the one error that everyone raises."""
    alike: dict[Any, list[int]] = {}
    for rank, call in enumerate(calls):
        alike.setdefault((call["sequence"], replace(_said(call), order=0).digest()), []).append(rank)
    if len(alike) == 1:
        if len({call["order"] for call in calls}) > 1:
            return OrdersDifferError(f"the ranks of group {group!r} have arrays of different memory orders")
        return _error_of_pairs(calls, names, group)
    camps = sorted(alike.values(), key=len, reverse=True)
    majority = camps[0] if len(camps[0]) > len(camps[1]) else []
    odd = sorted(rank for camp in camps if camp is not majority for rank in camp)
    told = [f"{_who(camp, names)} called {_words(calls[camp[0]])}" for camp in reversed(camps)]
    return CollectiveMismatchError(
        f"the ranks of group {group!r} did not make the same call:\n  " + "\n  ".join(told),
        tuple(names[rank] for rank in odd),
    )


def described(call: Fingerprint) -> str:
    """Return a call as errors name it."""
    about = [call.reduce_op, call.dtype, f"root={call.root}" if call.root >= 0 else ""]
    if call.parts:
        about.append(f"parts of {_numbers(call.parts)} elements")
    elif call.shape is not None:
        about.append(f"shape {call.shape}")
    return f"{call.op}({', '.join(word for word in about if word)})"


def _error_of_pairs(calls: list[dict[str, Any]], names: tuple[int, ...], group: str) -> CollectiveMismatchError:
    wrong, odd = [], set()
    sent = {(i, peer): count for i, call in enumerate(calls) for peer, count in call["sent"]}
    received = {(peer, i): count for i, call in enumerate(calls) for peer, count in call["received"]}
    for pair in sorted(set(sent) | set(received)):
        if sent.get(pair) != received.get(pair):
            source, target = pair
            wrong.append(
                f"rank {names[source]} sends {sent.get(pair, 'no')} elements to rank {names[target]}, "
                f"which expects {received.get(pair, 'no')}"
            )
            odd |= {rank for rank in pair if rank != calls[0]["root"]} or {source}
    op = calls[0]["op"]
    return CollectiveMismatchError(
        f"the parts of {op}, collective number {calls[0]['sequence']}, on group {group!r} do not fit:\n  "
        + "\n  ".join(wrong),
        tuple(sorted(names[rank] for rank in odd)),
    )


def _said(call: dict[str, Any]) -> Fingerprint:
    fields = {key: value for key, value in call.items() if key not in ("sequence", "at")}
    lists = {key: tuple(map(tuple, fields[key])) for key in ("sent", "received")}
    shape = None if fields["shape"] is None else tuple(fields["shape"])
    return Fingerprint(**{**fields, **lists, "parts": tuple(fields["parts"]), "shape": shape})


def _words(call: dict[str, Any]) -> str:
    where = f" at {call['at']}" if call["at"] else ""
    return f"{described(_said(call))}{where}, its collective number {call['sequence']}"


def _who(camp: list[int], names: tuple[int, ...]) -> str:
    return f"rank{'s' * (len(camp) > 1)} {_numbers([names[rank] for rank in camp])}"


def _numbers(numbers: Sequence[int]) -> str:
    shown = ", ".join(map(str, numbers[:16]))
    return shown + (f", ... ({len(numbers)} in all)" if len(numbers) > 16 else "")


def _call_site() -> str:
    """Return file and line of the program's own call, or nothing on a thread of ours."""
    frame = sys._getframe()
    while frame.f_back is not None and _is_ours(frame):
        frame = frame.f_back
    name = os.path.basename(frame.f_code.co_filename)
    return "" if name == "threading.py" else f"{plain_text(name[-100:])}:{frame.f_lineno}"


def _is_ours(frame: FrameType) -> bool:
    return f"{frame.f_globals.get('__name__')}.".startswith(_OURS) or is_skipped(frame.f_code.co_filename)
