"""How a thread waits for NCCL, which goes on by itself: it asks, and sleeps in between where signals are heard."""

from __future__ import annotations

import time
from collections.abc import Callable

#: At first often, as NCCL takes most operations within some microseconds.
_SHORTEST_PAUSE_S, _LONGEST_PAUSE_S = 5e-6, 2e-3


def settled(is_busy: Callable[[], bool], given_up: Callable[[], bool] | None = None) -> bool:
    """Wait until NCCL is no longer busy; return False if that was given up meanwhile."""
    pause_s = _SHORTEST_PAUSE_S
    while is_busy():
        if given_up is not None and given_up():
            return False
        time.sleep(pause_s)
        pause_s = min(2 * pause_s, _LONGEST_PAUSE_S)
    return True
