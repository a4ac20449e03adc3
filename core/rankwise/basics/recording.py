"""The flight recorder's hot half: what each public call notes on its way, a few hundred nanoseconds in all.

Reading what was noted, writing it to files and judging it are the business of `rankwise.watch`.
"""

from __future__ import annotations

import os
import sys
from collections import deque
from collections.abc import Callable
from itertools import count
from threading import get_ident
from time import monotonic_ns
from types import FrameType
from typing import Any
from weakref import WeakValueDictionary

__all__ = [
    "BEGAN_NS",
    "DETAIL",
    "DTYPE",
    "ENDED_NS",
    "ERROR",
    "LASTI",
    "NBYTES",
    "NUMBER",
    "OP",
    "SITE",
    "THREAD",
    "TRAIL",
    "WORK",
    "Entry",
    "FlightRecorder",
    "Trail",
    "note",
    "released",
]

#: One operation; a plain list is the cheapest thing that can be made and changed. The names below are its fields.
Entry = list[Any]

#: The group's trail, the operation's name and its number on the group: collectives and messages count apart.
TRAIL, OP, NUMBER = 0, 1, 2
#: What a message says of its peer and tag, as (rank or None, tag); None for a collective.
DETAIL = 3
#: This rank's own contribution; its dtype is None if there is no array.
NBYTES, DTYPE = 4, 5
#: The code object of the program's call and the instruction in it, which only a reader turns into file and line.
SITE, LASTI = 6, 7
#: The thread that is in the call; 0 once an asynchronous call has returned.
THREAD = 8
BEGAN_NS = 9
#: 0 until the end has been seen; an asynchronous operation is seen to end by whoever waits for it.
ENDED_NS = 10
#: Why it has failed, where that is known; else "".
ERROR = 11

#: Only where a work has been handed out: a weak reference to it, lest it counts as pending because nobody asks it.
WORK = 12

_getframe = sys._getframe

#: The folder of this package, whose frames are not the program's.
_HERE = os.path.dirname(os.path.dirname(os.path.abspath(__file__))) + os.sep
#: Files met so far that are the program's: looking one up takes half the time of comparing the path.
_outside: set[str] = set()


class FlightRecorder:
    """The last operations of one rank, on all its groups, in the order in which they were begun."""

    def __init__(self, capacity: int = 1024) -> None:
        self.entries: deque[Entry] = deque(maxlen=capacity)
        #: The live groups' trails by name.
        self.trails: WeakValueDictionary[str, Trail] = WeakValueDictionary()
        #: Called with the trail of a group that has failed.
        self.on_failure: Callable[[Trail], object] | None = None

    def trail(self, name: str, description: str, ranks: tuple[int, ...]) -> Trail:
        """Return a new group's trail."""
        made = self.trails[name] = Trail(self, name, description, ranks)
        return made

    def clear(self) -> None:
        """Forget all, and so all that entries and trails keep alive of each other, and of the groups."""
        self.entries.clear()
        for trail in list(self.trails.values()):
            trail.begun = trail.ended = trail.message_begun = trail.message_ended = None


