"""What the public calls have in common: the terms on which an operation is issued, and how its call ends."""

from __future__ import annotations

from functools import partial
from threading import get_ident
from typing import Any

import numpy as np

from rankwise.basics.arrays import Array, as_array, assign, device_of
from rankwise.basics.deadline import Deadline, Timeout, seconds
from rankwise.basics.interrupts import forget_waited, has_only_waited, is_interrupt
from rankwise.basics.recording import Ticket, title
from rankwise.basics.tracebacks import shorten
from rankwise.basics.work import COMPLETED, BoundWork, Work
from rankwise.calls.combined import CombinedWork
from rankwise.collective.issue_order import IssuedWork
from rankwise.groups.process_group import ProcessGroup

__all__ = ["bounded", "broken", "failed", "finish", "issued", "put_back", "require_uneven", "terms"]


def terms(
    group: ProcessGroup, device: str | Array, op: str, async_op: bool, timeout: Timeout | None
) -> tuple[float, bool]:
    """Begin a collective: return its time-out in seconds, and whether its call returns before it has ended.

    Args:
        group: The group.
        device: The array, or the kind of device if there is none.
        op: The operation.
        async_op: Whether the caller asks for a work.
        timeout: The time-out that the caller has given.
    """
    if timeout is None and not async_op and not group.collected:  # almost always, and each call pays for it
        group.trail.begin(op, device)
        return group.timeout_s, False
    if async_op:
        group.require_feature("async", device if isinstance(device, str) else device_of(device), op)
    timeout_s = bounded(group, device, op, timeout)
    group.trail.begin(op, device)
    return timeout_s, async_op or get_ident() in group.collected


def issued(group: ProcessGroup, name: str, result: Any, timeout: Timeout | None, *args: Any) -> Work | None:
    """Issue a plain asynchronous call, by what is kept of its kind; None if it takes the general path.

    Args:
        group: The group.
        name: The shortcut of the call.
        result: The caller's own buffers, which the operation fills.
        timeout: The time-out that the caller has given.
        args: What the shortcut takes besides.
    """
    features, device = group.granted, "cpu"
    if group.collected or ("async", device) not in features or not (timeout is None or ("timeout", device) in features):
        return None
    known = group.shortcuts.known(name, args)
    if known is None:
        return None
    comm, prepared, given, array = known
    op, trail = name.removesuffix("_single"), group.trail
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

    Args:
        group: The group.
        work: What the communicator returned.
        result: The caller's own buffers, which the operation fills.
        async_op: Whether the caller asked for the work.
        filled: The array, or list of arrays, that it fills for these.
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

    Args:
        work: The operation.
        result: The caller's own buffers, or buffer.
        filled: What it fills: these as arrays, and copies of those whose elements do not lie in order.
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

    Args:
        group: The group, if the call has come as far as knowing it.
        error: What the public call is about to raise again.
        call: Its name, if the function that catches the error has another.
    """
    if group is not None:
        group.trail.broken(error)  # what has begun last on this thread; nothing if that has ended
        forget_waited(error)  # the others are in the same call
    broken(group, error, call)


def broken(group: ProcessGroup | None, error: BaseException, call: str = "") -> None:
    """End a public call that raises: give its group up after an interrupt, and shorten the error's traceback.

    Only the function that the program has called calls this, at its end: see `rankwise.basics.interrupts`.

    Args:
        group: The group, if the call has come as far as knowing it; None where nothing can have begun.
        error: What the public call is about to raise again.
        call: Its name, if the function that catches the error has another.
    """
    if group is not None and is_interrupt(error) and not has_only_waited(error):
        trace = error.__traceback__
        group.interrupted(error, call or ("a call" if trace is None else trace.tb_frame.f_code.co_name))
    shorten(error)


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
