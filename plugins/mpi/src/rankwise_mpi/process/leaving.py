"""How a process leaves MPI.

In good order it finalises MPI, if MPI was initialised here; that waits for the other ranks. After an uncaught exception
it must not wait: the others may be waiting for it. It then leaves without finalising and with a status that is not
zero, which makes the launcher end the job, once the traceback has been printed.
"""

from __future__ import annotations

import atexit
import contextlib
import os
import sys
import threading
from types import TracebackType
from typing import Protocol

from rankwise_mpi.process.engine import Engine

#: After a group has failed, finalising may wait for ranks that will never come.
_FINALISE_S = 60.0


class Leaver(Protocol):
    """What there is to know of a process that leaves MPI."""

    engine: Engine
    initialised_here: bool

    @property
    def kept(self) -> int:
        """How many requests nobody waits for any more, although they have not ended."""

    def finalise(self) -> None:
        """Finalise MPI if it was initialised here."""


def leave_at_exit(process: Leaver) -> None:
    """Leave MPI when the interpreter ends."""
    leaving = _Leaving(process)
    # Handlers run last in, first out; the core's, which is registered later, gives the groups up before this one.
    atexit.register(leaving.leave)
    sys.excepthook = leaving.note


class _Leaving:
    def __init__(self, process: Leaver) -> None:
        self._process = process
        self._pid = os.getpid()
        self._raised = False
        self._shown = sys.excepthook

    def note(self, kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
        """Show an uncaught exception, and remember that there was one."""
        self._raised = os.getpid() == self._pid
        self._shown(kind, error, trace)

    def leave(self) -> None:
        """Leave in good order, or immediately."""
        if os.getpid() != self._pid:
            return  # a forked child: MPI is the parent's
        if not self._raised:
            if self._process.kept:
                _leave_anyway_after(_FINALISE_S)
            self._process.finalise()
            return
        self._process.engine.stop()
        if not self._process.initialised_here:
            # mpi4py, which has initialised MPI, would now finalise it, and wait.
            _flush()
            os._exit(1)


def _leave_anyway_after(seconds: float) -> None:
    def leave() -> None:
        print(f"rankwise: MPI_Finalize waits for ranks that are gone; left after {seconds:g} s", file=sys.stderr)
        _flush()
        os._exit(1)

    timer = threading.Timer(seconds, leave)
    timer.daemon = True
    timer.start()


def _flush() -> None:
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(Exception):
            stream.flush()
