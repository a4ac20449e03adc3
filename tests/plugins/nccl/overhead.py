"""What the host spends on one asynchronous call where CUDA, NCCL and CuPy take no time: all that Python adds.

The entry points do nothing, and what is put on the device is done at once.

Run it: python tests/plugins/nccl/overhead.py
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np

import rankwise as dist
from rankwise.backends.communicator import Communicator
from rankwise.backends.contract import Context
from rankwise.backends.declaration import Availability
from rankwise.backends.registry import registry
from rankwise_nccl import plugin
from rankwise_nccl.communicator import NcclCommunicator
from rankwise_nccl.library.api import Api

CALLS, ROUNDS = 500, 30


def _nothing(*_: Any) -> None:
    """Do nothing."""


class Event:
    """Has always happened."""

    __slots__ = ()

    ptr = 0

    def __init__(self, disable_timing: bool = False) -> None:
        pass

    record = _nothing


class Stream:
    """Has nothing to do."""

    ptr = 7

    def __init__(self, non_blocking: bool = False) -> None:
        pass

    wait_event = _nothing

    def is_capturing(self) -> bool:
        return False


class Taker:
    """Takes all calls."""

    comm = 0

    def __init__(self, ndev: int, commId: bytes, rank: int) -> None:
        pass

    allReduce = reduce = broadcast = allGather = reduceScatter = send = recv = _nothing
    check_async_error = abort = finalize = destroy = _nothing


class ndarray:
    """What the plugin and the core look at of a `cupy.ndarray`: of float32, without memory, and in no time."""

    __slots__ = ("data", "flags", "nbytes", "rows", "shape", "size")

    ndim, dtype, device = 1, np.dtype(np.float32), SimpleNamespace(id=0)

    def __init__(self, size: int, address: int) -> None:
        self.data = SimpleNamespace(ptr=address)
        self.shape, self.size, self.nbytes, self.rows = (size,), size, 4 * size, [self]
        self.flags = SimpleNamespace(c_contiguous=True)

    def reshape(self, *shape: int) -> list[ndarray]:
        """Return the rows for a world of one."""
        return self.rows


ndarray.__module__ = "cupy"  # so that the core takes it for one of CuPy's


def create(context: Context) -> Communicator:
    """Make a communicator that has started."""
    current = Stream()
    runtime = SimpleNamespace(getDevice=lambda: 0, deviceGetPCIBusId=str, eventQuery=int)
    cuda = SimpleNamespace(Event=Event, Stream=Stream, runtime=runtime, get_current_stream=lambda device_id=-1: current)
    nccl = SimpleNamespace(
        NcclCommunicator=Taker, groupStart=_nothing, groupEnd=_nothing, get_unique_id=lambda: bytes(128)
    )
    communicator = NcclCommunicator(context, Api(SimpleNamespace(), cuda, nccl))
    communicator.start(0)
    return communicator


def time_us(call: Callable[[], object]) -> float:
    """Return the least time of one call among several rounds: what is more than that is the machine's."""
    times = []
    for _ in range(ROUNDS):
        time.sleep(0.03)  # lets the watchdog end the works of the round before, as a device would meanwhile
        began = time.perf_counter()
        for _ in range(CALLS):
            call()
        times.append((time.perf_counter() - began) / CALLS * 1e6)
    return min(times)


def added_us() -> dict[str, float]:
    """Return the microseconds of the host for each call."""
    spec = plugin.rankwise_backend()
    table = replace(spec.capabilities, backend="inert")
    registry.register(
        replace(spec, name="inert", capabilities=table, create=create, availability=lambda: Availability(True))
    )
    dist.init_process_group("inert", world_size=1, rank=0, store=dist.HashStore())
    try:
        array, out = ndarray(1024, 1 << 20), ndarray(1024, 2 << 20)
        calls: dict[str, Callable[[], Any]] = {
            "all_reduce": lambda: dist.all_reduce(array, async_op=True),
            "all_reduce and wait": lambda: dist.all_reduce(array, async_op=True).wait(),
            "broadcast": lambda: dist.broadcast(array, 0, async_op=True),
            "all_gather_single": lambda: dist.all_gather_single(out, array, async_op=True),
            "reduce_scatter_single": lambda: dist.reduce_scatter_single(out, array, async_op=True),
            "all_to_all_single": lambda: dist.all_to_all_single(out, array, async_op=True),
        }
        return {name: time_us(call) for name, call in calls.items()}
    finally:
        dist.destroy_process_group()
        registry.unregister("inert")


if __name__ == "__main__":
    for name, time_taken in added_us().items():
        print(f"{name:22} {time_taken:6.2f} us")
