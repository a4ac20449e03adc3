"""Comparing the calls of all ranks; if they differ, the ranks exchange them in words, and each finds the odd ones."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from dataclasses import asdict, replace
from types import FrameType
from typing import Any

from rankwise.basics.arrays import plain_text
from rankwise.basics.deadline import Deadline
from rankwise.basics.tracebacks import is_skipped
from rankwise.collective.fingerprint import Fingerprint, Members, OrdersDifferError, counts, exchange, same_call
from rankwise.errors import CollectiveMismatchError

#: Names of modules of ours and of our plugins begin so; a frame of theirs is not the program's.
_OURS = ("rankwise.", "rankwise_")


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
