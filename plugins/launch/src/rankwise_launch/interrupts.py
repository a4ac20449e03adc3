"""The signals that a launcher takes, as something that an event loop can wait for."""

from __future__ import annotations

import contextlib
import os
import signal
import threading
from collections.abc import Iterable, Iterator
from types import FrameType, TracebackType
from typing import Any

from rankwise.launching import signals

#: Those that end a job.
ENDING = signals("SIGINT", "SIGTERM", "SIGHUP")
#: Those that are for the ranks: by them schedulers announce a preemption or the end of the time, and users ask for a
#: checkpoint. Open MPI's mpiexec passes on the first three too; SGE and limits of the processor's time send SIGXCPU.
FOR_RANKS = signals("SIGUSR1", "SIGUSR2", "SIGALRM", "SIGXCPU")
#: Those that suspend a job until SIGCONT.
SUSPENDING = signals("SIGTSTP")


def heeded(numbers: Iterable[signal.Signals]) -> list[signal.Signals]:
    """Return those signals that are not ignored, as SIGHUP under nohup, and SIGINT in a script's background."""
    return [number for number in numbers if signal.getsignal(number) is not signal.SIG_IGN]


@contextlib.contextmanager
def without_ranks() -> Iterator[None]:
    """Have the signals that are for ranks do nothing as long as there are none."""
    before = _install(FOR_RANKS, lambda number, frame: None)
    try:
        yield
    finally:
        _restore(before)


class Interrupts:
    """While entered, notes the signals instead of letting them act; a no-op outside the main thread.

    Once one has come that ends the job, the process is on its way to the exit code that tells so: until then none of
    these does anything any more. Signals that are ignored stay ignored.

    Attributes:
        received: The signals that have come, in order.
    """

    def __init__(self) -> None:
        self.received: list[int] = []
        self._reader, self._writer = os.pipe()
        for end in (self._reader, self._writer):
            os.set_blocking(end, False)
        self._before: dict[int, Any] = {}
        self._wakeup_before = -1

    def __enter__(self) -> Interrupts:
        if threading.current_thread() is threading.main_thread():
            self._before = _install((*ENDING, *FOR_RANKS, *SUSPENDING), self._note)
            self._wakeup_before = signal.set_wakeup_fd(self._writer, warn_on_full_buffer=False)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if threading.current_thread() is threading.main_thread():
            signal.set_wakeup_fd(self._wakeup_before)
        if not set(ENDING).isdisjoint(self.received):
            self._before.update(dict.fromkeys(self._before.keys() & set(ENDING), signal.SIG_IGN))
        _restore(self._before)
        os.close(self._reader)
        os.close(self._writer)

    def fileno(self) -> int:
        """Return a descriptor that is readable when a signal has come."""
        return self._reader

    def clear(self) -> None:
        """Make the descriptor wait for the next signal."""
        with contextlib.suppress(BlockingIOError):
            os.read(self._reader, 4096)

    def _note(self, number: int, frame: FrameType | None) -> None:
        self.received.append(number)


def _install(numbers: Iterable[signal.Signals], handler: Any) -> dict[int, Any]:
    """Handle signals, outside the main thread none; return what did so before."""
    if threading.current_thread() is not threading.main_thread():
        return {}
    return {number: signal.signal(number, handler) for number in heeded(numbers)}


def _restore(before: dict[int, Any]) -> None:
    for number, handler in before.items():
        signal.signal(number, handler)
