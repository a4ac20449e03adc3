"""Runs the collectives of one communicator one at a time, in the order they were issued.

A synchronous call runs on the caller's own thread when nothing is ahead of it, without any hand-off. Asynchronous ones
run on a thread that the first of them starts. Both obey one order, which must be the same on all ranks.
"""

from __future__ import annotations

import contextvars
import threading
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import NamedTuple

from rankwise.basics.deadline import Deadline, Timeout
from rankwise.basics.interrupts import heed, held, start_thread
from rankwise.basics.work import FutureWork
from rankwise.collective.turn import make_turn
from rankwise.errors import DistError, DistTimeoutError, GroupAbortedError

__all__ = ["IssueOrder"]

Operation = Callable[[], None]
#: What to do with the error of an operation whose time has passed before its turn came: the order is broken then.
GiveUp = Callable[[DistError], DistError | None]


class _QueuedWork(FutureWork):
    """An operation in the line. Its own time-out bounds every wait for it, even before its turn has come."""

    def __init__(self, order: IssueOrder, title: str, deadline: Deadline, give_up: GiveUp) -> None:
        super().__init__()
        self._order, self._title, self._deadline, self._give_up = order, title, deadline, give_up

    def wait(self, timeout: Timeout | None = None) -> bool:
        """Wait; on the thread that serves the line, by serving it."""
        self._order.serve_while_waiting(self)
        if self.is_completed():
            return super().wait()
        if timeout is not None:
            return self._wait_within(timeout)
        try:
            return super().wait(self._deadline.remaining() + _LEEWAY_S)
        except DistTimeoutError:
            if self._order.holds_up(self):
                return self._late("operations before it in the group take longer")
        try:
            return super().wait(_OWN_END_S)
        except DistTimeoutError:
            return self._late("and it does not end by itself")

    def _late(self, why: str) -> bool:
        """Give the operation up, unless it has ended meanwhile."""
        if not self.is_completed():
            late = DistTimeoutError(f"{self._title}: timed out: not done within {self._deadline.timeout_s:g} s: {why}")
            self.fail(self._give_up(late) or late)
        return super().wait()

    def _wait_within(self, timeout: Timeout) -> bool:
        try:
            return super().wait(timeout)
        except DistTimeoutError as error:
            if self.is_completed():
                return super().wait()
            raise DistTimeoutError(f"{self._title}: {error}; it goes on") from None


class _Item(NamedTuple):
    operation: Operation
    work: FutureWork


#: An operation that has its turn ends by its own time-out; only one that has not is ended by its waiter.
_LEEWAY_S = 0.02
#: How long one that has its turn may take to say whom it has waited for, on a machine that is busy.
_OWN_END_S = 2.0
#: How often a thread that waits for the turn checks by itself.
_LOOK_S = 0.5


#: The line of those groups that have never made an asynchronous call; nothing is ever put into it.
_NONE: deque[_Item] = deque()


