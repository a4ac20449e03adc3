"""What every communicator does in one way: issuing, ordering, keeping and failing, around what its backend does.

The contract that an author implements is in `rankwise.backends.contract`.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Hashable, Iterator, Sequence
from contextlib import suppress
from functools import partial
from typing import Any, NamedTuple, Protocol

from rankwise.backends.contract import Context, Contract, Gauges
from rankwise.backends.discovery import TRUSTED
from rankwise.backends.fast_calls import Caller, Shortcuts, fast_calls
from rankwise.basics.arrays import Array
from rankwise.basics.deadline import Deadline
from rankwise.basics.interrupts import aborted_by, forget_waited, has_only_waited
from rankwise.basics.messages import Status
from rankwise.basics.recording import Trail
from rankwise.basics.tracebacks import anew
from rankwise.basics.work import COMPLETED, Work
from rankwise.collective.call import Call, Prepared
from rankwise.collective.fingerprint import Fingerprint, OrdersDifferError, agree
from rankwise.collective.issue_order import IssuedWork, IssueOrder
from rankwise.errors import CollectiveMismatchError, DistError, DistTimeoutError


class Watch(Protocol):
    """What a communicator asks of the watcher of the job, which answers within a fraction of a second."""

    def settle(self, context: Context, error: DistError) -> DistError:
        """Return the error that all ranks raise for a group that has failed here with `error`."""

    def explain(self, context: Context, error: DistTimeoutError, waited_for: tuple[int, ...]) -> DistTimeoutError:
        """Return a time-out's error with what is known of the ranks that it is due to."""

    def announce(self, context: Context, error: DistError) -> None:
        """Tell the others why a group has ended; waits for nothing."""


def _unnoted(*what: object) -> None:
    """Do nothing with a wait or a failure that nobody notes."""


#: How many kinds of calls are kept. A program has few; one with ever new sizes must not fill the memory.
_KEPT = 512
#: How long a wait for a message that is only looked for sleeps at the most between looks.
_LONGEST_NAP_S = 0.001
#: How long a backend may take to abort.
_ABORT_S = 0.5


