"""Uses of the public API that type checkers must accept; checked by mypy and pyright, and never run."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import numpy as np
import numpy.typing as npt
from typing_extensions import assert_type  # a type checker has it, whether or not it is installed

import rankwise as dist


class OnDevice:
    """An array of some GPU library."""

    __cuda_array_interface__: dict[str, Any]


class Plain:
    """An array of a device of which type checkers see nothing but what it looks like."""

    dtype: np.dtype[Any]
    itemsize: int

    def __len__(self) -> int:
        return 0


class Exchanged:
    """An array of a library that knows DLPack."""

    def __dlpack__(self, *, stream: int | None = None) -> object:
        raise NotImplementedError

    def __dlpack_device__(self) -> tuple[int, int]:
        raise NotImplementedError


class Sparse:
    """What a sparse array of scipy looks like."""

    format: str

    def tocsr(self, copy: bool = False) -> Any:
        raise NotImplementedError


def groups() -> None:
    dist.init_process_group("gloo", timeout=timedelta(seconds=30), rank=0, world_size=1)
    rank: int = dist.get_rank()
    world = dist.group.WORLD
    assert_type(world, dist.ProcessGroup | None)
    assert_type(dist.GroupMember.WORLD, dist.ProcessGroup | None)
    group: dist.ProcessGroup | int = dist.new_group([rank], sort_ranks=False)
    assert world is None or world.size() == 1
    dist.barrier(group)
    dist.destroy_process_group()


def calls(array: npt.NDArray[np.float64]) -> None:
    dist.all_reduce(array, dist.ReduceOp.MAX, timeout=5)
    dist.all_gather([array, array], array)
    source: int = dist.recv(array)
    objects: list[object] = [None, None]
    dist.all_gather_object(objects, {"source": source})
    for pending in dist.batch_isend_irecv([dist.P2POp(dist.isend, array, 1), dist.P2POp(dist.irecv, array, 1)]):
        pending.wait()


def works(array: npt.NDArray[np.float64], later: bool) -> None:
    """A member gets a work where it asks for one."""
    finished: bool = dist.all_reduce(array, async_op=True).wait(timedelta(seconds=1))
    dist.all_reduce(array, dist.ReduceOp.SUM, None, True).wait()
    dist.barrier(dist.group.WORLD, async_op=True).wait()
    dist.isend(array, 1).wait()
    dist.irecv(array).source_rank()
    assert_type(dist.all_to_all([array], [array], async_op=True), dist.Work)
    assert_type(dist.all_reduce_coalesced([array], async_op=True), dist.Work)
    assert_type(dist.broadcast_multigpu([array], 0, async_op=True), dist.Work)
    assert_type(dist.all_reduce(array, async_op=later), dist.Work | None)
    assert finished


def works_of_a_group(array: npt.NDArray[np.float64]) -> None:
    """What `new_group` returns may be no group on this rank, and then there is no work either."""
    group = dist.new_group([0, 1])
    assert_type(dist.all_reduce(array, group=group, async_op=True), dist.Work | None)
    assert_type(dist.isend(array, 1, group), dist.Work | None)
    if isinstance(group, dist.ProcessGroup):
        dist.all_reduce(array, group=group, async_op=True).wait()
        dist.isend(array, 1, group).wait()


def arrays(
    view: memoryview, raw: bytearray, device: OnDevice, plain: Plain, exchanged: Exchanged, sparse: Sparse
) -> None:
    """Whatever shares its memory is an array."""
    for each in (view, raw, device, plain, exchanged):
        dist.broadcast(each, 0)
    dist.all_gather([raw, view], device)
    dist.all_reduce(sparse)


def processes() -> None:
    dist.spawn(print, nprocs=2)
    dist.spawn(print, nprocs=2, join=False).join(timeout=5)


def backends() -> None:
    name: dist.Backend = dist.Backend.GLOO
    answer: dist.Availability = dist.availability(name)
    can: bool = dist.supports("all_reduce", "cpu", np.float32, dist.ReduceOp.SUM)
    table: str = str(dist.capabilities())
    print(answer.reason, can, table)


def stores() -> None:
    with dist.TCPStore("127.0.0.1", is_master=True) as store:
        store.set("key", b"value")
        value: bytes = dist.PrefixStore("part", store).get("key")
        print(value)
