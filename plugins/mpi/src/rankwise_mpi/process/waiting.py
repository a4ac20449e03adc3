"""How a thread waits for MPI: it looks often at first, then ever more seldom.

A look costs about a quarter of a microsecond, so that a wait that is short costs nothing beside what is waited for.
With more ranks than cores a look is ruinous instead; so after a few the thread gives way to others, and after some
milliseconds it sleeps between two looks for a small part of what it has waited already.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from time import monotonic, sleep

#: How often to look before anything is made ready for a longer wait, and then before giving way, about half a
#: millisecond in all: a rank that yields a core on a busy machine may not have it back for long.
FIRST_LOOKS, LOOKS = 1000, 1000
#: The same where ranks share cores.
SHARED_FIRST_LOOKS, SHARED_LOOKS = 4, 1
#: For how long the thread gives way between two looks before it begins to sleep.
_YIELD_S = 0.002
#: The part of the time waited so far that one sleep takes, and the longest sleep.
_SLEEP_SHARE, _LONGEST_SLEEP_S = 0.02, 0.001
#: How often `watch` is called.
_WATCH_S = 0.001


def wait_until(test: Callable[[], bool], timeout_s: float, watch: Callable[[], None]) -> bool:
    """Return true as soon as `test()` is, or false when the time-out has passed.

    Args:
        test: Makes progress and tells whether to return.
        timeout_s: How long to wait.
        watch: Called now and then; raises what shall end the wait.
    """
    now = began = monotonic()
    watched = 0.0
    while not test():
        if now - began >= timeout_s:
            return test()
        if now - watched >= _WATCH_S:
            watch()
            watched = now
        if now - began < _YIELD_S:
            os.sched_yield()
        else:
            sleep(min((now - began) * _SLEEP_SHARE, _LONGEST_SLEEP_S))
        now = monotonic()
    return True
