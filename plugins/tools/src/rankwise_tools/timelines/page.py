"""The timeline as one page that any browser opens from the disk: nothing is installed, and nothing is fetched."""

from __future__ import annotations

import json
from collections.abc import Mapping
from importlib.resources import files
from typing import Any

from rankwise_tools.recordings.arrivals import CompleteCollective, lateness, latest
from rankwise_tools.recordings.clocks import TOGETHER, Clock
from rankwise_tools.recordings.records import Operation, Record
from rankwise_tools.timelines.aligned import Aligned, all_aligned, end_of, rows
from rankwise_tools.timelines.perfetto import describe

__all__ = ["page", "waited_for"]


def page(*worlds: Mapping[int, Record]) -> str:
    """Return the page, with the ranks of all worlds."""
    told = [_data(found, number) for number, found in enumerate(all_aligned(worlds))]
    whole = {name: [each for world in told for each in world[name]] for name in ("ranks", "late")}
    data = json.dumps(whole, separators=(",", ":"), allow_nan=False)
    template = files(__package__).joinpath("page.html").read_text(encoding="utf-8")
    # Within a script "</" would end it, and what files say is not trusted.
    return template.replace("/*DATA*/null", data.replace("<", "\\u003c"))


def _data(found: Aligned, world: int) -> dict[str, Any]:
    met = _met(found)
    ranks = []
    for rank, record in sorted(found.records.items()):
        drawn = [
            {"title": name, "ops": [_op(op, record, found, met, world) for op in row]} for name, row in rows(record)
        ]
        host = f"{record.host}, pid {record.pid}"
        ranks.append({"rank": rank, "title": _title(record, found.clocks[rank]), "host": host, "rows": drawn})
    return {"ranks": ranks, "late": _late(found, met)}


def _title(record: Record, clock: Clock) -> str:
    whose = f" of {record.outside}" if record.outside else ""
    doubt = "" if clock.error_ns == 0 else f" (clock {describe(clock)})"
    return f"rank {record.rank}{whose}{doubt}"


def _op(
    op: Operation, record: Record, found: Aligned, met: Mapping[tuple[str, int], CompleteCollective], world: int
) -> list[Any]:
    """Return an operation: what it is, number, times in us, how long it waited, where, bytes, state, more, group."""
    shift, key = found.shifts[record.rank], (op.group, op.number)
    meeting = None if op.message else met.get(key)
    waited = 0.0 if meeting is None else (meeting.complete_ns - meeting.came_ns[record.rank]) / 1e3
    more = op.error
    if op.message:
        more = f"{'from' if 'recv' in op.op else 'to'} {'anyone' if op.peer is None else f'rank {op.peer}'} {more}"
    dtype = f" of {op.dtype}" if op.dtype else ""
    return [
        *(op.op, op.number, (op.began_ns + shift) / 1e3, (end_of(op, record) - op.began_ns) / 1e3, waited),
        *(f"{op.file}:{op.line} in {op.function}" if op.file else "", f"{op.nbytes} bytes{dtype}", op.state, more),
        "" if op.message else f"{world} {op.group}",
    ]


def waited_for(records: Mapping[int, Record]) -> list[str]:
    """Say who was waited for in each group of one world."""
    return [told for found in all_aligned([records]) for told in _late(found, _met(found))]


def _met(found: Aligned) -> dict[tuple[str, int], CompleteCollective]:
    return {key: each for key, each in found.meetings().items() if each.op in TOGETHER and found.is_complete(key, each)}


def _late(found: Aligned, met: Mapping[tuple[str, int], CompleteCollective]) -> list[str]:
    """Say who was waited for in each group."""
    told = []
    for name, group in {n: g for r in found.records.values() for n, g in r.groups.items()}.items():
        worst = latest(lateness([each for key, each in sorted(met.items()) if key[0] == name]))
        if worst is not None:
            told.append(
                f"rank {worst.rank} was waited for: it held up {worst.held_up} of {worst.calls} collectives of group "
                f"{group.description!r}, by {worst.late_ns / 1e6:.2f} ms at the median"
            )
    return told
