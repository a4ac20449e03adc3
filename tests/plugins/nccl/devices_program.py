"""The public calls for several devices per process on two ranks with two devices each, on the double; run by a test."""

from __future__ import annotations

from typing import Any

import cupy  # the stand-in
import nccl_on_host
import numpy as np

import rankwise as dist
from rankwise.backends.registry import registry
from rankwise.errors import CollectiveMismatchError
from rankwise.groups.world import current
from rankwise.testing import local_world


def on(device: int, *values: float, dtype: Any = np.float32) -> Any:
    """Return an array on a device."""
    with cupy.cuda.Device(device):
        return cupy.asarray(np.array(values, dtype))


def said(call: Any, *args: Any, **terms: Any) -> str:
    """Return what a call is refused with."""
    try:
        call(*args, **terms)
    except (ValueError, CollectiveMismatchError) as error:
        return str(error)
    raise AssertionError("it was not refused")


def names() -> list[str]:
    """Return the calls of NCCL so far, and forget them."""
    log = nccl_on_host.rank_here().log
    found = [entry[0] for entry in log]
    log.clear()
    return found


def each_device_takes_part() -> None:
    """Reduce over both devices, with one call of NCCL on each; asynchronously, and in a coalesced block."""
    arrays = [on(0, 1.0), on(1, 2.0)]
    work = dist.all_reduce_multigpu(arrays, async_op=True)
    assert work is not None
    assert work.result() is arrays
    assert [array.get().tolist() for array in arrays] == [[6.0]] * 2
    names()
    dist.all_reduce_multigpu(arrays, dist.ReduceOp.AVG)
    assert [array.get().tolist() for array in arrays] == [[6.0]] * 2
    assert names().count("allReduce") == 2
    with dist.coalescing():
        dist.broadcast_multigpu(arrays, src=1, src_tensor=1)
    assert names().count("broadcast") == 2


def a_device_twice_is_reduced_there_first() -> None:
    """Give two arrays on one device, which NCCL cannot have in one communicator twice."""
    arrays = [on(1, 1.0), on(1, 2.0)]
    dist.all_reduce_multigpu(arrays)
    assert [array.get().tolist() for array in arrays] == [[6.0]] * 2
    assert names().count("allReduce") == 1


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
    assert names().count("allGather") == 2


def mistakes_are_named_before_anything_moves() -> None:
    """Give lists on the wrong devices, of the wrong type or size, and roots that are not there."""
    me = dist.get_rank()
    inputs, row = [on(0, 1.0), on(1, 1.0)], [on(0, 0.0) for _ in range(4)]
    text = said(dist.all_gather_multigpu, [row, row], inputs)
    assert f"all_gather_multigpu on rank {me}: output_tensor_lists must have one list for each array" in text
    assert "lie on devices [[0], [0]], but should on [[0], [1]]" in text
    assert "lie on devices [[0]]" in said(dist.all_gather_multigpu, [row], inputs)
    ints = [on(1, 0, dtype=np.int32) for _ in range(4)]
    assert "int32" in said(dist.all_gather_multigpu, [row, ints], inputs)
    assert "elements" in said(dist.all_gather_multigpu, [row, row], [on(0, 1.0), on(1, 1.0, 2.0)])
    assert "input_tensor_lists" in said(dist.reduce_scatter_multigpu, inputs, [row, row])
    assert "src_tensor=2" in said(dist.broadcast_multigpu, inputs, 0, src_tensor=2)
    assert "dst_tensor=-1" in said(dist.reduce_multigpu, inputs, 0, dst_tensor=-1)
    assert not set(names()) & {"allGather", "reduceScatter", "broadcast", "reduce"}


def different_numbers_of_devices() -> str:
    """Give two devices on one rank and one on the other, and go on; return what is said."""
    text = said(dist.all_reduce_multigpu, [on(i, 1.0) for i in range(1 + dist.get_rank())])
    arrays = [on(0, 1.0), on(1, 1.0)]
    dist.all_reduce_multigpu(arrays)
    assert arrays[1].get().tolist() == [4.0]
    return text


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
        assert len(set(world.run(different_numbers_of_devices))) == 1
        for program in (
            each_device_takes_part,
            a_device_twice_is_reduced_there_first,
            strided_inputs_stay_on_their_devices,
            mistakes_are_named_before_anything_moves,
        ):
            world.run(program)
        world.run(objects_travel_on_the_named_device, dist.HashStore())
    print("done")
