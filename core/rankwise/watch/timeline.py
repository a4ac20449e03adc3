"""The records of all ranks as one timeline, in the trace-event format that Perfetto and chrome://tracing open."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from statistics import median
from typing import Any

from rankwise.watch.records import Operation, Record

__all__ = ["shifts", "timeline"]

#: Collectives that no rank leaves before all have come, so that they end everywhere at about one time.
_TOGETHER = ("barrier", "all_reduce", "all_gather", "all_to_all", "reduce_scatter")


def timeline(*worlds: Mapping[int, Record]) -> dict[str, Any]:
    """Return what a trace viewer opens: a process for each rank of each world, in it threads for each group."""
    shifted = [(shifts(records), records) for records in worlds]
    starts = [op.began_ns + shift[rank] for shift, told in shifted for rank, r in told.items() for op in r.operations]
    origin = min(starts, default=0)
    events: list[dict[str, Any]] = []
    first = 0
    for shift, records in shifted:
        for rank, record in sorted(records.items()):
            events += _process(first + rank, record, shift[rank] - origin)
        first += 1 + max(records)
    return {"traceEvents": events, "displayTimeUnit": "ms", "otherData": {"origin_ns": str(origin)}}


def _process(number: int, record: Record, shift_ns: int) -> Iterator[dict[str, Any]]:
    where = f"{record.host}, pid {record.pid}"
    name = f"rank {record.rank} of {record.outside} ({where})" if record.outside else f"rank {record.rank} ({where})"
    yield _meta("process_name", number, 0, name=name)
    yield _meta("process_sort_index", number, 0, sort_index=number)
    for thread, (title, row) in enumerate(_rows(record)):
        yield _meta("thread_name", number, thread, name=title)
        yield _meta("thread_sort_index", number, thread, sort_index=thread)
        for op in row:
            yield {**_event(op, record, thread, shift_ns), "pid": number}


def shifts(records: Mapping[int, Record]) -> dict[int, int]:
    """Return what to add to each rank's times, in ns, to have them by one clock: that of the lowest rank.

    Ranks on one machine share a clock. Others are shifted such that what ends together ends at one time.
    """
    first = records[min(records)]
    known: dict[str, int] = {first.boot or first.host: first.clock_offset_ns}
    ends = _ends(first)
    for _, record in sorted(records.items()):
        machine = record.boot or record.host
        if machine not in known:
            apart = [ends[key] + first.clock_offset_ns - end for key, end in _ends(record).items() if key in ends]
            known[machine] = int(median(apart)) if apart else record.clock_offset_ns
    return {rank: known[record.boot or record.host] for rank, record in records.items()}


def _ends(record: Record) -> dict[tuple[str, int], int]:
    """Return when this rank's blocking, common collectives ended."""
    return {
        (op.group, op.number): op.ended_ns
        for op in record.operations
        if op.op in _TOGETHER and op.state == "done" and op.thread
    }


def _rows(record: Record) -> Iterator[tuple[str, Sequence[Operation]]]:
    """Yield rows of operations that do not overlap; most groups need one for collectives, and one for messages."""
    for name, group in record.groups.items():
        for message in (False, True):
            rows: list[list[Operation]] = []
            for op in sorted(record.operations, key=lambda op: op.began_ns):
                if op.group == name and op.message == message:
                    free = next((row for row in rows if _end(row[-1], record) <= op.began_ns), None)
                    if free is None:
                        rows.append(free := [])
                    free.append(op)
            title = f"{group.description}{', messages' if message else ''}"
            for index, row in enumerate(rows):
                yield title if index == 0 else f"{title} ({index + 1})", row


def _end(op: Operation, record: Record) -> int:
    """Return when an operation ended, or for one that never did, when that was written down."""
    return max(op.began_ns, op.ended_ns or record.written_ns)


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
        "dur": (_end(op, record) - op.began_ns) / 1e3,
        "tid": thread,
        "args": told,
    }


def _meta(what: str, process: int, thread: int, **told: Any) -> dict[str, Any]:
    return {"name": what, "ph": "M", "pid": process, "tid": thread, "args": told}
