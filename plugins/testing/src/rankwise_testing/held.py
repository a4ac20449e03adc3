"""Messages that are held back before they are sent: what delay and reordering are made of."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from time import monotonic

from rankwise.errors import DistError
from rankwise.kits import Deadline, FutureWork, Work

#: A destination and a tag.
Stream = tuple[int, int]


@dataclass(eq=False)
class _Message:
    begin: Callable[[], Work]
    release_at: float
    work: FutureWork
    overtaken: bool  # goes as soon as something of another stream (or, illegally, of its own) has gone
    illegal: bool


class Held:
    """The messages that are held back, and the thread that lets them go."""

    def __init__(self) -> None:
        self._lock = threading.RLock()  # entered itself, see `rankwise.collective.issue_order`
        self._changed = threading.Condition(self._lock)
        self._streams: dict[Stream, deque[_Message]] = {}
        self._thread: threading.Thread | None = None
        self._closed = False

    def send(self, stream: Stream, begin: Callable[[], Work], hold_s: float, overtaken: bool, illegal: bool) -> Work:
        """Send a message when its time has come and what is before it in its stream has gone."""
        message = _Message(begin, monotonic() + hold_s, FutureWork(), overtaken, illegal)
        with self._lock:
            waiting = self._streams.get(stream)
            if hold_s or waiting:
                self._line_up(stream, message)
                return message.work
        # Never with the lock held: what is called when a message arrives may send one itself.
        work = begin()
        self._overtake(stream)
        return work

    def flush(self, timeout_s: float) -> None:
        """Let everything go now, wait until it has gone, and stop the thread."""
        deadline = Deadline(timeout_s)
        with self._lock:
            works = [message.work for waiting in self._streams.values() for message in waiting]
            for waiting in self._streams.values():
                for message in waiting:
                    message.release_at = 0.0
            self._closed = True
            self._changed.notify_all()
        for work in works:
            work.wait(deadline.remaining())
        if self._thread is not None:
            self._thread.join(deadline.remaining())

    def drop(self, error: DistError) -> None:
        """Fail everything that is held back."""
        with self._lock:
            dropped = [message.work for waiting in self._streams.values() for message in waiting]
            self._streams.clear()
            self._changed.notify_all()
        for work in dropped:
            work.fail(error)

    def _line_up(self, stream: Stream, message: _Message) -> None:
        waiting = self._streams.setdefault(stream, deque())
        if waiting and waiting[-1].overtaken and waiting[-1].illegal:
            waiting[-1].release_at = 0.0
            waiting.insert(len(waiting) - 1, message)
        else:
            waiting.append(message)
        if self._thread is None:
            self._thread = threading.Thread(target=self._serve, name="rankwise chaos", daemon=True)
            self._thread.start()
        self._changed.notify_all()

    def _serve(self) -> None:
        while ready := self._wait():
            for stream, message in ready:
                try:
                    message.begin().add_done_callback(partial(_pass_on, message.work))
                except Exception as error:  # raised where the work is waited for
                    message.work.fail(error)
                self._forget(stream, message)
                self._overtake(stream)

    def _wait(self) -> list[tuple[Stream, _Message]]:
        """Return the messages that may go now, the first of each stream, as soon as there is one; none at the end."""
        with self._lock:
            while not self._closed or self._streams:
                now = monotonic()
                first = [(stream, waiting[0]) for stream, waiting in self._streams.items()]
                ready = [(stream, message) for stream, message in first if message.release_at <= now]
                if ready:
                    return ready
                times = [message.release_at for _, message in first]
                self._changed.wait(min(times) - now if times else None)
        return []

    def _forget(self, stream: Stream, message: _Message) -> None:
        """Take out a message that has gone: until then it holds up those behind it."""
        with self._lock:
            waiting = self._streams.get(stream, deque())
            if message in waiting:  # an abort may have taken it out already
                waiting.remove(message)
            if not waiting:
                self._streams.pop(stream, None)

    def _overtake(self, stream: Stream) -> None:
        """Let those go that were waiting for a message of another stream."""
        with self._lock:
            for other, waiting in self._streams.items():
                if other != stream and waiting[0].overtaken and not waiting[0].illegal:
                    waiting[0].release_at = 0.0
                    self._changed.notify_all()


def _pass_on(outer: FutureWork, inner: Work) -> None:
    error = inner.exception()
    if error is None:
        outer.succeed()
    else:
        outer.fail(error)
