"""Uses of the public API that a type checker must accept; checked by mypy, and never run."""

from __future__ import annotations

from datetime import timedelta

import numpy as np
import numpy.typing as npt

import rankwise as dist


def groups() -> None:
    dist.init_process_group("gloo", timeout=timedelta(seconds=30), rank=0, world_size=1)
    rank: int = dist.get_rank()
    world: dist.ProcessGroup | None = dist.group.WORLD
    group: dist.ProcessGroup | int = dist.new_group([rank], sort_ranks=False)
    assert world is None or world.size() == 1
    dist.barrier(group)
    dist.destroy_process_group()


def calls(array: npt.NDArray[np.float64]) -> None:
    work: dist.Work | None = dist.all_reduce(array, dist.ReduceOp.MAX, async_op=True, timeout=5)
    if work is not None:
        finished: bool = work.wait(timedelta(seconds=1))
        assert finished
    dist.all_gather([array, array], array)
    source: int = dist.recv(array)
    objects: list[object] = [None, None]
    dist.all_gather_object(objects, {"source": source})
    for pending in dist.batch_isend_irecv([dist.P2POp(dist.isend, array, 1), dist.P2POp(dist.irecv, array, 1)]):
        pending.wait()


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
