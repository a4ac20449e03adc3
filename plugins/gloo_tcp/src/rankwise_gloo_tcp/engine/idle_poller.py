"""The thread of the process that takes in what has come for engines that no thread drives.

A rank that computes, or waits on another group, still takes in what its peers send. So a peer that leaves can hand over
its messages, and what this rank has sent makes progress. While an engine is driven the thread looks at it from time to
time; once it is left alone the thread sleeps until something comes for it.
"""

from __future__ import annotations

import contextvars
import os
import select
import threading
from contextlib import suppress
from math import inf
from time import monotonic
from typing import Protocol

from rankwise.backends import start_thread
from rankwise.errors import DistBackendError

#: How often the thread looks at an engine that is driven, and at one whose caller sleeps for long.
TICK_S, LONGEST_TICK_S = 0.1, 0.5


class IdleEngine(Protocol):
    """An engine as the idle poller sees it."""

    def fileno(self) -> int:
        """Return a descriptor that can be read once something has come; -1 where there is none."""

    def tend(self, tick_s: float, has_come: bool) -> float:
        """Take in what has come, if no other thread does.

        Args:
            tick_s: What it has returned last.
            has_come: Whether its descriptor can be read.

        Returns:
            After how many seconds to come again; infinity if not before its descriptor can be read.
        """

    def broken(self, error: BaseException) -> None:
        """End the group after an error that belongs to no operation."""

    def forked(self) -> None:
        """Close the sockets, in the child of a fork."""


class _Tended:
    """An engine, the caller's context, and when the thread comes again."""

    __slots__ = ("at", "context", "tick_s")

    def __init__(self) -> None:
        #: So that callbacks find the caller's world.
        self.context = contextvars.copy_context()
        self.tick_s, self.at = TICK_S, monotonic() + TICK_S


class IdlePoller:
    """The thread, and the engines that it looks after."""

    def __init__(self) -> None:
        self._lock = threading.RLock()  # a signal may come in here, and its handler use another group
        self._engines: dict[IdleEngine, _Tended] = {}
        self._thread: threading.Thread | None = None
        self._pipe: tuple[int, int] | None = None

    def add(self, engine: IdleEngine) -> None:
        """Look after an engine."""
        with self._lock:
            self._engines[engine] = _Tended()
            if self._thread is None:
                self._pipe = os.pipe()
                for end in self._pipe:
                    os.set_blocking(end, False)
                args = (self._pipe[0],)
                self._thread = threading.Thread(target=self._serve, args=args, name="rankwise gloo idle", daemon=True)
                try:  # noted before: an interrupt comes after the start, and other engines would start it again
                    start_thread(self._thread)
                except DistBackendError:
                    self._thread = None
                    raise
        self.wake()

    def remove(self, engine: IdleEngine) -> None:
        """Look after an engine no more."""
        with self._lock:
            self._engines.pop(engine, None)
        self.wake()

    def wake(self) -> None:
        """Have the thread look at all engines."""
        with self._lock:
            if self._pipe is not None:
                with suppress(BlockingIOError):  # full, so that it is awake
                    os.write(self._pipe[1], b"w")

    def _serve(self, bell: int) -> None:
        while True:
            engines = self._current()
            if not engines:
                return
            come = _wait(bell, engines)
            for engine, tended in engines.items():
                if engine in come or tended.tick_s == inf or tended.at <= monotonic():
                    tended.context.run(_tend, engine, tended, engine in come)
            del engines, come, engine, tended  # else the last ones stay until the next look

    def _current(self) -> dict[IdleEngine, _Tended]:
        """Return the engines; without any the thread ends."""
        with self._lock:
            if not self._engines and self._pipe is not None:
                self._close()
                self._thread = None
            return dict(self._engines)

    def _close(self) -> None:
        pipe, self._pipe = self._pipe, None
        for end in pipe or ():
            os.close(end)

    def after_fork(self) -> None:
        """In a child, which has neither the thread nor a use for the engines: close its copies of their sockets.

        Else a peer would not see the end of this process's parent as long as the child lives.
        """
        engines = list(self._engines)
        self._close()
        self.__init__()  # type: ignore[misc]
        for engine in engines:
            engine.forked()


def _wait(bell: int, engines: dict[IdleEngine, _Tended]) -> set[IdleEngine]:
    """Sleep until something has come, the thread is woken or it is time to look; return the engines it has come for."""
    poll = select.poll()
    poll.register(bell, select.POLLIN)
    known = {engine.fileno(): engine for engine, tended in engines.items() if tended.tick_s == inf}
    for descriptor in known:
        if descriptor >= 0:
            poll.register(descriptor, select.POLLIN)
    at = min((tended.at for tended in engines.values()), default=inf)
    ready = {fd for fd, _ in poll.poll(None if at == inf else max(0.0, 1000 * (at - monotonic())))}
    if bell in ready:
        os.read(bell, 512)
    return {known[fd] for fd in ready if fd in known}


def _tend(engine: IdleEngine, tended: _Tended, has_come: bool) -> None:
    """Have an engine take in what has come; its own trouble is not that of others."""
    try:
        tended.tick_s = engine.tend(tended.tick_s if tended.tick_s < inf else TICK_S, has_come)
    except Exception as error:
        tended.tick_s = TICK_S
        engine.broken(error)
    tended.at = monotonic() + tended.tick_s


#: The one of this process.
idle_poller = IdlePoller()
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=idle_poller.after_fork)
