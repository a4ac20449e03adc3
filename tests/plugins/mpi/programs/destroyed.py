"""A rank destroys the group before a call that the others wait in, whichever call it is.

With `apart` in the arguments the ranks meet as they do on several hosts.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from typing import Any

import numpy as np

import rankwise as dist
from rankwise_mpi.process.process import Process

if "apart" in sys.argv:
    Process.may_share_memory = lambda self, ranks: False  # type: ignore[method-assign]
dist.init_process_group("mpi", timeout=40)
rank, size = dist.get_rank(), dist.get_world_size()
small: Any = np.ones(4)
calls: list[Callable[[Any], object]] = [
    lambda group: dist.all_reduce(small, group=group),
    lambda group: dist.all_reduce(np.ones(300_000), group=group),
    lambda group: dist.barrier(group),
    lambda group: dist.all_reduce(small, group=group, async_op=True).wait(),
]


def wait_for_who_has_left(call: Callable[[Any], object], group: Any) -> None:
    began, said = time.monotonic(), dist.PeerDiedError(-1, "", "")
    try:
        call(group)
    except dist.PeerDiedError as error:
        said = error
    assert said.rank == size - 1, said
    assert "it has destroyed the group" in str(said), said
    assert time.monotonic() - began < 20
    assert dist.get_world_size() == size


for call in calls:
    group = dist.new_group(list(range(size)))
    for _ in range(3):
        dist.all_reduce(small, group=group)
    if rank == size - 1:
        dist.destroy_process_group(group)
    else:
        wait_for_who_has_left(call, group)
    dist.barrier()  # the others are as they were
dist.destroy_process_group()
print("fine", flush=True)
