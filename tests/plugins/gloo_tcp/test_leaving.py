"""What is left of a group that was destroyed, before the garbage collector comes: nothing."""

from __future__ import annotations

import gc
import threading
import weakref

import numpy as np

import rankwise as dist
from rankwise_testing import RankPool

TIMEOUT_S = 10.0


def live_without_a_garbage_collector() -> list[str]:
    """Return what of a group is still there once it has ended."""
    gc.disable()
    try:
        dist.init_process_group("gloo", timeout=30)
        dist.all_reduce(np.ones(100))
        dist.all_reduce(np.ones(100), async_op=True).wait()
        dist.barrier()
        [communicator] = dist.group.WORLD.communicators()
        gone = {"communicator": threading.Event(), "engine": threading.Event()}
        weakref.finalize(communicator, gone["communicator"].set)
        weakref.finalize(communicator.engine, gone["engine"].set)
        del communicator
        dist.destroy_process_group()
        # A thread that has served them may be on its way out of its last call.
        return [name for name, event in gone.items() if not event.wait(TIMEOUT_S)]
    finally:
        gc.enable()


def test_a_group_that_is_destroyed_does_not_wait_for_the_garbage_collector(pool: RankPool) -> None:
    assert pool.run(live_without_a_garbage_collector) == [[]] * 3
