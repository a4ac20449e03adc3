"""What the flight recorder has noted, as plain data that travels, and in words."""

from __future__ import annotations

import os
from collections.abc import Sequence
from time import monotonic_ns
from types import CodeType
from typing import Any, TypedDict

from rankwise.observing import Entry, FlightRecorder, unasked
from rankwise_watch.stacks import SourceLine, stacks

#: For how long a look at the threads serves heartbeats.
_RECENT_NS = 15_000_000_000
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


def entries(recorder: FlightRecorder) -> list[Entry]:
    """Return the operations, the oldest first, with the ends of works that nobody has asked."""
    unasked.look()
    return recorder.entries()


def progress(recorder: FlightRecorder) -> dict[str, Progress]:
    """Return how far this rank has come on each group on which it has called anything.

    Any thread may ask, at any time. Groups that have not been used stay out of the heartbeats: there may be hundreds.
    """
    now, noted = monotonic_ns(), entries(recorder)
    waiting: dict[str, list[Step]] = {}
    for entry, condition in zip(noted, states(noted, _recent), strict=True):
        if condition in ("running", "issued"):
            waiting.setdefault(entry.trail.name, []).append(step(entry, now))
    told: dict[str, Progress] = {}
    for trail in recorder.trails():
        begun, ended, message_begun, message_ended = trail.marks()
        if not (begun or message_begun):
            continue
        told[trail.name] = Progress(
            begun=_maybe(begun, now),
            finished=_maybe(ended, now),
            message_begun=_maybe(message_begun, now),
            message_finished=_maybe(message_ended, now),
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


class _Recent:
    """Where the threads of this process were a while ago.

    For ranks that wait for long: a look costs more than a heartbeat.
    """

    def __init__(self) -> None:
        self._known: tuple[int, dict[int, list[SourceLine]]] = 0, {}

    def threads(self, within: list[Entry]) -> dict[int, list[SourceLine]]:
        """Return the stacks; those of the last look if all these operations had begun before it."""
        now, (looked, threads) = monotonic_ns(), self._known
        if now > looked + _RECENT_NS or any(entry.began_ns >= looked for entry in within):
            threads = stacks()
            self._known = now, threads
        return threads


_recent = _Recent()


def states(noted: Sequence[Entry], recent: _Recent | None = None) -> list[str]:
    """Return for each entry whether it is done, failed, running, or issued and not waited for yet."""
    # Only operations that have begun and not ended make it worth asking where the threads are.
    within = [entry for entry in noted if entry.thread and not entry.ended_ns]
    threads = {} if not within else stacks() if recent is None else recent.threads(within)
    # A thread can only be in the operation that it has begun last.
    last = {entry.thread: place for place, entry in enumerate(noted)}
    return [
        state(entry, last[entry.thread] == place and _inside(entry, threads.get(entry.thread, [])))
        for place, entry in enumerate(noted)
    ]


def state(entry: Entry, inside: bool) -> str:
    """Return what has become of one operation; `inside`: its thread is still in the call."""
    if entry.error:
        return "failed"
    if entry.ended_ns:
        return "done"
    if entry.trail.failure:
        return "failed"
    if entry.thread == 0:
        return "done" if _overtaken(entry) else "issued"
    return "running" if inside else "failed"


def _overtaken(entry: Entry) -> bool:
    """Tell whether a later collective of the group has ended, as they do in their order: nobody has asked this one."""
    ended = entry.trail.marks()[1]
    return entry.detail is None and ended is not None and ended.number > entry.number


def site(entry: Entry) -> tuple[str, int, str]:
    """Return the file, the line and the function of the program's call."""
    code = entry.code
    return ("", 0, "") if code is None else (code.co_filename, line_of(code, entry.lasti), code.co_name)


def line_of(code: CodeType, lasti: int) -> int:
    """Return the line of an instruction."""
    for begin, end, line in code.co_lines():
        if begin <= lasti < end and line is not None:
            return line
    return code.co_firstlineno


def _inside(entry: Entry, stack: list[SourceLine]) -> bool:
    """Tell whether the program's call that an entry was made for has not returned: its line is on the thread's stack.

    Compiled calls have no frame of this package's in between, nor any other while they wait.
    """
    return SourceLine(*site(entry)) in stack


def _maybe(entry: Entry | None, now: int) -> Step | None:
    return None if entry is None else step(entry, now)


def step(entry: Entry, now: int) -> Step:
    """Return one operation as heartbeats carry it."""
    detail = entry.detail
    file, line, _ = site(entry)
    return Step(
        op=entry.op,
        number=entry.number,
        peer=None if detail is None else detail[0],
        message=detail is not None,
        at=f"{os.path.basename(file)}:{line}" if file else "",
        age_s=round((now - (entry.ended_ns or entry.began_ns)) / 1e9, 3),
    )
