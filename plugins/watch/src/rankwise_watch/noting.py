"""The flight recorder in Python, for where that of `rankwise-native` is not installed."""

from __future__ import annotations

import sys
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from itertools import count
from threading import RLock, get_ident
from time import monotonic_ns
from types import FrameType
from typing import Any
from weakref import WeakValueDictionary

from rankwise.observing import Entry, Ticket, Totals, Trail, is_skipped, known_inside, known_outside

#: An entry that may change: a plain list is the cheapest thing that can be made. These are the fields that do change.
_List = list[Any]
_TRAIL, _OP, _NUMBER, _DETAIL, _NBYTES, _DTYPE, _THREAD, _BEGAN_NS, _ENDED_NS, _ERROR, _WAITED_NS, _ASKED_NS = (
    Entry._fields.index(name)
    for name in (
        *("trail", "op", "number", "detail", "nbytes", "dtype", "thread"),
        *("began_ns", "ended_ns", "error", "waited_ns", "asked_ns"),
    )
)

_getframe = sys._getframe

#: How many entries a ring may hold beyond its capacity: where it is counted, half of them are in one go, and the other
#: half are for threads that note more meanwhile.
_SLACK = 256


class PythonRecorder:
    """What a world's recorder is; see `FlightRecorder` of the core."""

    def __init__(self, capacity: int = 1024) -> None:
        self.noted: deque[_List] = deque(maxlen=capacity + _SLACK)
        self.on_failure: Callable[[Trail], object] | None = None
        #: What notes an entry: the ring itself, until somebody asks for counts.
        self.add: Callable[[_List], object] = self.noted.append
        #: Held while sums change or are read.
        self.lock = RLock()
        self._capacity = capacity
        self._trails: WeakValueDictionary[str, _PythonTrail] = WeakValueDictionary()

    def trail(self, name: str, description: str, ranks: tuple[int, ...]) -> Trail:
        """Return a new group's trail."""
        made = self._trails[name] = _PythonTrail(self, name, description, ranks)
        return made

    def count(self) -> None:
        """Count from now on what leaves the ring, which costs each call some 0.2 us."""
        if self.add == self.noted.append:
            _push_out(self, self._capacity)  # or the ring, which is full, would drop some by itself
            self.add = _counting(self, self._capacity)
            for trail in self.trails():
                trail._add = self.add  # type: ignore[attr-defined]

    def trails(self) -> list[Trail]:
        """Return the trails of the groups that are alive, even while another thread makes a group."""
        return [trail for reference in self._trails.valuerefs() if (trail := reference()) is not None]

    def lists(self) -> list[_List]:
        """Return the entries as they are kept."""
        while True:
            try:
                return list(self.noted)
            except RuntimeError:  # it has changed under our hands
                continue

    def entries(self) -> list[Entry]:
        """Return the operations, the oldest first."""
        return [Entry._make(entry) for entry in self.lists()[-self._capacity :]]

    def clear(self) -> None:
        """Forget all."""
        self.noted.clear()
        for trail in list(self._trails.values()):
            trail.forget()


