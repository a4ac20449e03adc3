"""Steps that wait, such as for a store as a group is made: another thread takes them, while the caller looks.

That thread stays for a moment when it has taken a step, and takes those that come meanwhile: a group is made in several
steps, and a program often makes several groups.
"""

from __future__ import annotations

import contextvars
import threading
from collections.abc import Callable
from functools import partial
from queue import Empty, SimpleQueue
from typing import Any, TypeVar

from rankwise.basics.deadline import Deadline
from rankwise.basics.ending import Ending
from rankwise.basics.interrupts import heed, held, start_thread
from rankwise.basics.systems import after_fork
from rankwise.errors import DistTimeoutError

_T = TypeVar("_T")
#: What is to be done, and where its end is told; None where nothing more will come.
_Order = tuple[Callable[[], Any], Ending] | None

#: How long the caller waits until it looks, at first and later: with many ranks each look costs all others time.
_FIRST_LOOK_S, _LONGEST_LOOK_S = 0.05, 0.25
#: How long after the deadline a step may still take to find out who is missing.
_LEEWAY_S = 0.5
#: How long a thread stays without a step.
_STAY_S = 1.0

#: For each thread that has no step now where its next is put; the thread that takes one out of the list puts one there.
_idle: list[SimpleQueue[_Order]] = []
after_fork(_idle.clear)


def attended(
    step: Callable[[], _T],
    look: Callable[[], object] | None,
    deadline: Deadline,
    what: str,
    whose: Callable[[], str] = lambda: "the store of the job",
) -> _T:
    """Return what a step returns, which is done on another thread, unless `look` raises before.

    Where packets are lost, a request to the store waits far longer than it takes to notice that its host is gone. What
    is left of such a step ends by itself, with the store's own time-out.

    Args:
        step: What to do.
        look: Raises if it is of no use to wait any more; None where nobody can know.
        deadline: When the step should have ended by itself.
        what: What it belongs to, for messages.
        whose: Names the store, and who serves it, for messages.

    Raises:
        DistTimeoutError: The deadline has passed, and what the step waits for does not answer.
    """
    ending = Ending()
    _order(partial(contextvars.copy_context().run, step), ending)
    look_s = _FIRST_LOOK_S
    while not ending.wait(look_s):
        heed()
        if look is not None:
            look()
        look_s = min(1.5 * look_s, _LONGEST_LOOK_S)
        if deadline.overdue_s() > _LEEWAY_S:
            text = f"{what}: timed out: not done within {deadline.timeout_s:g} s: {whose()} does not answer"
            raise DistTimeoutError(text)
    if ending.error is not None:
        raise ending.error
    result: _T = ending.value
    return result


def dismiss() -> None:
    """Have the threads that have no step end."""
    with held:
        while _idle:
            _hand(None)


def _order(step: Callable[[], Any], ending: Ending) -> None:
    """Have a thread take a step: one that is there, or a new one."""
    with held:  # a thread that was taken out of the list gets its step, whatever signal comes
        if not _hand((step, ending)):
            orders: SimpleQueue[_Order] = SimpleQueue()  # a thread keeps its arguments for as long as it runs
            orders.put((step, ending))
            start_thread(threading.Thread(target=_serve, args=(orders,), name="rankwise meeting", daemon=True))


def _hand(order: _Order) -> bool:
    """Give a thread that has no step an order; tell whether there was one."""
    try:
        orders = _idle.pop()
    except IndexError:
        return False
    orders.put(order)
    return True


def _serve(orders: SimpleQueue[_Order]) -> None:
    order = orders.get()
    while order is not None:
        _carry_out(*order, orders)
        order = None  # while this thread waits it keeps nobody's group alive
        order = _next(orders)


def _carry_out(step: Callable[[], Any], ending: Ending, orders: SimpleQueue[_Order]) -> None:
    """Take a step; the thread is ready for another before the caller goes on, who may have it."""
    try:
        result = step()
    except BaseException as error:  # raised where it is waited for
        _idle.append(orders)
        ending.tell(None, error)
    else:
        _idle.append(orders)
        ending.tell(result)


def _next(orders: SimpleQueue[_Order]) -> _Order:
    """Return the next order; None if this thread has to end."""
    try:
        return orders.get(timeout=_STAY_S)
    except Empty:
        pass
    try:
        _idle.remove(orders)
    except ValueError:  # somebody has taken it out of the list, and is about to put an order there
        return orders.get()
    return None
