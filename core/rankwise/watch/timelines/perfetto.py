"""The timeline in the trace-event format that Perfetto and chrome://tracing open.

Each rank is a process, with rows for its groups. Arrows join one collective across ranks, in the order in which they
came: the last arrow ends at the rank that the others waited for.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from rankwise.watch.arrivals import Meeting
from rankwise.watch.clocks import TOGETHER, Clock
from rankwise.watch.records import Operation, Record
from rankwise.watch.timelines.aligned import Aligned, aligned, end_of, rows

__all__ = ["describe", "timeline"]


def timeline(records: Mapping[int, Record]) -> dict[str, Any]:
    """Return what a trace viewer opens."""
    found = aligned(records)
    met = found.meetings()
    events: list[dict[str, Any]] = []
    #: Where each rank's part of a collective is drawn.
    places: dict[tuple[str, int], dict[int, tuple[int, float]]] = {}
    for rank, record in sorted(records.items()):
        events.append(_meta("process_name", rank, 0, name=_name(record, found.clocks[rank])))
        events.append(_meta("process_sort_index", rank, 0, sort_index=rank))
        for thread, (title, row) in enumerate(rows(record)):
            events.append(_meta("thread_name", rank, thread, name=title))
            events.append(_meta("thread_sort_index", rank, thread, sort_index=thread))
            for op in row:
                key = op.group, op.number
                event = _event(op, record, thread, found.shifts[rank])
                if not op.message and key in met:
                    event["args"].update(_waits(found, key, met[key], rank))
                    places.setdefault(key, {})[rank] = thread, event["ts"]
                events.append(event)
    for number, (key, meeting) in enumerate(sorted(met.items()), 1):
        events += _arrows(number, meeting, places[key])
    told = {"origin_ns": str(found.origin_ns), "clocks": _clocks(found)}
    return {"traceEvents": events, "displayTimeUnit": "ms", "otherData": told}


def _arrows(number: int, meeting: Meeting, places: Mapping[int, tuple[int, float]]) -> Iterator[dict[str, Any]]:
    """Yield a chain from the first rank that came to the last."""
    order = sorted(places, key=lambda rank: (places[rank][1], rank))
    for index, rank in enumerate(order):
        thread, ts = places[rank]
        phase = "s" if index == 0 else "f" if index == len(order) - 1 else "t"
        told = {"name": meeting.op, "cat": "together", "ph": phase, "id": number, "ts": ts, "pid": rank, "tid": thread}
        yield {**told, "bp": "e"} if phase == "f" else told


def _waits(found: Aligned, key: tuple[str, int], meeting: Meeting, rank: int) -> dict[str, Any]:
    """Return for how long a rank waited for the last one, where that is how the collective works."""
    if meeting.op not in TOGETHER or not found.is_complete(key, meeting):
        return {}
    last = max(meeting.came_ns, key=lambda each: meeting.came_ns[each])
    return {"last": f"rank {last}", "waited_ms": (meeting.complete_ns - meeting.came_ns[rank]) / 1e6}


def _event(op: Operation, record: Record, thread: int, shift_ns: int) -> dict[str, Any]:
    told: dict[str, Any] = {"number": op.number, "nbytes": op.nbytes, "dtype": op.dtype, "state": op.state}
    if op.file:
        told["at"] = f"{op.file}:{op.line} in {op.function}"
    if op.message:
        told["peer"], told["tag"] = op.peer, op.tag
    if op.error or (op.state == "failed" and record.groups[op.group].failure):
        told["error"] = op.error or record.groups[op.group].failure
    return {
        "name": f"{op.op} #{op.number}",
        "cat": "message" if op.message else "collective",
        "ph": "X",
        "ts": (op.began_ns + shift_ns) / 1e3,
        "dur": (end_of(op, record) - op.began_ns) / 1e3,
        "pid": record.rank,
        "tid": thread,
        "args": told,
    }


def _name(record: Record, clock: Clock) -> str:
    doubt = "" if clock.error_ns == 0 else f", clock {describe(clock)}"
    return f"rank {record.rank} ({record.host}, pid {record.pid}{doubt})"


def describe(clock: Clock) -> str:
    """Say how well a clock is known."""
    return "unknown" if clock.error_ns is None else f"+-{clock.error_ns / 1e3:.0f} us"


def _clocks(found: Aligned) -> dict[str, str]:
    return {found.records[rank].host: describe(clock) for rank, clock in sorted(found.clocks.items(), reverse=True)}


def _meta(what: str, rank: int, thread: int, **told: Any) -> dict[str, Any]:
    return {"name": what, "ph": "M", "pid": rank, "tid": thread, "args": told}
