"""How late something was by its own fault: not for want of a processor on a machine that others use too."""

from __future__ import annotations

import threading
import time

_STEP_S = 5e-3


class Timed:
    """A block that is to end after some seconds, with a thread beside it that only wants to run now and then.

    While that thread is kept from running, so are others, and nothing can be said of those who wait for them.

    Attributes:
        late_s: How much later the block ended, without the time for which the thread was kept from running.
    """

    def __init__(self, due_s: float) -> None:
        self._due_s = due_s
        self._over = threading.Event()
        #: From when to when it was kept.
        self._kept: list[tuple[float, float]] = []
        self._thread = threading.Thread(target=self._run, name="beside what is timed", daemon=True)

    def __enter__(self) -> Timed:
        self._thread.start()
        self._due = time.monotonic() + self._due_s
        return self

    def __exit__(self, *_: object) -> None:
        end = time.monotonic()
        self._over.set()
        self._thread.join()
        kept_s = sum(max(0.0, min(till, end) - max(since, self._due)) for since, till in self._kept)
        self.late_s = end - self._due - kept_s

    def _run(self) -> None:
        while not self._over.is_set():
            wanted = time.monotonic() + _STEP_S
            time.sleep(_STEP_S)
            self._kept.append((wanted, time.monotonic()))
