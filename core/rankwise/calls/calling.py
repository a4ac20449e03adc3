"""What the public calls have in common: how an operation is issued, and how its call ends."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from functools import partial
from threading import get_ident
from types import TracebackType
from typing import Any

import numpy as np

from rankwise.basics.arrays import Array, as_array, assign, device_of
from rankwise.basics.deadline import Deadline, Timeout, seconds
from rankwise.basics.interrupts import forget_waited, has_only_waited, is_interrupt
from rankwise.basics.recording import Ticket, title
from rankwise.basics.tracebacks import shorten, shortened
from rankwise.basics.work import COMPLETED, BoundWork, FutureWork, Work
from rankwise.collective.call import Call
from rankwise.collective.issue_order import IssuedWork
from rankwise.groups.process_group import ProcessGroup


def carry_out(
    group: ProcessGroup,
    call: Call,
    result: Any,
    async_op: bool,
    timeout: Timeout | None,
    *,
    filled: Any = None,
    own: Array = None,
    after: Callable[[], object] | None = None,
) -> Work | None:
    """Carry out a collective whose arguments have been checked, and end its public call.

    `result` are the caller's own buffers, `filled` the arrays that the operation fills for these, and `after` is called
    when it has. `own` is what the tables and records take for this rank's contribution if that is not `call.array`.
    """
    if call.array is None:
        lane, own = group.any_lane(call.op)
    else:
        own = call.array if own is None else own
        lane = group.lane(own, call.op, call.reduce_op)
    timeout_s, returns = group.timeout_s, False
    if async_op or timeout is not None or group.collected:  # almost never, and each call pays for it
        if async_op:
            group.require_feature("async", own if isinstance(own, str) else device_of(own), call.op)
        timeout_s = bounded(group, own, call.op, timeout)
        returns = async_op or get_ident() in group.collected
    group.trail.begin(call.op, own)
    work = lane.run(call, timeout_s, returns)
    return finish(group, work if after is None else CombinedWork([work], after=after), result, async_op, filled)


def issued(group: ProcessGroup, name: str, result: Any, timeout: Timeout | None, *args: Any) -> Work | None:
    """Issue a plain asynchronous call, by what is kept of its kind; None if it takes the general path.

    `name` is the shortcut of the call, `result` are the caller's buffers, and `args` what the shortcut takes besides.
    """
    features, device = group.granted, "cpu"
    if group.collected or ("async", device) not in features or not (timeout is None or ("timeout", device) in features):
        return None
    known = group.shortcuts.known(name, args)
    if known is None:
        return None
    comm, prepared, given, array = known
    op, trail = args[0] if name == "described" else name.removesuffix("_single"), group.trail
    deadline = Deadline(group.timeout_s if timeout is None else seconds(timeout))
    trail.begin(op, array)
    work = comm.line_up(op, prepared, given, deadline)
    ticket = trail.issued()
    work.hand_out(result, partial(trail.ended, ticket), partial(broken, group), partial(_named, group, ticket))
    return work


def bounded(group: ProcessGroup, device: str | Array, op: str, timeout: Timeout | None) -> float:
    """Return an operation's time-out in seconds, or raise if the backend does not take one for each call."""
    if timeout is None:
        return group.timeout_s
    group.require_feature("timeout", device if isinstance(device, str) else device_of(device), op)
    return seconds(timeout)


def finish(group: ProcessGroup, work: Work, result: Any, async_op: bool, filled: Any = None) -> Work | None:
    """End a public call: return the work if the caller asked for it, else wait.

    `result` are the caller's own buffers, `filled` the arrays that the operation fills for these.
    """
    if filled is not result:
        work = put_back(work, result, filled)
    if work is COMPLETED and not async_op and not group.collected:  # almost always
        group.trail.end()
        return None
    if group.collected and get_ident() in group.collected:
        bound = _bound(group, work, result)
        group.collected[get_ident()].append(bound)
        return bound if async_op else None
    if async_op:
        return _bound(group, work, result)
    if work is not COMPLETED:
        work.wait()
    group.trail.end()
    return None


def put_back(work: Work, result: Any, filled: Any) -> Work:
    """Return a work that ends when what an operation fills lies where the caller wants it.

    It fills the caller's buffers as arrays, and copies of those whose elements do not lie in order.
    """
    if filled is None:
        return work
    pairs = zip(result, filled, strict=True) if isinstance(filled, list) else ((result, filled),)
    copies = [
        (own, copy)
        for given, copy in pairs
        if given is not copy and type(copy) is np.ndarray and not (own := as_array(given)).flags.c_contiguous
    ]
    if not copies:
        return work

    def assign_all() -> None:
        for own, copy in copies:
            assign(own, copy)

    return CombinedWork([work], after=assign_all)