class Trail:
    """What this rank has begun and finished on one group.

    Attributes:
        recorder: The recorder.
        name: The group's name.
        description: What messages call it.
        ranks: Its members.
        begun: The last collective that was begun.
        ended: The last one that was seen to end well.
        message_begun: The last message that was begun.
        message_ended: The last one that was seen to end well.
        failure: Why the group is of no use any more: words, since an error would keep the program's arrays alive.
        failed_ns: Since when.
    """

    __slots__ = (
        *("recorder", "name", "description", "ranks", "begun", "ended", "message_begun", "message_ended"),
        *("failure", "failed_ns", "_add", "_collectives", "_messages", "__weakref__"),
    )

    def __init__(self, recorder: FlightRecorder, name: str, description: str, ranks: tuple[int, ...]) -> None:
        self.recorder = recorder
        self.name, self.description, self.ranks = name, description, ranks
        self.begun: Entry | None = None
        self.ended: Entry | None = None
        self.message_begun: Entry | None = None
        self.message_ended: Entry | None = None
        self.failure = ""
        self.failed_ns = 0
        self._add = recorder.entries.append
        self._collectives = count().__next__
        self._messages = count().__next__

    def begin(self, op: str, array: Any = "cpu") -> None:
        """Note that a collective begins.

        Args:
            op: The operation.
            array: This rank's own contribution, which is not kept; a kind of device if there is none.
        """
        frame = _getframe(3)
        code = frame.f_code
        if code.co_filename not in _outside:
            frame = _program(frame)
            code = frame.f_code
        entry = [self, op, self._collectives(), None, 0, None, code, frame.f_lasti, get_ident(), monotonic_ns(), 0, ""]
        if type(array) is not str:
            entry[NBYTES], entry[DTYPE] = array.nbytes, array.dtype
        self.begun = entry
        self._add(entry)

    def end(self) -> None:
        """Note that the collective which this thread has begun last has ended well."""
        entry = self.begun
        if entry is None or entry[THREAD] != get_ident():
            entry = self.mine()
        entry[ENDED_NS] = monotonic_ns()
        self.ended = entry

    def begin_message(self, op: str, array: Any, peer: int | None, tag: int) -> Entry:
        """Note that a message begins, and return what `note` wants. `array` is not kept."""
        frame = _getframe(2)
        code = frame.f_code
        if code.co_filename not in _outside:
            frame = _program(frame)
            code = frame.f_code
        number, lasti, what, nbytes, dtype = self._messages(), frame.f_lasti, (peer, tag), array.nbytes, array.dtype
        entry = [self, op, number, what, nbytes, dtype, code, lasti, get_ident(), monotonic_ns(), 0, ""]
        self.message_begun = entry
        self._add(entry)
        return entry

    def issued(self) -> Entry:
        """Note that the asynchronous call which this thread has begun last returns, and return what `note` wants."""
        entry = self.begun
        return released(entry if entry is not None and entry[THREAD] == get_ident() else self.mine())

    def fail(self, error: BaseException) -> None:
        """Note that the group is of no use any more."""
        if not self.failure:
            self.failed_ns = monotonic_ns()
            self.failure = f"{type(error).__name__}: {error}"
            if self.recorder.on_failure is not None:
                self.recorder.on_failure(self)

    def marks(self) -> tuple[Entry | None, Entry | None, Entry | None, Entry | None]:
        """Return the last collective begun and ended, and the last message begun and ended."""
        return self.begun, self.ended, self.message_begun, self.message_ended

    def mine(self) -> Entry:
        """Return the entry of the collective that this thread has begun last on this group."""
        me = get_ident()
        for entry in reversed(list(self.recorder.entries)):
            if entry[TRAIL] is self and entry[THREAD] == me and entry[DETAIL] is None:
                return entry
        return [self, "", -1, None, 0, None, None, 0, me, 0, 0, ""]  # overwritten by what other threads have begun


def released(entry: Entry) -> Entry:
    """Note that the call has returned while its operation goes on, and return the entry."""
    entry[THREAD] = 0
    return entry


def note(entry: Entry, error: BaseException | None = None) -> None:
    """Note that an operation has been seen to end."""
    if entry[ENDED_NS]:
        return
    entry[ENDED_NS] = monotonic_ns()
    if error is not None:
        entry[ERROR] = f"{type(error).__name__}: {error}"
        return
    # They may be waited for in any order.
    trail, message = entry[TRAIL], entry[DETAIL] is not None
    last = trail.message_ended if message else trail.ended
    if last is None or last[NUMBER] < entry[NUMBER]:
        if message:
            trail.message_ended = entry
        else:
            trail.ended = entry


def _program(frame: FrameType) -> FrameType:
    """Return the nearest frame outside of this package, or the outermost one."""
    while frame.f_code.co_filename.startswith(_HERE) and frame.f_back is not None:
        frame = frame.f_back
    if not frame.f_code.co_filename.startswith(_HERE):
        _outside.add(frame.f_code.co_filename)
    return frame
