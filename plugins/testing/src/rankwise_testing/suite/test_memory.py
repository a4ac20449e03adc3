"""What a group has taken it gives back: memory does not grow with the number of groups, or of messages."""

from __future__ import annotations

import gc
import os
import tracemalloc
from collections.abc import Callable
from itertools import pairwise
from typing import Any

import numpy as np
import pytest

import rankwise as dist
from rankwise.kits import ProcessGroup
from rankwise_testing.suite.arrays import plain
from rankwise_testing.suite.expect import begun, numbers, still_usable
from rankwise_testing.suite.plugin import Kit, needs

_FEW, _MANY = 12, 24
#: What a group may leave behind: the allocator's own fragments.
_GROUP_NBYTES = 256 << 10


#: How often eight messages go each way between two looks, and how often memory is looked at.
_EXCHANGES, _WINDOWS = 25, 4

#: How many small calls, and what each may seem to leave behind.
_CALLS, _TRACED, _CALL_NBYTES = 1_500, 200, 300
#: How many times as long as other tests that may take.
_TIMES = 5.0


def _params() -> list[Any]:
    return [pytest.param(op, marks=needs(op)) for op in ("all_reduce", "barrier")]


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
    array = np.ones(50_000, plain())
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
    rank, array = dist.get_rank(), np.ones((1 << 20) // plain().itemsize, plain())
    buffers = [np.zeros_like(array) for _ in range(8)]

    def exchange() -> None:
        works = [begun(dist.isend(array, 1 - rank)) for _ in buffers]
        dist.barrier()  # all of them come unexpected
        works += [begun(dist.irecv(buffer, 1 - rank)) for buffer in buffers]
        for work in works:
            work.wait()

    def growth() -> float:
        before = _resident_nbytes()
        for _ in range(_EXCHANGES):
            exchange()
        return _resident_nbytes() - before

    # The allocator keeps room for the most messages that have ever lain there; what is left behind comes each time.
    return min(growth() for _ in range(_WINDOWS))


@pytest.mark.slow
@pytest.mark.parametrize("op", [pytest.param("send", marks=needs("send", "recv")), *_params()])
def test_a_small_call_leaves_nothing_behind(kit: Kit, op: str) -> None:
    kit.on_host_only("pools of a GPU library keep what they have")
    with kit.ranks.patient(_TIMES):
        grown_by = kit.run_alone(2, many_small_calls, op)
    for grown in grown_by:
        assert grown < _CALL_NBYTES, f"each {op} leaves {grown:.0f} bytes behind"


def many_small_calls(op: str) -> float:
    """Return how many bytes of memory each call has left, as the allocators of Python and of the process see it."""
    rank, array, buffer = dist.get_rank(), numbers(1), numbers(0)

    def call() -> None:
        if op == "all_reduce":
            dist.all_reduce(numbers(0, 0, 0, 0))
        elif op == "barrier":
            dist.barrier()
        elif rank == 0:
            dist.send(array, 1)
            dist.recv(buffer, 1)
        else:
            dist.recv(buffer, 0)
            dist.send(array, 0)

    def several(count: int) -> None:
        for _ in range(count):
            call()

    several(_CALLS)
    # What a thread of the backend loads, or a buffer that grows, comes once; what is left behind comes each time. All
    # ranks make the same number of calls, whatever each has seen.
    traced = min(_traced_growth(several, call))
    resident = min(_resident_growth(several) for _ in range(2))
    return max(resident, traced)


def _resident_growth(several: Callable[[int], None]) -> float:
    """Return how many bytes of the process each call leaves."""
    before = _resident_nbytes()
    several(_CALLS)
    return (_resident_nbytes() - before) / _CALLS


def _traced_growth(several: Callable[[int], None], meet: Callable[[], None]) -> list[float]:
    """Return three times how many bytes of Python's each call leaves: exactly, but for few calls, as they are slow."""
    tracemalloc.start()
    several(_CALLS)  # until the flight recorder, which holds the latest calls, has none that were not traced
    marks = [_traced_nbytes()]
    for _ in range(3):
        several(_TRACED)
        marks.append(_traced_nbytes())
    meet()  # ranks may be threads of one process, all of which have looked by now
    tracemalloc.stop()
    return [(after - before) / _TRACED for before, after in pairwise(marks)]


def _traced_nbytes() -> int:
    gc.collect()
    return tracemalloc.get_traced_memory()[0]


def _resident_nbytes() -> int:
    gc.collect()
    with open("/proc/self/statm", encoding="ascii") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGESIZE")