def failed(group: ProcessGroup | None, error: BaseException, call: str = "") -> None:
    """End by `broken` what needs all ranks, and note that it has failed, whichever way it went, if it had begun.

    `call` is the name of the public call, if the function that catches the error has another.
    """
    if group is not None:
        group.trail.broken(error)  # what has begun last on this thread; nothing if that has ended
        forget_waited(error)  # the others are in the same call
    broken(group, error, call)


def broken(group: ProcessGroup | None, error: BaseException, call: str = "") -> None:
    """End a public call that raises: give its group up after an interrupt, and shorten the error's traceback.

    Only the function that the program has called calls this, at its end: see `rankwise.basics.interrupts`. There is no
    group where nothing can have begun. `call` is as `failed` has it.
    """
    if group is not None and is_interrupt(error) and not has_only_waited(error):
        trace = error.__traceback__
        group.interrupted(error, call or ("a call" if trace is None else trace.tb_frame.f_code.co_name))
    shorten(error)


class Composed:
    """A public call that is made of others, as `with Composed() as call` around its body: `failed` ends it.

    Attributes:
        begun_on: The group, once the call has begun.
    """

    begun_on: ProcessGroup | None = None

    def __enter__(self) -> Composed:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is not None:
            failed(self.begun_on, error)


def _bound(group: ProcessGroup, work: Work, result: Any) -> Work:
    ticket = group.trail.issued()
    noted, ends, named = partial(group.trail.ended, ticket), partial(broken, group), partial(_named, group, ticket)
    if type(work) is not IssuedWork:
        return BoundWork(work, result, group.ranks, noted, ends, named)
    work.hand_out(result, noted, ends, named)
    return work


def _named(group: ProcessGroup, ticket: Ticket) -> str:
    """Name an operation that a group's flight recorder knows."""
    return f"{title(ticket)} on group {group.group_desc!r}"


def require_uneven(group: ProcessGroup, op: str, *lists: list[Array] | None) -> None:
    """Raise if the parts differ in size and the backend takes only equal ones."""
    for parts in lists:
        if parts and [part.size for part in parts].count(parts[0].size) != len(parts):
            group.require_feature("uneven", device_of(parts[0]), op)


class CombinedWork(FutureWork):
    """A work that ends when all of its parts have, or one has failed. Waiting for it waits for them.

    Args:
        parts: The works.
        result: What `result()` returns.
        after: What is to be done once all have ended well; called once.
    """

    def __init__(self, parts: Sequence[Work], result: Any = None, after: Callable[[], object] | None = None) -> None:
        super().__init__()
        self._parts, self._value, self._after = parts, result, after
        self._lock = threading.RLock()  # some backends call back when they are asked for an end
        self._is_over = False
        for part in parts:
            part.add_done_callback(self._look)
        if not parts:
            self._look()

    def wait(self, timeout: Timeout | None = None) -> bool:
        """Wait for the parts, each in its own way; see `Work.wait`."""
        with shortened:
            deadline = None if timeout is None else Deadline(seconds(timeout))
            for part in self._parts:
                try:
                    part.wait(None if deadline is None else deadline.remaining())
                except Exception as error:  # this work tells it in its own way
                    if is_interrupt(error) or not (part.is_completed() or deadline):
                        raise
                    if not part.is_completed():
                        break
            self._look()
            return super().wait(None if deadline is None else deadline.remaining())

    def is_completed(self) -> bool:
        """Tell whether the parts have ended; some know that only when they are asked."""
        if not self._is_over and all(part.is_completed() for part in self._parts):
            self._look()
        return super().is_completed()

    def source_rank(self) -> int:
        """Return the group rank that sent the message, if this is one."""
        (part,) = self._parts
        return part.source_rank()

    @property
    def nbytes(self) -> int:  # type: ignore[override]
        """How many bytes of its message it has got, if this is one that is received."""
        return self._parts[0].nbytes if len(self._parts) == 1 else 0

    def cancel(self) -> bool:
        """Withdraw the message, if this is one that is to be received."""
        (part,) = self._parts
        return part.cancel()

    def _look(self, _: Work | None = None) -> None:
        """End if the parts have, on the thread that sees it first."""
        with self._lock:
            errors = [error for part in self._parts if (error := part.exception()) is not None]
            if self._is_over or not (errors or all(part.is_completed() for part in self._parts)):
                return
            self._is_over = True
        if errors:
            self.fail(errors[0])
        else:
            self._finish()

    def _finish(self) -> None:
        after, self._after = self._after, None
        try:
            if after is not None:
                after()
        except Exception as error:  # raised where it is waited for
            self.fail(error)
        else:
            self.succeed(self._value)