class IssueOrder:
    """The line in which operations wait for their turn."""

    def __init__(self, name: str) -> None:
        self._name = name
        # Entered by the lock itself: an interrupt within `with condition` may leave it locked for good. And more than
        # once: a signal handler may abort the group while the code that it has interrupted holds the lock.
        self._lock = threading.RLock()
        #: Made by the first that waits: most groups have none.
        self._changed: threading.Condition | None = None
        self.turn = make_turn(self._lock)
        self._waiting = _NONE
        self._closed = False
        self._thread: threading.Thread | None = None

    def __repr__(self) -> str:
        return f"<IssueOrder of group {self._name!r}: {self.length()} waiting>"

    def enter(self) -> bool:
        """Take the turn if nobody is before the caller, who then must give it back; tell whether it is the caller's."""
        me = object()
        try:
            return self.turn.take(me)
        except BaseException:
            if self.turn.holder is me:  # an interrupt has come on the way out
                self.turn.holder = None
            raise

    def holds_up(self, work: FutureWork) -> bool:
        """Tell whether an operation still waits for its turn."""
        with self._lock:
            return any(item.work is work for item in self._waiting)

    def length(self) -> int:
        """Return how many operations wait for their turn."""
        return len(self._waiting)

    def tell(self) -> None:
        """Wake the threads that wait for the turn."""
        with self._lock:
            if self._changed is not None:
                self._changed.notify_all()

    def later(self, title: str, operation: Operation, deadline: Deadline, give_up: GiveUp) -> FutureWork:
        """Line `operation` up for the thread, and return its work; the title says in errors what it is."""
        work = _QueuedWork(self, title, deadline, give_up)
        with self._lock:
            if self._closed:
                raise GroupAbortedError("the group has been destroyed")
            if self._waiting is _NONE:
                self._waiting = deque()
            if self._thread is None:
                # In a copy of the caller's context, so that callbacks find the caller's world.
                serve = contextvars.copy_context().run
                thread = threading.Thread(target=serve, args=(self._serve,), name=self._name, daemon=True)
                start_thread(thread)
                self._thread = thread
            self._waiting.append(_Item(operation, work))
            self.turn.queued = len(self._waiting)
            self.tell()
        return work

    def drain(self, timeout_s: float) -> None:
        """Wait until nothing is waiting or running.

        Raises:
            DistTimeoutError: The time-out has passed.
        """
        deadline = Deadline(timeout_s)
        with self._watching():
            while self._waiting or self.turn.holder is not None:
                heed()
                if not self._wait(min(deadline.remaining(), held.patience_s)) and deadline.expired():
                    raise DistTimeoutError(
                        f"timed out: {len(self._waiting)} operations still wait after {timeout_s:g} s"
                    )

    def abort(self, error: BaseException) -> None:
        """Fail what has not begun; an operation that runs is ended by its backend."""
        with self._lock:
            dropped = list(self._waiting)
            self._waiting.clear()
            self.turn.queued = 0
            self.tell()
        for item in dropped:
            item.work.fail(error)

    def close(self) -> None:
        """Stop the thread, once what it is running has ended."""
        with self._lock:
            self._closed = True
            self.tell()
        if self._thread is not None and self._thread is not threading.current_thread():
            self._thread.join()

    def serves_here(self) -> bool:
        """Tell whether the caller is the thread that runs asynchronous operations."""
        return threading.current_thread() is self._thread

    def serve_while_waiting(self, work: FutureWork) -> None:
        """On the thread that serves, which is in a callback of a finished operation: serve until `work` has ended."""
        if self.serves_here():
            while not work.is_completed() and self._serve_one():
                pass

    def _serve(self) -> None:
        while self._serve_one():
            pass

    def _serve_one(self) -> bool:
        with self._watching():
            self.turn.queued = len(self._waiting)
            while self.turn.holder is not None or not self._waiting:
                if self._closed and not self._waiting:
                    return False
                self._wait()
                self.turn.queued = len(self._waiting)
            operation, work = self._waiting.popleft()
            self.turn.holder = work  # nobody else takes it while operations are queued
            self.turn.queued = len(self._waiting)
        failure = None
        try:
            operation()
        except BaseException as error:  # raised where the work is waited for
            failure = error
        self.turn.holder = None
        if self.turn.watchers:
            self.tell()
        if failure is None:
            work.succeed()
        else:
            work.fail(failure)
        return True

    @contextmanager
    def _watching(self) -> Iterator[None]:
        """Hold the lock, and be told from the first look on: the turn is given back without the lock."""
        with self._lock:
            self.turn.watchers += 1
            try:
                yield
            finally:
                self.turn.watchers -= 1

    def _wait(self, timeout_s: float | None = None) -> bool:
        # A thread that gives the turn back may be interrupted before it tells so.
        longest_s = None if self.turn.holder is None else _LOOK_S
        if self._changed is None:  # under the lock
            self._changed = threading.Condition(self._lock)
        return self._changed.wait(longest_s if timeout_s is None else min(timeout_s, _LOOK_S))
