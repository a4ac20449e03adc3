"""Arrays of any shape, and objects that share their memory."""

from __future__ import annotations

from array import array as machine_array

import numpy as np
import pytest

import rankwise as dist
from rankwise_testing.suite.arrays import on_device, plain, same
from rankwise_testing.suite.plugin import Kit, needs

_SHAPES = [(), (1,), (2, 3), (2, 1, 2), (0, 4)]


def _data(shape: tuple[int, ...], rank: int) -> np.ndarray:
    return (np.arange(int(np.prod(shape))) + 10 * rank).astype(plain()).reshape(shape)


@needs("all_reduce", "broadcast")
@pytest.mark.parametrize("shape", _SHAPES, ids=str)
def test_arrays_keep_their_shape(kit: Kit, shape: tuple[int, ...]) -> None:
    kit.run(2, reduce_and_broadcast, shape)


def reduce_and_broadcast(shape: tuple[int, ...]) -> None:
    array = on_device(_data(shape, dist.get_rank()))
    dist.all_reduce(array)
    same(array, np.asarray(_data(shape, 0) + _data(shape, 1)))
    dist.broadcast(array, src=1)
    same(array, np.asarray(_data(shape, 0) + _data(shape, 1)))


@needs("all_gather")
@pytest.mark.parametrize("shape", _SHAPES, ids=str)
def test_all_gather_single_stacks_and_concatenates(kit: Kit, shape: tuple[int, ...]) -> None:
    kit.run(3, gather_single, shape)


def gather_single(shape: tuple[int, ...]) -> None:
    size = dist.get_world_size()
    wanted = np.stack([_data(shape, rank) for rank in range(size)])
    array = on_device(_data(shape, dist.get_rank()))
    stacked = on_device(np.zeros((size, *shape), plain()))
    dist.all_gather_single(stacked, array)
    same(stacked, wanted)
    if shape:
        joined = on_device(np.zeros((size * shape[0], *shape[1:]), plain()))
        dist.all_gather_into_tensor(joined, array)
        same(joined, np.concatenate(list(wanted)))


@needs("reduce_scatter")
@pytest.mark.parametrize("shape", _SHAPES, ids=str)
def test_reduce_scatter_single_takes_equal_parts(kit: Kit, shape: tuple[int, ...]) -> None:
    kit.run(3, scatter_single, shape)


def scatter_single(shape: tuple[int, ...]) -> None:
    size, rank = dist.get_world_size(), dist.get_rank()
    inputs = [np.stack([_data(shape, source + 3 * to) for to in range(size)]) for source in range(size)]
    output = on_device(np.zeros(shape, plain()))
    dist.reduce_scatter_single(output, on_device(inputs[rank]))
    same(output, np.sum([array[rank] for array in inputs], axis=0, dtype=plain()))


@needs("all_to_all")
def test_all_to_all_single_cuts_the_first_dimension(kit: Kit) -> None:
    kit.run(3, exchange_single)


def exchange_single() -> None:
    size, rank = dist.get_world_size(), dist.get_rank()
    inputs = [_data((size * 2, 3), source) for source in range(size)]
    output = on_device(np.zeros((size * 2, 3), plain()))
    dist.all_to_all_single(output, on_device(inputs[rank]))
    same(output, np.concatenate([array[2 * rank : 2 * rank + 2] for array in inputs]))


@needs("broadcast", "all_gather", "send", "recv")
def test_what_is_only_read_may_be_read_only_and_not_contiguous(kit: Kit) -> None:
    if kit.device != "cpu":
        pytest.skip("arrays on a GPU are never read-only")
    kit.run(2, read_only)


def read_only() -> None:
    rank, wanted = dist.get_rank(), np.arange(0, 10, 2).astype(plain())
    array = np.arange(10).astype(plain())[::2] if rank == 0 else np.zeros(5, plain())
    if rank == 0:
        array.flags.writeable = False
    dist.broadcast(array, src=0)
    same(array.copy(), wanted)
    parts = [np.zeros(5, plain()) for _ in range(2)]
    dist.all_gather(parts, array)
    same(parts[1 - rank], wanted)
    if rank == 0:
        dist.send(array, 1)
    else:
        dist.recv(parts[0], 0)
        same(parts[0], wanted)


@needs("all_reduce")
def test_what_shares_its_memory_is_an_array(kit: Kit) -> None:
    if kit.device != "cpu":
        pytest.skip("objects of the buffer protocol lie in the host's memory")
    kit.require("uint8", "all_reduce", reduce="SUM")
    kit.require("float32", "all_reduce", reduce="SUM")
    kit.run(2, reduce_buffers)


def reduce_buffers() -> None:
    values = machine_array("f", [1.0, 2.0])
    dist.all_reduce(values)
    assert list(values) == [2.0, 4.0]
    raw = bytearray(b"\1\2")
    dist.all_reduce(memoryview(raw))
    assert raw == b"\2\4"
