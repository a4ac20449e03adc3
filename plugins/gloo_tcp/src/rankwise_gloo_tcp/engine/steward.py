"""One thread of the process looks after engines that nobody drives.

A rank that computes, or waits on another group, still takes in from time to time what its peers send. So a peer that
leaves can hand over its messages, and what this rank has sent makes progress.
"""

from __future__ import annotations

import contextvars
import os
import threading
from time import monotonic
from typing import Protocol

__all__ = ["Steward", "steward"]

#: How often the steward looks at an engine; each look takes a few microseconds.
_TICK_S = 0.1


class Idle(Protocol):
    """An engine as the steward sees it."""

    def is_idle(self, since: float) -> bool:
        """Tell whether nobody has moved its messages since a time."""

    def look(self) -> bool:
        """Take in what has come, if nobody else does."""

    def forked(self) -> None:
        """Close the sockets, in the child of a fork."""


class Steward:
    """Engines, and the thread that looks at them."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._engines: dict[Idle, contextvars.Context] = {}
        self._thread: threading.Thread | None = None
        self._nobody = threading.Event()

    def add(self, engine: Idle) -> None:
        """Look after an engine, in a copy of the caller's context, so that callbacks find the caller's world."""
        with self._lock:
            self._engines[engine] = contextvars.copy_context()
            if self._thread is None:
                self._thread = threading.Thread(target=self._serve, name="rankwise gloo steward", daemon=True)
                self._thread.start()

    def remove(self, engine: Idle) -> None:
        """Look after an engine no more."""
        with self._lock:
            self._engines.pop(engine, None)
            if not self._engines:
                self._nobody.set()

    def _serve(self) -> None:
        while True:
            self._nobody.wait(_TICK_S)
            with self._lock:
                if not self._engines:
                    self._thread = None
                    self._nobody.clear()
                    return
                self._nobody.clear()
                engines = list(self._engines.items())
            since = monotonic() - _TICK_S
            for engine, context in engines:
                if engine.is_idle(since):
                    context.run(engine.look)
            del engines, engine, context  # else the last ones stay until the next look

    def after_fork(self) -> None:
        """In a child, which has neither the thread nor a use for the engines: close its copies of their sockets.

        Else a peer would not see the end of this process's parent as long as the child lives.
        """
        engines = list(self._engines)
        self.__init__()  # type: ignore[misc]
        for engine in engines:
            engine.forked()


#: The one of this process.
steward = Steward()
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=steward.after_fork)
