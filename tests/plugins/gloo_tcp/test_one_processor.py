"""Ranks that come to run on one processor, whatever the machine has: who waits lets the other come.

They began with a processor each, so they look for what the others write before they sleep. A rank that looks keeps the
other from its processor, and both would spend what a look takes on each call.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from functools import partial

import numpy as np
import pytest

import rankwise as dist
from rankwise_testing import run_ranks

pytest.importorskip("rankwise_native")
pytestmark = pytest.mark.skipif(
    not hasattr(os, "sched_setaffinity") or len(os.sched_getaffinity(0)) < 2, reason="needs two processors"
)
TIMEOUT_S = 60.0
#: Of processor time, which other programs do not change; a look in vain takes as long as several calls.
MOST_CALL_S = 20e-6
WARM, CALLS, TURNS = 50, 60, 6


def there_and_back(array: np.ndarray, other: int) -> None:
    for turn in (0, 1):
        dist.send(array, other) if dist.get_rank() == turn else dist.recv(array, other)


def both_ways(array: np.ndarray, other: int) -> None:
    for work in (dist.irecv(np.empty_like(array), other), dist.isend(array, other)):
        assert work is not None
        work.wait()


def on_one_processor() -> dict[str, float]:
    """Return what processor time a call of each kind takes."""
    dist.init_process_group("gloo")
    array, other = np.ones(1), 1 - dist.get_rank()
    calls: dict[str, Callable[[], object]] = {
        "there and back": partial(there_and_back, array, other),
        "both ways": partial(both_ways, array, other),
        "all_reduce": partial(dist.all_reduce, array, dist.ReduceOp.MAX),
        "broadcast": partial(dist.broadcast, array, 0),
        "barrier": dist.barrier,
    }
    for call in calls.values():
        for _ in range(WARM):
            call()
    os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
    took = {name: processor_time(call) for name, call in calls.items()}
    dist.destroy_process_group()
    return took


def processor_time(call: Callable[[], object]) -> float:
    """Return the least of some measurements, as other programs also take the caches."""
    took = []
    for _ in range(TURNS):
        began = time.process_time()
        for _ in range(CALLS):
            call()
        took.append((time.process_time() - began) / CALLS)
    return min(took)


def test_ranks_that_share_a_processor_let_each_other_come() -> None:
    for took in run_ranks(on_one_processor, 2, timeout=TIMEOUT_S):
        slow = {name: f"{1e6 * s:.1f} us" for name, s in took.items() if s > MOST_CALL_S}
        assert not slow
