"""Runs the collectives of one communicator one at a time, in the order they were issued.

A synchronous call runs on the caller's own thread when nothing is ahead of it, without any hand-off. Asynchronous ones
run on a thread that the first of them starts. Both obey one order, which must be the same on all ranks.
"""

from __future__ import annotations

import contextvars
import threading
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from threading import get_ident
from time import monotonic
from typing import TYPE_CHECKING, Any

from rankwise.basics import native
from rankwise.basics.deadline import Deadline, Timeout, seconds
from rankwise.basics.ending import Ending, ring
from rankwise.basics.interrupts import heed, held, only_waited, start_thread
from rankwise.basics.tracebacks import anew, shorten
from rankwise.basics.work import FutureWork, Work, future_of, state
from rankwise.errors import DistError, DistTimeoutError, GroupAbortedError

if TYPE_CHECKING:
    from concurrent.futures import Future

Operation = Callable[[], None]
#: What to do with the error of an operation whose time has passed before its turn came: the order is broken then.
GiveUp = Callable[[DistError], DistError | None]


class IssuedWork(FutureWork):
    """An operation in the line, as the program sees it. Its own time-out bounds every wait, even before its turn.

    The thread that carries it out notes its end in the flight recorder. Every call of Python counts here, as a program
    may issue many: names and futures are made when they are asked for.
    """

    #: What `hand_out` has been told.
    _result: Any = None
    _noted: Callable[[BaseException | None], object] | None = None
    _broken: Callable[[BaseException], object] = staticmethod(shorten)
    _named: Callable[[], str] | None = None

    def __init__(
        self, order: IssueOrder, title: str, operation: Operation, deadline: Deadline, give_up: GiveUp
    ) -> None:
        self._ending, self._source = Ending(), None  # as the base does, which would be one call more
        self._order, self._title, self._deadline, self._give_up = order, title, deadline, give_up
        #: What carries it out; nothing once it has begun.
        self.operation: Operation = operation

    def hand_out(
        self,
        result: Any,
        noted: Callable[[BaseException | None], object],
        broken: Callable[[BaseException], object],
        named: Callable[[], str],
    ) -> None:
        """Learn what the program's call has to say of it, which may have ended meanwhile.

        `result` are the program's own buffers; `noted` notes the end, as often as it is told; `broken` ends a call that
        raises; and `named` says what it is, where it is printed.
        """
        self._result, self._broken, self._named, self._noted = result, broken, named, noted
        if self._ending.told:
            noted(self._ending.error)

    def succeed(self, result: Any = None, source: int | None = None) -> None:
        """End the work well, and note that."""
        self._note(None)
        super().succeed(result, source)
        self._note(None)  # if it was handed out in between

    def fail(self, error: BaseException) -> None:
        """End the work with an error, and note that."""
        if not self._ending.told:
            self._note(error)
        super().fail(error)
        self._note(self._ending.error)

    def _note(self, error: BaseException | None) -> None:
        if self._noted is not None:
            self._noted(error)

    def wait(self, timeout: Timeout | None = None) -> bool:
        """Wait; on the thread that serves the line, by serving it."""
        ending = self._ending
        try:
            if not ending.told and self._order.server == get_ident():
                self._order.serve_while_waiting(self)
            if not ending.told:
                timeout_s = self._deadline.at_s - monotonic() + _LEEWAY_S if timeout is None else seconds(timeout)
                try:
                    in_time = ending.wait(timeout_s)
                except BaseException as error:
                    only_waited(error)  # no wait changes anything, see `Ending`
                    raise
                if not in_time:
                    self._wait_on(None if timeout is None else timeout_s)
            if ending.error is not None:
                raise anew(ending.error)
            return True
        except BaseException as error:
            self._broken(error)
            raise

    def _wait_on(self, timeout_s: float | None) -> None:
        """Go on after a wait whose time is up; None is the operation's own time-out."""
        if timeout_s is not None:
            if not self._ending.told:
                late = f"{self._what()}: timed out: not done after {timeout_s:g} s; it goes on"
                raise DistTimeoutError(late)
        elif self._order.holds_up(self):
            self._late("operations before it in the group take longer")
        elif not self._ending.wait(_OWN_END_S):
            self._late("and it does not end by itself")

    def _late(self, why: str) -> None:
        """Give the operation up, unless it has ended meanwhile."""
        if not self._ending.told:
            text = f"{self._what()}: timed out: not done within {self._deadline.timeout_s:g} s: {why}"
            late = DistTimeoutError(text)
            self.fail(self._give_up(late) or late)

    def _what(self) -> str:
        return self._order.title(self._title)

    def result(self) -> Any:
        """Wait, and return what the operation has filled."""
        self.wait()
        return self._result

    def get_future(self) -> Future[Any]:
        """Return a future of `result()`."""
        future = future_of(self, lambda: self._result)
        self._ending.then(future.end)
        return future

    def add_done_callback(self, callback: Callable[[Work], object]) -> None:
        """Call `callback(work)` once the operation has ended, in the context of this call."""
        run = contextvars.copy_context().run
        self._ending.then(lambda: run(callback, self))

    def __repr__(self) -> str:
        return f"<Work: {'' if self._named is None else f'{self._named()}: '}{state(self)}>"

    def _repr_html_(self) -> str:
        from rankwise.basics.rich_display import facts

        what = self._title if self._named is None else self._named()
        return facts("work", (("operation", what), ("state", state(self))))


