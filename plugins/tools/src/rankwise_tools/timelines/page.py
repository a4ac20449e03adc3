"""The timeline as one page that any browser opens from the disk: nothing is installed, and nothing is fetched."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from importlib.resources import files
from typing import Any

from rankwise_tools.recordings.clocks import Clock
from rankwise_tools.recordings.records import Operation, Record
from rankwise_tools.timelines.aligned import Aligned, all_aligned, end_of, rows
from rankwise_tools.timelines.perfetto import describe
from rankwise_tools.timelines.waiting import sentences, waiting


def page(*worlds: Mapping[int, Record]) -> str:
    """Return the page, with the ranks of all worlds."""
    drawn = [_World(found, number) for number, found in enumerate(all_aligned(worlds))]
    whole = {
        "ranks": [rank for world in drawn for rank in world.ranks()],
        "late": [sentence for world in drawn for sentence in sentences(world.found, world.waited)],
        "held": [wait for world in drawn for wait in world.held()],
    }
    data = json.dumps(whole, separators=(",", ":"), allow_nan=False)
    template = files(__package__).joinpath("page.html").read_text(encoding="utf-8")
    # Within a script "</" would end it, and what files say is not trusted.
    return template.replace("/*DATA*/null", data.replace("<", "\\u003c"))


def _title(record: Record, clock: Clock) -> str:
    whose = f" of {record.outside}" if record.outside else ""
    doubt = "" if clock.error_ns == 0 else f" (clock {describe(clock)})"
    return f"rank {record.rank}{whose}{doubt}"


class _World:
    """One world as it is drawn."""

    def __init__(self, found: Aligned, number: int) -> None:
        self.found, self.number, self.waited = found, number, waiting(found)

    def ranks(self) -> Iterator[dict[str, Any]]:
        """Yield each rank, with its operations in rows."""
        for rank, record in sorted(self.found.records.items()):
            drawn = [{"title": name, "ops": [self._op(op, record) for op in row]} for name, row in rows(record)]
            host, key = f"{record.host}, pid {record.pid}", f"{self.number} {rank}"
            title = _title(record, self.found.clocks[rank])
            yield {"rank": rank, "key": key, "title": title, "host": host, "rows": drawn}

    def held(self) -> Iterator[list[Any]]:
        """Yield for each wait for a message who was the cause, when it began and ended, and for how much of it."""
        for held in self.waited.held.values():
            for each in held:
                delay = each.delay
                yield [f"{self.number} {each.cause}", delay.from_ns / 1e3, delay.to_ns / 1e3, each.ns / 1e3]

    def _op(self, op: Operation, record: Record) -> list[Any]:
        """Return an operation: what it is, number, times in us, how long it waited, where, bytes, state, more, group.

        Then since when after its beginning it waited, and what the two sides of a message have in common.
        """
        began_ns, took_ns = op.began_ns + self.found.shifts[record.rank], end_of(op, record) - op.began_ns
        waited_ns, since_ns = (self._of_message if op.message else self._of_collective)(op, record.rank)
        more = op.error
        if op.message:
            more = f"{'from' if 'recv' in op.op else 'to'} {'anyone' if op.peer is None else f'rank {op.peer}'} {more}"
        dtype = f" of {op.dtype}" if op.dtype else ""
        return [
            *(op.op, op.number, began_ns / 1e3, took_ns / 1e3, waited_ns / 1e3),
            *(f"{op.file}:{op.line} in {op.function}" if op.file else "", f"{op.nbytes} bytes{dtype}", op.state, more),
            *("" if op.message else f"{self.number} {op.group}", min(since_ns, took_ns) / 1e3),
            self._link(op, record.rank) if op.message else "",
        ]

    def _of_collective(self, op: Operation, rank: int) -> tuple[int, int]:
        meeting = self.waited.met.get((op.group, op.number))
        return (0 if meeting is None else meeting.complete_ns - meeting.came_ns[rank]), 0

    def _of_message(self, op: Operation, rank: int) -> tuple[int, int]:
        since_ns = op.waits_from_ns - op.began_ns if op.waits_from_ns else (1 << 62)
        delay = self.waited.delays.get((op.group, rank, op.number))
        return (0 if delay is None else delay.to_ns - delay.from_ns), since_ns

    def _link(self, op: Operation, rank: int) -> str:
        place = self.waited.links.get((op.group, rank, op.number))
        return "" if place is None else f"{self.number} {op.group} {place}"
