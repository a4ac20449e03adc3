"""The timeline in the trace-event format that Perfetto opens.

Each rank is a process, with rows for its groups. Arrows join one collective across ranks, in the order in which they
came: the last arrow ends at the rank that the others waited for. An arrow leads from each send to its receive.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from rankwise_tools.recordings.arrivals import CompleteCollective
from rankwise_tools.recordings.clocks import TOGETHER, Clock
from rankwise_tools.recordings.messages import Message
from rankwise_tools.recordings.records import Operation, Record
from rankwise_tools.timelines.aligned import Aligned, all_aligned, end_of, rows
from rankwise_tools.timelines.waiting import Waiting, waiting


def timeline(*worlds: Mapping[int, Record]) -> dict[str, Any]:
    """Return what a trace viewer opens: a process for each rank of each world."""
    events: list[dict[str, Any]] = []
    clocks: dict[str, str] = {}
    first, arrow = 0, 1
    found = all_aligned(worlds)
    for each in found:
        met, waited = each.meetings(), waiting(each)
        drawn = _World(each, first, met, waited)
        for _, record in sorted(each.records.items()):
            events += drawn.process(record)
        for number, (key, meeting) in enumerate(sorted(met.items()), arrow):
            events += _arrows(number, meeting, drawn.places[key])
        arrow += len(met)
        sent = [(name, message) for name, messages in waited.messages.items() for message in messages]
        for number, (name, message) in enumerate(sent, arrow):
            events += drawn.sent(number, name, message)
        clocks.update(_clocks(each))
        first, arrow = first + 1 + max(each.records), arrow + len(sent)
    told = {"origin_ns": str(found[0].origin_ns), "clocks": clocks}
    return {"traceEvents": events, "displayTimeUnit": "ms", "otherData": told}


class _World:
    """One world as it is drawn: its processes' numbers begin with `first`."""

    def __init__(
        self, found: Aligned, first: int, met: Mapping[tuple[str, int], CompleteCollective], waited: Waiting
    ) -> None:
        self._found, self._first, self._met, self._waited = found, first, met, waited
        #: For each collective, where it is drawn: process, thread and time.
        self.places: dict[tuple[str, int], list[tuple[float, int, int]]] = {}
        #: For each side of a message, by group, rank and number, on which thread.
        self._threads: dict[tuple[str, int, int], int] = {}

    def process(self, record: Record) -> Iterator[dict[str, Any]]:
        """Yield what there is of one rank."""
        number = self._first + record.rank
        yield _meta("process_name", number, 0, name=_name(record, self._found.clocks[record.rank]))
        yield _meta("process_sort_index", number, 0, sort_index=number)
        for thread, (title, row) in enumerate(rows(record)):
            yield _meta("thread_name", number, thread, name=title)
            yield _meta("thread_sort_index", number, thread, sort_index=thread)
            for op in row:
                yield self._box(op, record, number, thread)

    def _box(self, op: Operation, record: Record, number: int, thread: int) -> dict[str, Any]:
        key = op.group, op.number
        event = {**_event(op, record, self._found.shifts[record.rank]), "pid": number, "tid": thread}
        if not op.message and key in self._met:
            event["args"].update(_waits(self._found, key, self._met[key], record.rank))
            self.places.setdefault(key, []).append((event["ts"], number, thread))
        if op.message:
            self._threads[op.group, record.rank, op.number] = thread
            event["args"].update(self._waits(op, record.rank))
        return event

    def _waits(self, op: Operation, rank: int) -> dict[str, Any]:
        """Return for how long a rank waited for the other side of a message."""
        delay = self._waited.delays.get((op.group, rank, op.number))
        return {} if delay is None else {"waited_ms": (delay.to_ns - delay.from_ns) / 1e6}

    def sent(self, number: int, group: str, message: Message) -> Iterator[dict[str, Any]]:
        """Yield the arrow of a message, to when it was both sent and asked for; nothing where clocks contradict it."""
        source, target, send, receive = message.source, message.target, message.send, message.receive
        there_ns = max(send.began_ns, receive.began_ns)
        if source == target or there_ns >= receive.ended_ns:
            return
        for phase, rank, side, ns in (("s", source, send, send.began_ns), ("f", target, receive, there_ns)):
            place = {"pid": self._first + rank, "tid": self._threads[group, rank, side.number]}
            told = {"name": "message", "cat": "sent", "ph": phase, "id": number, "ts": ns / 1e3}
            yield {**told, **place, **({"bp": "e"} if phase == "f" else {})}


def _arrows(number: int, meeting: CompleteCollective, places: list[tuple[float, int, int]]) -> Iterator[dict[str, Any]]:
    """Yield a chain from the first rank that came to the last."""
    for index, (ts, process, thread) in enumerate(sorted(places)):
        phase = "s" if index == 0 else "f" if index == len(places) - 1 else "t"
        told = {"name": meeting.op, "cat": "together", "ph": phase, "id": number, "ts": ts}
        yield {**told, "pid": process, "tid": thread, **({"bp": "e"} if phase == "f" else {})}


def _waits(found: Aligned, key: tuple[str, int], meeting: CompleteCollective, rank: int) -> dict[str, Any]:
    """Return for how long a rank waited for the last one, where that is how the collective works."""
    if meeting.op not in TOGETHER or not found.is_complete(key, meeting):
        return {}
    last = max(meeting.came_ns, key=lambda each: meeting.came_ns[each])
    return {"last": f"rank {last}", "waited_ms": (meeting.complete_ns - meeting.came_ns[rank]) / 1e6}


def _event(op: Operation, record: Record, shift_ns: int) -> dict[str, Any]:
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
        "args": told,
    }


def _name(record: Record, clock: Clock) -> str:
    doubt = "" if clock.error_ns == 0 else f", clock {describe(clock)}"
    whose = f" of {record.outside}" if record.outside else ""
    return f"rank {record.rank}{whose} ({record.host}, pid {record.pid}{doubt})"


def describe(clock: Clock) -> str:
    """Say how well a clock is known."""
    return "unknown" if clock.error_ns is None else f"+-{clock.error_ns / 1e3:.0f} us"


def _clocks(found: Aligned) -> dict[str, str]:
    return {found.records[rank].host: describe(clock) for rank, clock in sorted(found.clocks.items(), reverse=True)}


def _meta(what: str, rank: int, thread: int, **told: Any) -> dict[str, Any]:
    return {"name": what, "ph": "M", "pid": rank, "tid": thread, "args": told}
