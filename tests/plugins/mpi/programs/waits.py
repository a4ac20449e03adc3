"""The ranks of one host know how long they have waited for the last to come, and for a message.

With `apart` in the arguments the ranks meet as they do on several hosts, where MPI waits and moves in one call.
"""

from __future__ import annotations

import sys
from threading import Event

import numpy as np

import rankwise as dist
from rankwise_mpi.process.process import Process

CALLS, LATE_S = 5, 0.1
#: What a rank looks for before its wait is measured, and for what else a busy machine keeps it from looking.
MARGIN = 0.8

apart = "apart" in sys.argv
if apart:
    Process.may_share_memory = lambda self, ranks: False  # type: ignore[method-assign]

dist.init_process_group("mpi", timeout=30)
rank, array = dist.get_rank(), np.ones(8, np.float32)
for _ in range(CALLS):
    if rank == 1:
        Event().wait(LATE_S)
    dist.all_reduce(array)
    if rank == 1:
        Event().wait(LATE_S)
        dist.send(array, 0)
    elif rank == 0:
        dist.recv(array, 1)
done = dist.stats().operations
if apart:
    assert done["all_reduce"].waiting_s is None, done
elif rank == 0:
    for op in ("all_reduce", "recv"):
        waited_s = done[op].waiting_s
        assert waited_s is not None, done
        assert CALLS * LATE_S * MARGIN < waited_s <= done[op].time_s, done
elif rank == 1:
    waited_s = done["all_reduce"].waiting_s
    assert waited_s is not None, done
    assert waited_s < CALLS * LATE_S * MARGIN, done

# What fails on the shortest way is noted as having ended, too.
brief = dist.new_group([0, 1])
brief.set_timeout(0.2)
if rank == 0:
    try:
        dist.recv(array, 1, brief)
    except dist.DistTimeoutError:
        assert dist.stats(brief).operations["recv"].errors == 1
    else:
        raise AssertionError("nobody has sent anything")

# So it is with collectives, on the shortest way and on the others; between hosts MPI does not compare calls.
if not apart:
    group = dist.new_group([0, 1])
    for _ in range(3):
        dist.all_reduce(array, group=group)
        dist.broadcast(array, 0, group)
    for unlike in (lambda: dist.broadcast(array, 0, group), lambda: dist.reduce(array, 0, group=group)):
        try:
            if rank == 0:
                unlike()
            else:
                dist.all_reduce(array, group=group)
        except dist.CollectiveMismatchError:
            pass
        else:
            raise AssertionError("the calls were not compared")
    failed = {name: done.errors for name, done in dist.stats(group).operations.items()}
    counted = {"all_reduce": 0, "broadcast": 1, "reduce": 1} if rank == 0 else {"all_reduce": 2, "broadcast": 0}
    assert failed == counted, failed
    dist.all_reduce(array, group=group)
dist.destroy_process_group()
print("fine")
