"""Steps in making a group that wait for a store: another thread takes them; the caller checks who is there."""

from __future__ import annotations

import contextvars
import threading
from collections.abc import Callable
from typing import TypeVar

from rankwise.basics.deadline import Deadline
from rankwise.basics.ending import Ending
from rankwise.basics.held import heed
from rankwise.basics.threads import start
from rankwise.errors import DistTimeoutError

__all__ = ["attended"]

_T = TypeVar("_T")

#: How long the caller waits until it looks, at first and later: with many ranks each look costs all others time.
_LOOK_S, _LONGEST_LOOK_S = 0.05, 0.25
#: How long after the deadline a step may still take to find out who is missing.
_LEEWAY_S = 0.5
_STORE = "the store of the job"


def attended(
    step: Callable[[], _T], look: Callable[[], object] | None, deadline: Deadline, what: str, store: str = _STORE
) -> _T:
    """Return what a step returns, unless `look` raises before.

    Where packets are lost, a request to the store waits far longer than it takes to notice that its host is gone. What
    is left of such a step ends by itself, with the store's own time-out.

    Args:
        step: What to do, on a thread of its own.
        look: Raises if it is of no use to wait any more; None where nobody can know.
        deadline: When the step should have ended by itself.
        what: What it belongs to, for messages.
        store: The store, for messages, and who serves it.

    Raises:
        DistTimeoutError: The deadline has passed, and the store does not answer.
    """
    ending = Ending()
    run = contextvars.copy_context().run
    start(threading.Thread(target=run, args=(_carry_out, step, ending), name="rankwise meeting", daemon=True))
    look_s = _LOOK_S
    while not ending.wait(look_s):
        heed()
        if look is not None:
            look()
        look_s = min(1.5 * look_s, _LONGEST_LOOK_S)
        if deadline.overdue_s() > _LEEWAY_S:
            text = f"{what}: timed out: not done within {deadline.timeout_s:g} s: {store} does not answer"
            raise DistTimeoutError(text)
    if ending.error is not None:
        raise ending.error
    result: _T = ending.value
    return result


def _carry_out(step: Callable[[], object], ending: Ending) -> None:
    try:
        result = step()
    except BaseException as error:  # it belongs to whoever waits
        ending.tell(None, error)
    else:
        ending.tell(result)