class _PythonTrail:
    """What this rank has begun and finished on one group."""

    __slots__ = (
        *("name", "description", "ranks", "failure", "failed_ns", "__weakref__"),
        *("_recorder", "_begun", "_ended", "_message_begun", "_message_ended", "_message_asked", "_add"),
        *("_collectives", "_messages"),
        *("counted", "open"),
    )

    def __init__(self, recorder: PythonRecorder, name: str, description: str, ranks: tuple[int, ...]) -> None:
        self.name, self.description, self.ranks = name, description, ranks
        self.failure = ""
        self.failed_ns = 0
        self._recorder = recorder
        self._add = recorder.add
        self._collectives = count().__next__
        self._messages = count().__next__
        self.forget()

    def forget(self) -> None:
        """Keep nothing of what was noted."""
        self._begun: _List | None = None
        self._ended: _List | None = None
        self._message_begun: _List | None = None
        self._message_ended: _List | None = None
        self._message_asked: _List | None = None
        #: The sums of what has left the ring, in the order of `Totals`; and what has left it before it had ended.
        self.counted: dict[str, list[int]] = {}
        self.open: deque[_List] = deque(maxlen=_MOST_OPEN)

    def begin(self, op: str, array: Any = "cpu", frames: int = 3) -> None:
        """Note that a collective begins."""
        frame = _getframe(frames)
        code = frame.f_code
        if code.co_filename not in known_outside:
            frame = _program(frame)
            code = frame.f_code
        number, lasti = self._collectives(), frame.f_lasti
        entry = [self, op, number, None, 0, None, code, lasti, get_ident(), monotonic_ns(), 0, "", 0, 0]
        if type(array) is not str:
            entry[_NBYTES], entry[_DTYPE] = array.nbytes, array.dtype
        self._begun = entry
        self._add(entry)

    def end(self) -> None:
        """Note that the collective which this thread has begun last has ended well."""
        entry = self._begun
        if entry is None or entry[_THREAD] != get_ident():
            entry = self._mine()
        entry[_ENDED_NS] = monotonic_ns()
        self._ended = entry

    def begin_message(self, op: str, array: Any, peer: int | None, tag: int) -> Ticket:
        """Note that a message begins."""
        frame = _getframe(2)
        code = frame.f_code
        if code.co_filename not in known_outside:
            frame = _program(frame)
            code = frame.f_code
        number, lasti, what, nbytes, dtype = self._messages(), frame.f_lasti, (peer, tag), array.nbytes, array.dtype
        entry = [self, op, number, what, nbytes, dtype, code, lasti, get_ident(), monotonic_ns(), 0, "", 0, 0]
        self._message_begun = entry
        self._add(entry)
        return entry

    def issued(self) -> Ticket:
        """Note that the asynchronous call which this thread has begun last returns."""
        entry = self._begun
        if entry is None or entry[_THREAD] != get_ident():
            entry = self._mine()
        entry[_THREAD] = 0
        return entry

    def released(self, ticket: Ticket) -> None:
        """Note that the call has returned while its operation goes on."""
        ticket[_THREAD] = 0

    def asked(self, ticket: Ticket) -> None:
        """Note that the program waits from now on for a message whose call has returned."""
        if not ticket[_ENDED_NS]:
            ticket[_ASKED_NS] = monotonic_ns()
            self._message_asked = ticket

    def ended(self, ticket: Ticket, error: BaseException | None = None, source: int | None = None) -> None:
        """Note that an operation has been seen to end."""
        if ticket[_ENDED_NS]:
            return
        ticket[_ENDED_NS] = monotonic_ns()
        if error is not None:
            ticket[_ERROR] = f"{type(error).__name__}: {error}"
            return
        message = ticket[_DETAIL] is not None
        if source is not None:
            ticket[_DETAIL] = source, ticket[_DETAIL][1]
        # They may be waited for in any order.
        last = self._message_ended if message else self._ended
        if last is None or last[_NUMBER] < ticket[_NUMBER]:
            if message:
                self._message_ended = ticket
            else:
                self._ended = ticket

    def fail(self, error: BaseException) -> None:
        """Note that the group is of no use any more."""
        if not self.failure:
            self.failed_ns = monotonic_ns()
            self.failure = f"{type(error).__name__}: {error}"
            if self._recorder.on_failure is not None:
                self._recorder.on_failure(self)

    def marks(self) -> tuple[Entry | None, Entry | None, Entry | None, Entry | None]:
        """Return the last collective begun and ended, and the last message begun and ended."""
        return _read(self._begun), _read(self._ended), _read(self._message_begun), _read(self._message_ended)

    def broken(self, error: BaseException) -> None:
        """Note that the collective which this thread has begun last has failed."""
        self.ended(self._mine(), error)

    def waited(self, ns: int, message: bool = False) -> None:
        """Note that what was begun last, or asked for, has waited for others for so long."""
        entry = self._waiting() if message else self._begun
        if entry is not None:
            entry[_WAITED_NS] += ns

    def _waiting(self) -> _List | None:
        """Return the message that was begun or asked for last."""
        begun, asked = self._message_begun, self._message_asked
        return asked if begun is None or (asked is not None and asked[_ASKED_NS] >= begun[_BEGAN_NS]) else begun

    def totals(self) -> dict[str, Totals]:
        """Return what has been counted of each operation."""
        with self._recorder.lock:
            for entry in [entry for entry in self.open if entry[_ENDED_NS]]:
                self.open.remove(entry)  # it has ended after it had left the ring
                _count([entry])
            found = {op: Totals(*sums) for op, sums in self.counted.items()}
            mine = [entry for entry in self._recorder.lists() if entry[_TRAIL] is self]
            for entry in (*mine, *self.open):
                found[entry[_OP]] = found.get(entry[_OP], Totals()) + _alone(entry)
        return found

    def _mine(self) -> _List:
        """Return the entry of the collective that this thread has begun last on this group."""
        me = get_ident()
        for entry in reversed(self._recorder.lists()):
            if entry[_TRAIL] is self and entry[_THREAD] == me and entry[_DETAIL] is None:
                return entry
        # Overwritten by what other threads have begun.
        return [self, "", -1, None, 0, None, None, 0, me, 0, 0, "", 0, 0]


