"""Runs the collectives of one communicator one at a time, in the order they were issued.

A synchronous call runs on the caller's own thread when nothing is before it, without any hand-off; an asynchronous
one runs on a thread that is started by the first of them. Both obey one order, which must be the same on all ranks.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable

from rankwise.deadline import Deadline
from rankwise.errors import DistTimeoutError
from rankwise.work import FutureWork

__all__ = ["IssueOrder"]

Operation = Callable[[], None]


class IssueOrder:
    """The line in which operations wait for their turn."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._changed = threading.Condition(threading.Lock())
        self._waiting: deque[tuple[Operation, FutureWork]] = deque()
        self._busy = False
        self._closed = False
        self._thread: threading.Thread | None = None

    def now(self, operation: Operation) -> None:
        """Run `operation` when its turn comes, and return or raise what it does."""
        with self._changed:
            idle = not self._busy and not self._waiting
            if idle:
                self._busy = True
        if not idle:
            self._in_line(operation)
            return
        try:
            operation()
        finally:
            self._turn_over()

    def later(self, operation: Operation) -> FutureWork:
        """Line `operation` up for the thread, and return its work."""
        work = FutureWork()
        with self._changed:
            self._waiting.append((operation, work))
            if self._thread is None:
                self._thread = threading.Thread(target=self._serve, name=self._name, daemon=True)
                self._thread.start()
            self._changed.notify_all()
        return work

    def drain(self, timeout_s: float) -> None:
        """Wait until nothing is waiting or running.

        Raises:
            DistTimeoutError: The time-out has passed.
        """
        deadline = Deadline(timeout_s)
        with self._changed:
            while self._waiting or self._busy:
                if not self._changed.wait(deadline.remaining()) and deadline.expired():
                    raise DistTimeoutError(f"{len(self._waiting)} operations still wait after {timeout_s:g} s")

    def abort(self, error: BaseException) -> None:
        """Fail what has not begun; whoever runs is ended by its backend."""
        with self._changed:
            dropped = list(self._waiting)
            self._waiting.clear()
            self._changed.notify_all()
        for _, work in dropped:
            work.fail(error)

    def close(self) -> None:
        """Stop the thread, once what it is running has ended."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()
        if self._thread is not None and self._thread is not threading.current_thread():
            self._thread.join()

    def _in_line(self, operation: Operation) -> None:
        work = self.later(operation)
        if threading.current_thread() is self._thread:
            # A callback of a finished operation calls from the very thread that would have to serve it.
            while not work.is_completed():
                self._serve_one()
        work.wait()

    def _serve(self) -> None:
        while self._serve_one():
            pass

    def _serve_one(self) -> bool:
        with self._changed:
            while self._busy or not self._waiting:
                if self._closed and not self._waiting:
                    return False
                self._changed.wait()
            operation, work = self._waiting.popleft()
            self._busy = True
        try:
            operation()
        except BaseException as error:  # it belongs to whoever waits for the work
            self._turn_over()
            work.fail(error)
        else:
            self._turn_over()
            work.succeed()
        return True

    def _turn_over(self) -> None:
        with self._changed:
            self._busy = False
            self._changed.notify_all()
