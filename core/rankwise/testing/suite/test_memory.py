"""What a group has taken it gives back: memory does not grow with the number of groups, or of messages."""

from __future__ import annotations

import gc
import os

import numpy as np
import pytest

import rankwise as dist
from rankwise.groups.process_group import ProcessGroup
from rankwise.testing.suite.expect import begun, still_usable
from rankwise.testing.suite.plugin import Kit, needs

_FEW, _MANY = 12, 24
#: What a group may leave behind: the allocator's own fragments.
_GROUP_NBYTES = 256 << 10


@needs("all_reduce")
def test_a_group_leaves_no_memory_behind(kit: Kit) -> None:
    kit.on_host_only("pools of a GPU library keep what they have")
    for grown in kit.run_alone(2, many_groups):
        assert grown < _GROUP_NBYTES, f"each group leaves {grown / 1024:.0f} KiB behind"


def many_groups() -> float:
    for _ in range(_FEW):
        _use_a_group()
    before = _resident_nbytes()
    for _ in range(_MANY):
        _use_a_group()
    return (_resident_nbytes() - before) / _MANY


def _use_a_group() -> None:
    group = dist.new_group()
    assert isinstance(group, ProcessGroup)
    still_usable(group)
    array = np.ones(50_000, np.float32)
    dist.all_reduce(array, group=group)
    dist.destroy_process_group(group)


@needs("send", "recv", "barrier")
def test_messages_leave_no_memory_behind(kit: Kit) -> None:
    kit.on_host_only("pools of a GPU library keep what they have")
    if kit.in_threads:
        pytest.skip("the ranks share one process, in which both ends allocate")
    for grown in kit.run_alone(2, many_messages):
        assert grown < 8 << 20, f"200 messages of 1 MiB leave {grown / (1 << 20):.1f} MiB behind"


def many_messages() -> float:
    rank, array = dist.get_rank(), np.ones(1 << 20, np.uint8)
    buffers = [np.zeros(1 << 20, np.uint8) for _ in range(8)]

    def exchange() -> None:
        works = [begun(dist.isend(array, 1 - rank)) for _ in buffers]
        dist.barrier()  # all of them come unexpected
        works += [begun(dist.irecv(buffer, 1 - rank)) for buffer in buffers]
        for work in works:
            work.wait()

    for _ in range(4):
        exchange()
    before = _resident_nbytes()
    for _ in range(25):
        exchange()
    return _resident_nbytes() - before


def _resident_nbytes() -> int:
    gc.collect()
    with open("/proc/self/statm", encoding="ascii") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGESIZE")
