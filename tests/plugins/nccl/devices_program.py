"""The public calls over several arrays per rank, on two ranks with two devices each, on the double; run by a test."""

from __future__ import annotations

from typing import Any

import cupy  # the stand-in
import nccl_on_host
import numpy as np

import rankwise as dist
from rankwise.backends.registry import registry
from rankwise.basics.arrays import as_copy
from rankwise.groups.world import current
from rankwise_local import local_world


def on(device: int, *values: float, dtype: Any = np.float32) -> Any:
    """Return an array on a device."""
    with cupy.cuda.Device(device):
        return cupy.asarray(np.array(values, dtype))


def said(call: Any, *args: Any, **terms: Any) -> str:
    """Return what a call is refused with."""
    try:
        call(*args, **terms)
    except ValueError as error:
        return str(error)
    raise AssertionError("it was not refused")


def names() -> list[str]:
    """Return the calls of NCCL so far, and forget them."""
    log = nccl_on_host.rank_here().log
    found = [entry[0] for entry in log]
    log.clear()
    return found


def what_is_here_is_reduced_before_the_others_are_asked() -> None:
    """Reduce over both devices with one call of NCCL; asynchronously, and in a coalesced block."""
    arrays = [on(0, 1.0), on(1, 2.0)]
    work = dist.all_reduce_multigpu(arrays, async_op=True)
    assert work is not None
    assert work.result() is None or work.is_completed()
    assert [array.get().tolist() for array in arrays] == [[6.0]] * 2
    names()
    dist.all_reduce_multigpu(arrays, dist.ReduceOp.AVG)
    assert [array.get().tolist() for array in arrays] == [[6.0]] * 2
    assert names().count("allReduce") == 1
    with dist.coalescing():
        dist.broadcast_multigpu(arrays, src=1, src_tensor=1)
    assert names().count("broadcast") == 1


def a_device_may_come_twice() -> None:
    """Give two arrays on one device."""
    arrays = [on(1, 1.0), on(1, 2.0)]
    dist.all_reduce_multigpu(arrays)
    assert [array.get().tolist() for array in arrays] == [[6.0]] * 2


def strided_inputs_stay_on_their_devices() -> None:
    """Gather what has to be copied first, while another device is the current one."""
    inputs = []
    for i in (0, 1):
        with cupy.cuda.Device(i):
            inputs.append(on(i, dist.get_rank(), -1.0, i, -1.0)[::2])
    outputs = [[on(i, 0.0, 0.0) for _ in range(4)] for i in (0, 1)]
    dist.all_gather_multigpu(outputs, inputs)
    for row in outputs:
        assert [out.get().tolist() for out in row] == [[0, 0], [0, 1], [1, 0], [1, 1]]
    assert names().count("allGather") == 1
    assert as_copy(inputs[1]).device.id == 1  # as every call takes its inputs


def mistakes_are_named_before_anything_moves() -> None:
    """Give lists of the wrong length, type or size, and roots that are not there."""
    inputs, row = [on(0, 1.0), on(1, 1.0)], [on(0, 0.0) for _ in range(4)]
    assert "lists[0] has 3 arrays, but must have 2 x 2" in said(dist.all_gather_multigpu, [row[:3]], inputs)
    mixed = [*row[:3], on(1, 0, dtype=np.int32)]
    assert "int32" in said(dist.all_gather_multigpu, [mixed], inputs)
    assert "elements" in said(dist.all_reduce_multigpu, [on(0, 1.0), on(1, 1.0, 2.0)])
    assert "one for each of 2 outputs" in said(dist.reduce_scatter_multigpu, inputs, [row])
    if dist.get_rank() == 0:
        assert "src_tensor=2" in said(dist.broadcast_multigpu, inputs, 0, src_tensor=2)
        assert "dst_tensor must not be negative" in said(dist.reduce_multigpu, inputs, 0, dst_tensor=-1)
    assert not set(names()) & {"allGather", "reduceScatter", "broadcast", "reduce"}


def ranks_may_have_different_numbers_of_arrays() -> None:
    """Give two devices on one rank and one on the other."""
    for op, wanted in ((dist.ReduceOp.SUM, 4.0), (dist.ReduceOp.AVG, 4 / 3)):
        arrays = [on(i, 1.0 + dist.get_rank() * i) for i in range(1 + dist.get_rank())]
        dist.all_reduce_multigpu(arrays, op)
        assert all(abs(array.get()[0] - wanted) < 1e-6 for array in arrays), arrays[0].get()


def objects_travel_on_the_named_device(store: dist.Store) -> None:
    """Exchange objects while the current device is not the one that `device_id` names."""
    me = dist.get_rank()
    dist.destroy_process_group()
    dist.init_process_group("nccl", store=store, rank=me, world_size=2, device_id=1, timeout=20)
    found: list[Any] = [None, None]
    dist.all_gather_object(found, {"rank": me})
    assert found == [{"rank": 0}, {"rank": 1}]
    group = current().default
    assert group is not None
    assert group.communicators()[0]._all.devices() == [1]  # type: ignore[attr-defined]


if __name__ == "__main__":
    registry.register(nccl_on_host.rankwise_backend(), replace=True)
    with local_world(2, backend="nccl", timeout=20) as world:
        for program in (
            what_is_here_is_reduced_before_the_others_are_asked,
            a_device_may_come_twice,
            strided_inputs_stay_on_their_devices,
            mistakes_are_named_before_anything_moves,
            ranks_may_have_different_numbers_of_arrays,
        ):
            world.run(program)
        world.run(objects_travel_on_the_named_device, dist.HashStore())
    print("done")