#: An operation that has its turn ends by its own time-out; only one that has not is ended by its waiter.
_LEEWAY_S = 0.02
#: How long one that has its turn may take to say whom it has waited for, on a machine that is busy.
_OWN_END_S = 2.0
#: How often a thread that waits for the turn checks by itself.
_LOOK_S = 0.5


class Turn:
    """Whose turn it is to make a collective. Compiled parts have the same, which takes neither a lock nor a call.

    Attributes:
        holder: What stands for the call that has the turn; None if no call has it. The call that has it gives it back
            by setting this to None, without a call, as what a signal handler raises at the beginning of one would leave
            the turn taken for good. Then the watchers must be told.
        queued: How many operations wait for it in the line; while there are any, it goes to the first of them alone.
        watchers: How many threads wait for a change. To tell nobody costs as much as half a small collective.
        closed: Whether the group has failed or ended, so that nobody takes the turn any more.
    """

    __slots__ = ("_lock", "closed", "holder", "queued", "watchers")

    def __init__(self, lock: AbstractContextManager[Any]) -> None:
        self._lock = lock
        self.holder: Any = None
        self.queued = self.watchers = 0
        self.closed = False

    def take(self, holder: object, /) -> bool:
        """Take the turn if nobody has it or is before; tell whether it is the holder's now."""
        with self._lock:
            if self.holder is not None or self.queued or self.closed:
                return False
            self.holder = holder
        return True


def make_turn(lock: AbstractContextManager[Any]) -> Turn:
    """Return a turn that nobody has; the lock is that of the line."""
    compiled = native.module()
    made: Turn = Turn(lock) if compiled is None else compiled.Turn()
    return made


#: The line of those groups that have never made an asynchronous call; nothing is ever put into it.
_NONE: deque[IssuedWork] = deque()


class IssueOrder:
    """The line in which operations wait for their turn.

    Args:
        name: Of the thread that runs asynchronous operations.
        title: Returns what errors call an operation, by its name.

    Attributes:
        server: The number of that thread, while it runs.
    """

    def __init__(self, name: str, title: Callable[[str], str] = str) -> None:
        self._name, self.title, self.server = name, title, 0
        # Entered by the lock itself: an interrupt within `with condition` may leave it locked for good. And more than
        # once: a signal handler may abort the group while the code that it has interrupted holds the lock.
        self._lock = threading.RLock()
        #: What wakes the threads that wait for a change: a lock for each, which is released.
        self._bells: list[threading.Lock] = []
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
            return any(waiting is work for waiting in self._waiting)

    def length(self) -> int:
        """Return how many operations wait for their turn."""
        return len(self._waiting)

    def tell(self) -> None:
        """Wake the threads that wait for the turn."""
        with self._lock:
            ring(self._bells)

    def later(self, title: str, operation: Operation, deadline: Deadline, give_up: GiveUp) -> IssuedWork:
        """Line `operation` up for the thread, and return its work; the title says in errors what it is."""
        work = IssuedWork(self, title, operation, deadline, give_up)
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
            self._waiting.append(work)
            self.turn.queued = len(self._waiting)
            for bell in self._bells:  # as `tell` does, which would be one call more; who waits forgets its own
                try:
                    bell.release()
                except RuntimeError:  # it was rung before
                    continue
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
        for work in dropped:
            work.fail(error)

    def close(self) -> None:
        """Stop the thread, once what it is running has ended."""
        with self._lock:
            self._closed = self.turn.closed = True
            self.tell()
        if self._thread is not None and self._thread is not threading.current_thread():
            self._thread.join()

    def serves_here(self) -> bool:
        """Tell whether the caller is the thread that runs asynchronous operations."""
        return get_ident() == self.server

    def serve_while_waiting(self, work: IssuedWork) -> None:
        """On the thread that serves, which is in a callback of a finished operation: serve until `work` has ended."""
        while not work.is_completed() and self._serve_one():
            pass

    def _serve(self) -> None:
        self.server = get_ident()
        while self._serve_one():
            pass
        self.server = 0

    def _serve_one(self) -> bool:
        with self._lock:
            while (
                not self._waiting
            ):  # nobody need be told of the turn meanwhile: it costs a call, and wakes this thread
                if self._closed:
                    return False
                self._wait(forever=True)
            with self._watching():
                self.turn.queued = len(self._waiting)
                while self.turn.holder is not None or not self._waiting:
                    if not self._waiting:
                        return True
                    self._wait()
                    self.turn.queued = len(self._waiting)
                work = self._waiting.popleft()
                self.turn.holder = work  # nobody else takes it while operations are queued
                self.turn.queued = len(self._waiting)
        operation, work.operation = work.operation, _begun
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

    def _wait(self, timeout_s: float | None = None, forever: bool = False) -> bool:
        # A thread that gives the turn back may be interrupted before it tells so.
        longest_s = -1 if forever or self.turn.holder is None else _LOOK_S
        bell = threading.Lock()
        bell.acquire()
        self._bells.append(bell)  # under the lock, which is let go meanwhile, however often it is held
        kept = self._lock._release_save()  # type: ignore[attr-defined]
        try:
            return bell.acquire(timeout=longest_s if timeout_s is None else min(timeout_s, _LOOK_S))
        finally:
            self._lock._acquire_restore(kept)  # type: ignore[attr-defined]
            if bell in self._bells:
                self._bells.remove(bell)


def _begun() -> None:
    """Stand for an operation that has begun, whose work must not keep its arrays."""