class Communicator(Contract):
    """One live group on one backend."""

    def __init__(self, context: Context) -> None:
        super().__init__(context)
        #: What does each kind of call that was made, by `Call.kind`.
        self.kinds: dict[Hashable, Prepared] = {}
        #: Of which kinds of calls on arrays of another memory order than C's those of other ranks have differed.
        self.mixed: set[Hashable] = set()
        #: Who has all ranks raise the same error, and knows what they do; None where nobody can.
        self.watch: Watch | None = None
        #: Called once, with that failure.
        self.on_failure: Callable[[DistError], object] | None = None
        #: Told for how many nanoseconds others were waited for, and whether by a message and not by a collective.
        self.on_wait: Callable[..., object] = _unnoted
        #: Told why the group fails, and with it the collective that this thread has begun last, if that goes on.
        self.on_broken: Callable[[BaseException], object] = _unnoted
        #: Calls what ends this communicator.
        self.supervision = TRUSTED
        self._keeps_kinds = type(self).new_kind is not Communicator.new_kind
        self._failure: DistError | None = None
        #: Whose turn it is, and who waits for it.
        self.order = IssueOrder(f"rankwise {context.name}", partial(_titled, context))
        #: The numbers of collectives, which all ranks count alike.
        self.numbers: Iterator[int] = itertools.count()

    @property
    def failure(self) -> DistError | None:
        """The first failure that made this communicator unusable; calls raise it."""
        return self._failure

    @failure.setter
    def failure(self, error: DistError | None) -> None:
        self._failure = error
        self.order.turn.closed = error is not None

    # ------------------------------------------------------------------ blocking point-to-point

    def send(self, array: Array, dst: int, tag: int, timeout_s: float) -> None:
        """Send and wait until the buffer is the caller's again."""
        self._finish(self.isend(array, dst, tag), "send to", dst, timeout_s)

    def recv(self, array: Array, src: int | None, tag: int, timeout_s: float) -> int:
        """Receive and return the sender's group rank."""
        work = self.irecv(array, src, tag)
        self._finish(work, "recv from", src, timeout_s)
        return work.source_rank()

    def probe(self, src: int | None, tag: int, timeout_s: float) -> Status:
        """Wait for a message, and return what it is.

        Raises:
            DistTimeoutError: None has come in time.
        """
        deadline, nap_s = Deadline(timeout_s), 0.0
        while (found := self.iprobe(src, tag)) is None:
            if deadline.expired():
                names = self.context.global_ranks
                who = "anyone" if src is None else f"rank {names[src]}"
                text = f"probe on group {self.context.name!r}, rank {names[self.rank]}: timed out: nothing from {who}"
                raise self.timed_out(f"{text} within {timeout_s:g} s", () if src is None else (names[src],))
            time.sleep(nap_s)  # at first it lets others have the processor
            nap_s = min(nap_s + 1e-6, _LONGEST_NAP_S, deadline.remaining())
            if self.failure is not None:
                raise anew(self.failure)
        return found

    def _finish(self, work: Work, verb: str, peer: int | None, timeout_s: float) -> None:
        """Wait for a message; one that is given up must neither swallow the next one nor use the buffer any more."""
        try:
            work.wait(timeout_s)
        except BaseException as error:
            if not isinstance(error, DistError):
                if not (has_only_waited(error) and work.cancel()):
                    forget_waited(error)  # the message may be on its way, or here
                raise
            if not isinstance(error, DistTimeoutError):
                if not work.is_completed() and not work.cancel():
                    self.fail(error)
                raise
            if work.is_success():
                return  # it came at the last moment
            names = self.context.global_ranks
            who = "anyone" if peer is None else f"rank {names[peer]}"
            where = f"{verb} {who} on group {self.context.name!r}, rank {names[self.rank]}"
            text = f"{where}: timed out: not done within {timeout_s:g} s, waiting for {who}"
            late: DistError = self.timed_out(text, () if peer is None else (names[peer],))
            if not work.cancel():
                late = self.fail(late)
            raise late from None  # the wait within says less

    # ------------------------------------------------------------------ collectives

    def run(self, call: Call, timeout_s: float, async_op: bool = False) -> Work:
        """Carry out a collective.

        Args:
            call: What is to be done. The buffers belong to the backend until the work has ended.
            timeout_s: How long it may take, from its issue to its end.
            async_op: Return a pending work immediately; else this may block and return a completed one.
        """
        return self.issue(call, self.prepare(call), timeout_s, async_op)

    def prepare(self, call: Call) -> Prepared:
        """Return what does this kind of call.

        It is kept for later calls of the kind, if the backend has something to keep: see `new_kind`.
        """
        kind = call.kind if self._keeps_kinds else None
        found = self.kinds.get(kind)
        if found is None:
            found = None if kind is None else self.new_kind(call)
            if found is None:
                return self.once(call, self.algorithm(call))
            self.keep(kind, found)
        return found

    def keep(self, kind: Hashable, prepared: Prepared) -> None:
        """Keep what does a kind of call, by `Call.kind`."""
        if len(self.kinds) >= _KEPT:
            self.forget()
        self.kinds[kind] = prepared

    def once(self, call: Call, algorithm: Any) -> Prepared:
        """Return what does one call alone, by an algorithm."""
        return _Once(self, call, algorithm)

    def forget(self) -> None:
        """Forget what was kept for calls."""
        self.kinds.clear()
        self.mixed.clear()

    # ------------------------------------------------------------------ for the core

    def is_busy(self) -> bool:
        """Tell whether a collective is running."""
        return self.order.turn.holder is not None

    def note_to(self, trail: Trail) -> None:
        """Have waits for others, and failures of calls, noted there.

        A backend that knows for how long an operation has waited calls `on_wait` at the end of each wait, if that does
        not make calls slower.
        """
        self.on_wait, self.on_broken = trail.waited, trail.broken

    def gauges(self) -> Gauges:
        """Tell how much has moved, and what waits; called by another thread, now and then, while somebody looks."""
        return Gauges(queued={"collectives": self.order.length()})

    def shortcuts(self, group: Caller) -> Shortcuts:
        """Return the fast path of the group's plain calls; asked for once.

        By default that is what has been kept of earlier calls.
        """
        return fast_calls(self, group) if self._keeps_kinds else Shortcuts()

    def drain(self, timeout_s: float) -> None:
        """Wait until all collectives that were issued have ended."""
        self.order.drain(timeout_s)

    def fail(self, error: DistError) -> DistError:
        """Make this communicator unusable: pending and later operations raise the error that is returned.

        The first error counts, of whatever rank; so `error` may give way to what another rank has found.
        """
        kept = anew(error)
        if self.failure is None:
            self.on_broken(error)  # first, as the flight recorder writes down what it knows when a group fails
            try:
                agreed = kept if self.watch is None else self.watch.settle(self.context, kept)
            except BaseException:  # an interrupt, which may be the second: the group must end in any case
                self.give_up(kept)
                raise
            self.give_up(agreed)
        return error if self.failure in (kept, None) else anew(self.failure)

    def give_up(self, error: DistError) -> None:
        """Make this communicator unusable now: calls raise this error, unless there was one before."""
        if self.failure is None:
            self.failure = error
            self.order.abort(error)
            with suppress(DistTimeoutError):  # a backend that does not return has been told, and all go on without it
                self.supervision.call("abort", partial(self.abort, error), Deadline(_ABORT_S))
            if self.on_failure is not None:
                self.on_failure(error)

    def give_up_and_tell(self, error: DistError) -> None:
        """Make this communicator unusable now, and have the watcher of the job tell the other ranks."""
        if self.watch is not None:
            self.watch.announce(self.context, error)
        self.give_up(error)

    def process_ends(self, error: DistError) -> None:
        """Learn that the process is about to end and the program has not destroyed the group; `close` follows.

        What this rank has completed must complete on the others too. A backend that only has to bring on its way what
        it has sent overrides this, and lets `close` do so for a second at the most; by default the group is given up.

        Args:
            error: What operations that are pending are to raise, here and on the others.
        """
        self.give_up_and_tell(error)

    def shutdown(self) -> None:
        """Stop the thread that runs asynchronous collectives, then close."""
        self.order.close()
        self.forget()  # it may hold memory that is given back
        within = Deadline(self.context.timeout_s)
        self.supervision.call("close", self.close, within, f"closing group {self.context.name!r}")

    # ------------------------------------------------------------------ how derived collectives run

    def issue(self, call: Call, prepared: Prepared, timeout_s: float, async_op: bool) -> Work:
        """Run a collective in the order of issue."""
        if call.reordered is not None:
            from rankwise.collective.reordering import ByMemory  # which most programs need not load

            prepared = ByMemory(self, prepared, call.reordered)
        deadline, order, given = Deadline(timeout_s), self.order, prepared.bind(call)
        if self._failure is not None:
            raise anew(self._failure)
        if async_op or not order.enter():
            work = self.line_up(call.op, prepared, given, deadline)
            if not async_op:
                work.wait()
            return work
        try:
            self.run_in_turn(call.op, prepared, given, deadline)
        finally:
            order.turn.holder = None  # no call, see `Turn`
            if order.turn.watchers:
                order.tell()
        return COMPLETED

    def line_up(self, op: str, prepared: Prepared, given: Any, deadline: Deadline) -> IssuedWork:
        """Have a collective carried out by the group's thread when its turn comes, and return its work."""
        return self.order.later(op, partial(self.run_in_turn, op, prepared, given, deadline), deadline, self.fail)

    def run_in_turn(self, op: str, prepared: Prepared, given: Any, deadline: Deadline) -> None:
        """Carry a collective out, whose turn it is; once more if the ranks' memory orders differ, as they know then."""
        if self._failure is not None:
            raise anew(self._failure)
        sequence = next(self.numbers)
        try:
            prepared.run(given, sequence, deadline)
        except OrdersDifferError:
            self.run_in_turn(op, prepared, given, deadline)
        except BaseException as error:
            self.broken_off(op, sequence, error)
            raise

    def compare_and_run(self, call: Call, algorithm: Any, sequence: int, deadline: Deadline) -> None:
        """Compare the calls of all ranks, and run the collective; for backends with a way of their own to compare."""
        algorithm(deadline, agree(self, call.fingerprint, sequence, deadline))

    def broken_off(self, op: str, sequence: int, error: BaseException) -> None:
        """End the group after a collective that has failed half-way, and raise the error that all ranks raise.

        Returns only where the operation's own error is to be raised. Shortcuts call it too.
        """
        if isinstance(error, CollectiveMismatchError):
            return  # all ranks know, nothing has moved: the group is as good as before
        title = _titled(self.context, f"{op} #{sequence}")
        if isinstance(error, DistTimeoutError):
            raise self.fail(self.timed_out(f"{title}: {error}", error.waited_for)) from None
        if isinstance(error, DistError):
            agreed = self.fail(error)
            if agreed is not error:
                raise agreed from error
        else:
            self.fail(aborted_by(error, title))

    def timed_out(self, text: str, waited_for: Sequence[int] = ()) -> DistTimeoutError:
        """Return the error of an operation whose time is up, with what is known of the ranks that it is due to.

        Args:
            text: Which operation, on which rank, and whom it is waiting for.
            waited_for: The global ranks that it is waiting for.
        """
        error = DistTimeoutError(text)
        if self.watch is not None and self.failure is None:
            error = self.watch.explain(self.context, error, tuple(waited_for))
        error.waited_for = tuple(waited_for)
        return error


def _titled(context: Context, what: str) -> str:
    """Name a call in errors; it keeps no communicator alive."""
    return f"{what} on group {context.name!r}, rank {context.global_ranks[context.rank]}"


class _Once(NamedTuple):
    """One call that is done by an algorithm, once the calls have been compared."""

    comm: Communicator
    call: Call
    algorithm: Any

    @property
    def fingerprint(self) -> Fingerprint:
        return self.call.fingerprint

    def bind(self, call: Call) -> None:
        """Take nothing: the algorithm has it."""

    def run(self, given: None, sequence: int, deadline: Deadline) -> None:
        self.comm.compare_and_run(self.call, self.algorithm, sequence, deadline)
