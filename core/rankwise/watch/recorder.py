"""What the flight recorder has noted, as plain data that travels, and in words."""

from __future__ import annotations

import os
from collections.abc import Sequence
from time import monotonic_ns
from types import CodeType
from typing import Any, TypedDict

from rankwise.basics.recording import (
    BEGAN_NS,
    DETAIL,
    ENDED_NS,
    ERROR,
    LASTI,
    NUMBER,
    OP,
    SITE,
    THREAD,
    TRAIL,
    WORK,
    Entry,
    FlightRecorder,
    Trail,
    note,
)
from rankwise.watch.stacks import Place, stacks

__all__ = [
    "Progress",
    "Step",
    "describe",
    "entries",
    "line_of",
    "progress",
    "site",
    "state",
    "states",
    "trails",
]

#: The folder of the package, with the separator.
_PACKAGE = os.path.dirname(os.path.dirname(os.path.abspath(__file__))) + os.sep

#: How many pending operations a rank tells of.
_MOST_PENDING = 8


class Step(TypedDict):
    """One operation of one rank, as heartbeats carry it."""

    op: str
    #: Its number on the group; collectives and messages count apart, each from 0.
    number: int
    #: The peer's global rank for a message that has one; None for a collective, and for a receive from anyone.
    peer: int | None
    #: Whether it is a message.
    message: bool
    #: The program's call: a short "file:line".
    at: str
    #: How long ago it ended, or if it has not, began.
    age_s: float


class Progress(TypedDict):
    """How far a rank has come on one group."""

    begun: Step | None
    finished: Step | None
    message_begun: Step | None
    message_finished: Step | None
    #: What has been begun and not been seen to end, the oldest first.
    pending: list[Step]


def progress(recorder: FlightRecorder) -> dict[str, Progress]:
    """Return how far this rank has come on each of its groups. Any thread may ask, at any time."""
    now, noted = monotonic_ns(), entries(recorder)
    waiting: dict[str, list[Step]] = {}
    for entry, condition in zip(noted, states(noted), strict=True):
        if condition in ("running", "issued"):
            waiting.setdefault(entry[TRAIL].name, []).append(_step(entry, now))
    told: dict[str, Progress] = {}
    for trail in trails(recorder):
        told[trail.name] = Progress(
            begun=_maybe(trail.begun, now),
            finished=_maybe(trail.ended, now),
            message_begun=_maybe(trail.message_begun, now),
            message_finished=_maybe(trail.message_ended, now),
            pending=waiting.get(trail.name, [])[:_MOST_PENDING],
        )
    return told


def describe(step: Step | dict[str, Any]) -> str:
    """Say in words which operation a step is: "broadcast #16 at train.py:41"."""
    peer = ""
    if step["message"]:
        to = "from" if "recv" in step["op"] else "to"
        peer = f" {to} {'anyone' if step['peer'] is None else 'rank ' + str(step['peer'])}"
    where = f" at {step['at']}" if step["at"] else ""
    return f"{step['op']} #{step['number']}{peer}{where}"


def entries(recorder: FlightRecorder) -> list[Entry]:
    """Return a copy of the ring, the oldest entry first, however fast other threads write to it."""
    while True:
        try:
            return list(recorder.entries)
        except RuntimeError:  # it has changed under our hands
            continue


def trails(recorder: FlightRecorder) -> list[Trail]:
    """Return the live groups' trails, even while another thread makes a group."""
    return [trail for reference in recorder.trails.valuerefs() if (trail := reference()) is not None]


def states(noted: Sequence[Entry]) -> list[str]:
    """Return for each entry whether it is done, failed, running, or issued and not waited for yet."""
    threads = stacks()
    for entry in noted:
        if not entry[ENDED_NS] and entry[THREAD] == 0:
            _look_after(entry)
    # A thread can only be in the operation that it has begun last.
    last = {entry[THREAD]: id(entry) for entry in noted}
    return [
        state(entry, last[entry[THREAD]] == id(entry) and _inside(entry, threads.get(entry[THREAD], [])))
        for entry in noted
    ]


def state(entry: Entry, inside: bool) -> str:
    """Return what has become of one operation; `inside`: its thread is still in the call."""
    if entry[ERROR]:
        return "failed"
    if entry[ENDED_NS]:
        return "done"
    if entry[TRAIL].failure:
        return "failed"
    if entry[THREAD] == 0:
        return "issued"
    return "running" if inside else "failed"


def site(entry: Entry) -> tuple[str, int, str]:
    """Return the file, the line and the function of the program's call."""
    code: CodeType | None = entry[SITE]
    return ("", 0, "") if code is None else (code.co_filename, line_of(code, entry[LASTI]), code.co_name)


def line_of(code: CodeType, lasti: int) -> int:
    """Return the line of an instruction."""
    for begin, end, line in code.co_lines():
        if begin <= lasti < end and line is not None:
            return line
    return code.co_firstlineno


def _look_after(entry: Entry) -> None:
    """Note the end of an asynchronous operation whose work nobody has asked."""
    if len(entry) > WORK:
        work = entry[WORK]()
        if work is None:  # nobody has it any more, not even the backend
            if not entry[TRAIL].failure:
                note(entry)
        elif work.is_completed():
            note(entry, work.exception())
    elif entry[DETAIL] is None:
        last = entry[TRAIL].ended
        if last is not None and last[NUMBER] > entry[NUMBER]:  # those of a group end in their order
            note(entry)


def _inside(entry: Entry, stack: list[Place]) -> bool:
    """Tell whether the program's call that an entry was made for has not returned."""
    within, call = False, Place(*site(entry))
    for place in stack:
        if place == call:
            return within
        within = within or place.file.startswith(_PACKAGE)
    return False


def _maybe(entry: Entry | None, now: int) -> Step | None:
    return None if entry is None else _step(entry, now)


def _step(entry: Entry, now: int) -> Step:
    detail = entry[DETAIL]
    file, line, _ = site(entry)
    return Step(
        op=entry[OP],
        number=entry[NUMBER],
        peer=None if detail is None else detail[0],
        message=detail is not None,
        at=f"{os.path.basename(file)}:{line}" if file else "",
        age_s=round((now - (entry[ENDED_NS] or entry[BEGAN_NS])) / 1e9, 3),
    )
