"""What signal handlers raise, as Control-C does in a notebook: wherever it comes, nothing stands still afterwards."""

from __future__ import annotations

import itertools
import random
import signal
from contextlib import suppress

import numpy as np
import pytest

import rankwise as dist
from rankwise_testing import RankPool

pytestmark = pytest.mark.usefixtures("both_ways")

TRIALS, LATEST_S = 15, 0.004
SIZES = (1, 2_000, 60_000)
OPS = ("all_reduce", "asynchronous", "broadcast", "messages")


def call(group: dist.ProcessGroup, array: np.ndarray, op: str) -> None:
    if op == "messages":
        there_and_back = [dist.send, dist.recv] if dist.get_rank() == 0 else [dist.recv, dist.send]
        for move in there_and_back:
            move(array, 1 - dist.get_rank(), group)
    elif op == "broadcast":
        dist.broadcast(array, 0, group)
    else:
        work = dist.all_reduce(array, dist.ReduceOp.BOR, group, async_op=op == "asynchronous")
        if work is not None:
            work.wait()


def call_until_interrupted(group: dist.ProcessGroup, array: np.ndarray, op: str, after_s: float) -> None:
    """Call again and again; rank 0 is interrupted after a while, and gives the group up."""
    rank = dist.get_rank()
    with suppress(KeyboardInterrupt if rank == 0 else dist.GroupAbortedError):
        if rank == 0:
            # Again after a while, as an exception in a finalizer is ignored.
            signal.setitimer(signal.ITIMER_REAL, after_s, 0.2)
        for _ in itertools.count():
            call(group, array, op)
    if rank == 0:
        signal.setitimer(signal.ITIMER_REAL, 0)
        # Where it came between two calls, the group is whole.
        dist.abort_process_group(group)


def interrupted(seed: int) -> None:
    dist.init_process_group("gloo", timeout=20)
    signal.signal(signal.SIGALRM, signal.default_int_handler)
    chance = random.Random(seed)
    for _ in range(TRIALS):
        group = dist.new_group([0, 1])
        array = np.ones(chance.choice(SIZES), np.int64)
        op, after_s = chance.choice(OPS), chance.uniform(0.0002, LATEST_S)
        dist.barrier()
        if dist.get_rank() < 2:
            call_until_interrupted(group, array, op, after_s)
        dist.destroy_process_group(group)
    array = np.ones(3)
    dist.all_reduce(array)
    assert array.tolist() == [3.0] * 3
    dist.destroy_process_group()


def test_an_interrupt_ends_the_group_and_nothing_else(pool: RankPool) -> None:
    pool.run(interrupted, 7)