#: How many operations are remembered that have left the ring before they have ended.
_MOST_OPEN = 4096


def _counting(recorder: PythonRecorder, capacity: int) -> Callable[[_List], object]:
    """Return what notes an entry, and now and then counts those that leave the ring."""
    append, length, most = recorder.noted.append, recorder.noted.__len__, capacity + _SLACK // 2

    def add(entry: _List) -> None:
        append(entry)
        if length() > most:
            _push_out(recorder, capacity)

    return add


def _push_out(recorder: PythonRecorder, capacity: int) -> None:
    """Count what there is too much of in the ring."""
    pop = recorder.noted.popleft
    with recorder.lock, suppress(IndexError):  # the ring has been cleared
        _count([pop() for _ in range(len(recorder.noted) - capacity)])


def _count(left: list[_List]) -> None:
    """Add operations that have left the ring to the sums of their kinds. The lock is held.

    Each call pays for this, so that sums are kept in local variables while operations are of one kind.
    """
    last_trail, last_op, sums = None, None, [0] * len(Totals._fields)
    ended = nbytes = busy_ns = waited_ns = 0
    for entry in left:
        trail, op, _, _, size, _, _, _, _, began_at, ended_at, error, waited, _ = entry
        if trail is not last_trail or op is not last_op:
            _add_up(sums, ended, nbytes, busy_ns, waited_ns)
            ended = nbytes = busy_ns = waited_ns = 0
            last_trail, last_op = trail, op
            sums = trail.counted.setdefault(op, [0] * len(Totals._fields))
        if ended_at and not error:
            ended += 1
            nbytes += size
            busy_ns += ended_at - began_at
            waited_ns += waited
        elif error:
            sums[0] += 1
            sums[2] += 1
            sums[3] += size
        else:
            trail.open.append(entry)
    _add_up(sums, ended, nbytes, busy_ns, waited_ns)


def _add_up(sums: list[int], ended: int, nbytes: int, busy_ns: int, waited_ns: int) -> None:
    for field, value in enumerate((ended, ended, 0, nbytes, busy_ns, waited_ns)):
        sums[field] += value


def _alone(entry: _List) -> Totals:
    """Return what one operation adds to the sums of its kind."""
    if not entry[_ENDED_NS]:
        return Totals(begun=1, nbytes=entry[_NBYTES])
    if entry[_ERROR]:
        return Totals(begun=1, failed=1, nbytes=entry[_NBYTES])
    return Totals(1, 1, 0, entry[_NBYTES], entry[_ENDED_NS] - entry[_BEGAN_NS], entry[_WAITED_NS])


def _read(entry: _List | None) -> Entry | None:
    return None if entry is None else Entry._make(entry)


def _program(frame: FrameType) -> FrameType:
    """Return the nearest frame that is the program's, or the outermost one."""
    while (file := frame.f_code.co_filename) in known_inside or is_skipped(file):
        if frame.f_back is None:
            break
        frame = frame.f_back
    return frame
