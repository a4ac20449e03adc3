"""The records of all ranks by one clock, and who came when to each collective."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from rankwise_tools.recordings.arrivals import CompleteCollective
from rankwise_tools.recordings.clocks import TOGETHER, Call, Clock, align
from rankwise_tools.recordings.messages import History, Message, Side, matched
from rankwise_tools.recordings.records import Operation, Record


@dataclass(frozen=True)
class Aligned:
    """Records whose times can be compared.

    Attributes:
        records: By rank.
        clocks: How each rank's times become those of the lowest rank's machine.
        shifts: What to add to each rank's times to have them since the first thing that any of them did.
        origin_ns: When that was, by the clock of the day.
    """

    records: Mapping[int, Record]
    clocks: Mapping[int, Clock]
    shifts: Mapping[int, int]
    origin_ns: int

    def meetings(self) -> dict[tuple[str, int], CompleteCollective]:
        """Return the collectives to which at least two ranks came, by group and number."""
        came: dict[tuple[str, int], dict[int, int]] = {}
        names: dict[tuple[str, int], str] = {}
        for rank, record in self.records.items():
            for op in record.operations:
                if not op.message:
                    key = op.group, op.number
                    came.setdefault(key, {})[rank] = op.began_ns + self.shifts[rank]
                    names.setdefault(key, op.op)
        return {key: CompleteCollective(names[key], key[1], times) for key, times in came.items() if len(times) > 1}

    def is_complete(self, key: tuple[str, int], meeting: CompleteCollective) -> bool:
        """Tell whether all members of its group are known to have come."""
        group = next(r.groups[key[0]] for r in self.records.values() if key[0] in r.groups)
        return set(meeting.came_ns) >= set(group.ranks)

    def messages(self) -> dict[str, list[Message]]:
        """Return the messages of which both sides are known, by group."""
        names = {name for record in self.records.values() for name in record.groups}
        return {name: matched({rank: self._history(rank, name) for rank in self.records}) for name in sorted(names)}

    def _history(self, rank: int, group: str) -> History:
        record, shift, error_ns = self.records[rank], self.shifts[rank], self.clocks[rank].error_ns
        sides = [_side(op, shift) for op in record.operations if op.message and op.group == group]
        return History(sides, record.written_ns + shift, _machine(record), error_ns)


def aligned(records: Mapping[int, Record]) -> Aligned:
    """Bring the times of all ranks to one clock."""
    machines = {rank: _machine(record) for rank, record in records.items()}
    days = {rank: record.clock_offset_ns for rank, record in records.items()}
    clocks = align(machines, {rank: _calls(record) for rank, record in records.items()}, days)
    began = (op.began_ns + clocks[rank].offset_ns for rank, record in records.items() for op in record.operations)
    origin = min(began, default=0)
    shifts = {rank: clock.offset_ns - origin for rank, clock in clocks.items()}
    return Aligned(records, clocks, shifts, origin + records[min(records)].clock_offset_ns)


def all_aligned(worlds: Sequence[Mapping[int, Record]]) -> list[Aligned]:
    """Bring the times of several worlds to one clock: that of the day, where they begin."""
    found = [aligned(records) for records in worlds]
    first = min(each.origin_ns for each in found)
    return [
        replace(each, origin_ns=first, shifts={r: ns + each.origin_ns - first for r, ns in each.shifts.items()})
        for each in found
    ]


def _machine(record: Record) -> str:
    """Return what tells a rank's clock from others."""
    return record.boot or record.host


def _side(op: Operation, shift_ns: int) -> Side:
    """Return what a rank did of a message."""
    ended_ns = op.ended_ns if op.state == "done" else 0
    asked_ns, ended_ns = (ns + shift_ns if ns else 0 for ns in (op.waits_from_ns, ended_ns))
    return Side(
        op.number,
        op.op,
        op.at[4:],
        None if op.state == "failed" else op.peer,
        op.tag,
        op.began_ns + shift_ns,
        asked_ns,
        ended_ns,
    )


def _calls(record: Record) -> list[Call]:
    """Return this rank's blocking calls of collectives that wait for all."""
    return [
        Call((op.group, op.number), op.began_ns, op.ended_ns)
        for op in record.operations
        if op.op in TOGETHER and not op.message and op.state == "done" and op.thread and op.ended_ns
    ]


def rows(record: Record) -> Iterator[tuple[str, Sequence[Operation]]]:
    """Yield rows of operations that do not overlap; most groups need one for collectives, and one for messages."""
    for name, group in record.groups.items():
        for message in (False, True):
            found: list[list[Operation]] = []
            for op in sorted(record.operations, key=lambda op: op.began_ns):
                if op.group == name and op.message == message:
                    free = next((row for row in found if end_of(row[-1], record) <= op.began_ns), None)
                    if free is None:
                        found.append(free := [])
                    free.append(op)
            title = f"{group.description}{', messages' if message else ''}"
            for index, row in enumerate(found):
                yield title if index == 0 else f"{title} ({index + 1})", row


def end_of(op: Operation, record: Record) -> int:
    """Return when an operation ended, or for one that never did, when that was written down."""
    return max(op.began_ns, op.ended_ns or record.written_ns)
