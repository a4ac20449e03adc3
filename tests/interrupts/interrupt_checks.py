"""Interrupts at the n-th point at which the interpreter runs signal handlers, or after a time.

A handler runs when a function begins, when a loop goes round, when a call of compiled code returns, and where compiled
code asks for signals. `Checks` has one run at each of these points: as one ends, the next signal is there already.
So a point is a number, and a call that is interrupted at the 1st, 2nd, 3rd ... point has been interrupted everywhere.
"""

from __future__ import annotations

import ctypes
import dis
import itertools
import os
import signal
import sys
import threading
import time
import traceback
from collections.abc import Callable
from functools import partial
from types import FrameType
from typing import Any


class Interrupted(Exception):
    """What a program's own handler raises."""


class Stopped(BaseException):
    """What one raises that is no `Exception`, as `KeyboardInterrupt` is none."""


#: Code that makes objects calls the program's own, and has an `Exception` of that as an error of its own.
_MAKING_OBJECTS = f"{os.sep}rankwise{os.sep}codec{os.sep}"


def within(call: Callable[..., Any], *args: Any, **named: Any) -> Any:
    """Make a call of which no Python may run, so that this frame is what a handler finds while it waits.

    An iterator makes it: after a step of a `for` nobody looks for signals, so what has been called has not returned.
    """
    for found in iter(partial(call, *args, **named), within):
        return found
    return None


_FOR_ITER = dis.opmap["FOR_ITER"]


def is_within(frame: FrameType) -> bool:
    """Tell whether a frame is in a call that `within` makes."""
    return frame.f_code is within.__code__ and frame.f_code.co_code[frame.f_lasti] == _FOR_ITER


class Checks:
    """Interrupts of the main thread of this process.

    Attributes:
        count: How many points have been passed since `arm`.
        kind: What is raised.
        where: Where the last interrupt came.
    """

    def __init__(self) -> None:
        self.count = self._at = 0
        self.where = ""
        self.kind: type[BaseException] = Interrupted
        self._armed = False
        self._own = {__file__}
        set_interrupt = ctypes.pythonapi.PyErr_SetInterruptEx
        # A step of a `for` calls what it iterates over without looking for signals afterwards: what comes so within the
        # handler runs the handler at the next point of the code that it has interrupted, and not of its own.
        self._trip = map(set_interrupt, itertools.repeat(int(signal.SIGUSR1)))
        signal.signal(signal.SIGUSR1, self._handle)
        signal.signal(signal.SIGALRM, self._ring)

    def spare(self, file: str) -> None:
        """Do not count points in code of a file, which is the test's own."""
        self._own.add(file)

    def arm(self, at: int) -> None:
        """Raise at the `at`-th point from now on; 0 only counts."""
        self.count, self._at, self.where, self._armed = 0, at, "", True
        for _ in self._trip:
            return

    def arm_after(self, seconds: float) -> None:
        """Raise after a time, wherever this thread is then: also where it sleeps."""
        self.where, self._armed = "", True
        signal.setitimer(signal.ITIMER_REAL, seconds, 0.02)

    def disarm(self) -> None:
        """Raise no more."""
        self._armed = False
        signal.setitimer(signal.ITIMER_REAL, 0)

    def _handle(self, number: int, frame: FrameType | None) -> None:
        if not self._armed or frame is None:
            return
        if self._counts(frame):
            self.count += 1
            if self.count == self._at:
                self._raise(frame)
        for _ in self._trip:
            return

    def _ring(self, number: int, frame: FrameType | None) -> None:
        # In the test's own code it comes back, as the timer goes on.
        if self._armed and frame is not None and self._counts(frame):
            self._raise(frame)

    def _counts(self, frame: FrameType) -> bool:
        if is_within(frame):
            return True
        file = frame.f_code.co_filename
        return file not in self._own and not (self.kind is Interrupted and _MAKING_OBJECTS in file)

    def _raise(self, frame: FrameType) -> None:
        self._armed = False
        code = frame.f_code
        self.where = f"{os.path.basename(code.co_filename)}:{code.co_name}:{frame.f_lineno}"
        raise self.kind(self.where)


def unraisable(checks: Checks) -> None:
    """Let interrupts that come in finalizers, where nobody can hear of them, pass in silence."""

    def hook(what: sys.UnraisableHookArgs) -> None:
        if not isinstance(what.exc_value, (Interrupted, Stopped)):
            sys.__unraisablehook__(what)

    sys.unraisablehook = hook


class ThreadWatch:
    """What the threads of this process have come to, of which nobody else would hear.

    Attributes:
        deaths: The tracebacks of those that have ended by an exception.
    """

    def __init__(self) -> None:
        self.deaths: list[str] = []
        self._still_s = 0.0
        threading.excepthook = self._died
        threading.Thread(target=self._tick, name="ticks", daemon=True).start()

    def stacks(self) -> str:
        """Return where all threads are, and for how long this process has stood still as a whole at the most."""
        names = {thread.ident: thread.name for thread in threading.enumerate()}
        text = f"  no thread of this process has run for {self._still_s:.2f} s at the most\n"
        for ident, frame in sys._current_frames().items():
            text += f"  {names.get(ident)}:\n" + "".join(traceback.format_stack(frame, limit=-8))
        return text

    def _tick(self) -> None:
        before = time.monotonic()
        while True:
            time.sleep(0.1)
            now = time.monotonic()
            self._still_s, before = max(self._still_s, now - before), now

    def _died(self, ended: threading.ExceptHookArgs) -> None:
        self.deaths.append("".join(traceback.format_exception(ended.exc_type, ended.exc_value, ended.exc_traceback)))
