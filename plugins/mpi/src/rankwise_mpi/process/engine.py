"""The progress thread: MPI works on what is pending only while somebody calls it, and the program may be computing.

There is one for the process, and only where MPI grants MPI_THREAD_MULTIPLE. It calls each of its tasks in turn and
sleeps in between, the longer the less happens; without tasks it waits without waking up. It takes its time before
the first call too: what the program waits for immediately needs no help, and two threads that look at the same thing
are slower than one.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from time import sleep
from types import TracebackType

from rankwise.backends import start_thread
from rankwise.errors import DistBackendError

#: A task makes what progress there is, and tells whether there was any.
Task = Callable[[], bool]

_SHORTEST_S = 200e-6
#: The pause while another thread of this process is waiting for MPI, and so makes progress itself.
_STANDING_BACK_S = 0.001


class Engine:
    """Runs tasks until they are taken away. As a context it stands back while the caller waits."""

    def __init__(self) -> None:
        # Entered by the lock itself: an interrupt within `with condition` may leave it locked for good.
        self._lock = threading.Lock()
        self._changed = threading.Condition(self._lock)
        self._tasks: dict[Task, float] = {}
        self._thread: threading.Thread | None = None
        self._stopped = False
        self._idle = False
        self._running = False
        self._fresh = False
        self._waiting: set[int] = set()

    def add(self, task: Task, longest_pause_s: float = 0.001) -> None:
        """Run `task` from now on; adding it again makes it run soon.

        Args:
            task: The task.
            longest_pause_s: How seldom it may run as long as nothing happens.
        """
        self._fresh = True
        if task in self._tasks:
            return
        with self._lock:
            if self._stopped:
                return
            self._tasks = {**self._tasks, task: longest_pause_s}
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="rankwise mpi progress", daemon=True)
                try:  # noted before: an interrupt comes after the start, and the next task would start it again
                    start_thread(self._thread)
                except DistBackendError:
                    self._thread = None
                    raise
            if self._idle:
                self._changed.notify_all()

    def remove(self, task: Task, timeout_s: float = 0.0) -> bool:
        """Run `task` no more; tell whether a run that had begun was over in time, or is the caller's own."""
        with self._lock:
            self._tasks = {other: pause_s for other, pause_s in self._tasks.items() if other != task}
            if self._thread is threading.current_thread():
                return True
            return self._changed.wait_for(lambda: not self._running, timeout_s)

    def stop(self) -> None:
        """End the thread; tasks run no more."""
        with self._lock:
            self._stopped = True
            self._tasks = {}
            self._changed.notify_all()
        if self._thread is not None and self._thread is not threading.current_thread():
            self._thread.join()

    def __enter__(self) -> None:
        self._waiting.add(threading.get_ident())

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._waiting.discard(threading.get_ident())

    def _run(self) -> None:
        pause_s = _SHORTEST_S
        while self._wait_for_tasks():
            longest_s = min(self._tasks.values(), default=0.0)
            sleep(max(pause_s, min(longest_s, _STANDING_BACK_S)) if self._waiting else pause_s)
            fresh, self._fresh = self._fresh, False
            with self._lock:
                tasks, self._running = self._tasks, True
            try:
                active = [task() for task in tasks]
            finally:
                with self._lock:
                    self._running = False
                    self._changed.notify_all()
            pause_s = _SHORTEST_S if fresh or any(active) else min(1.5 * pause_s, longest_s)

    def _wait_for_tasks(self) -> bool:
        """Return true once there are tasks, false once there will be none any more."""
        if self._tasks:
            return True
        with self._lock:
            self._idle = True
            while not self._tasks and not self._stopped:
                self._changed.wait()
            self._idle = False
            return not self._stopped
