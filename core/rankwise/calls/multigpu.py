"""Collectives over several arrays per rank, usually one on each of the process's devices.

Each is one collective of the group with a step on this rank's own arrays before and after it, so it runs on every
backend and on every kind of device. The group's part is on the device of the first array. The arrays of a list have one
dtype and size, the same on all ranks; where nothing else is said, ranks may have different numbers of them. Beside what
is said here, each raises what its collective of one array does.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager, nullcontext
from itertools import chain
from typing import Any

import numpy as np

from rankwise.backends.communicator import Communicator
from rankwise.basics.arrays import AnyArray, Array, as_array
from rankwise.basics.reduce_op import ReduceOp
from rankwise.basics.work import Work
from rankwise.calls import check
from rankwise.calls.calling import failed, finish, terms
from rankwise.calls.coalesced import CombinedWork
from rankwise.collective.call import Call
from rankwise.groups.process_group import GroupLike, ProcessGroup
from rankwise.groups.ranks import group_rank
from rankwise.groups.world import resolve

__all__ = [
    "all_gather_multigpu",
    "all_reduce_multigpu",
    "broadcast_multigpu",
    "reduce_multigpu",
    "reduce_scatter_multigpu",
]


def broadcast_multigpu(
    tensor_list: Sequence[AnyArray], src: int, group: GroupLike = None, async_op: bool = False, src_tensor: int = 0
) -> Work | None:
    """Copy `tensor_list[src_tensor]` of the source into every array of every rank.

    Args:
        tensor_list: This rank's arrays, usually one on each device.
        src: The source, as a global rank.
        group: The group; None is the default group.
        async_op: Return a `Work` immediately instead of waiting for the operation.
        src_tensor: Which of the source's arrays; the same on all ranks.

    Returns:
        None, or with `async_op` a `Work`; None on a rank that is not in the group.

    Raises:
        ValueError: The list is empty, its arrays differ, or it has no such array.

    Examples:
        >>> arrays = [np.full(2, 10 * rank), np.full(2, 10 * rank + 1)]
        >>> dist.broadcast_multigpu(arrays, src=1, src_tensor=1)
        >>> arrays
        [array([11, 11]), array([11, 11])]
    """
    pg = None
    try:
        if (pg := resolve(group, "broadcast_multigpu")) is None:
            return None
        arrays = _local(pg, "broadcast_multigpu", "tensor_list", tensor_list)
        root = group_rank(pg, "src", src, None)
        # All ranks use their first device: on some backends each device has connections of its own.
        carrier = arrays[0]
        lane = pg.lane(carrier, "broadcast")
        if root == pg.rank() and (index := _index(pg, "broadcast_multigpu", "src_tensor", src_tensor, arrays)):
            _assign(carrier, arrays[index])

        def after() -> None:
            for array in arrays[1:]:
                _assign(array, carrier)

        return _run(pg, lane, Call("broadcast", carrier, root=root), async_op, tensor_list, arrays, after)
    except BaseException as error:
        failed(pg, error)
        raise


def all_reduce_multigpu(
    tensor_list: Sequence[AnyArray], op: ReduceOp = ReduceOp.SUM, group: GroupLike = None, async_op: bool = False
) -> Work | None:
    """Reduce all arrays of all ranks, and leave the result in every one of them.

    Args:
        tensor_list: This rank's arrays, usually one on each device.
        op: How to reduce.
        group: The group; None is the default group.
        async_op: Return a `Work` immediately instead of waiting for the operation.

    Returns:
        None, or with `async_op` a `Work`; None on a rank that is not in the group.

    Raises:
        ValueError: The list is empty, or its arrays differ.

    Examples:
        >>> arrays = [np.ones(2), np.ones(2)]
        >>> dist.all_reduce_multigpu(arrays)
        >>> arrays
        [array([4., 4.]), array([4., 4.])]
    """
    pg = None
    try:
        if (pg := resolve(group, "all_reduce_multigpu")) is None:
            return None
        arrays = _local(pg, "all_reduce_multigpu", "tensor_list", tensor_list)
        lane, total, inner = _reduced_here(pg, "all_reduce", arrays, op)

        def after() -> None:
            _finish(op, total, arrays[0])
            for array in arrays[1:]:
                _assign(array, arrays[0])

        return _run(pg, lane, Call("all_reduce", total, inner), async_op, tensor_list, arrays, after)
    except BaseException as error:
        failed(pg, error)
        raise


def reduce_multigpu(
    tensor_list: Sequence[AnyArray],
    dst: int,
    op: ReduceOp = ReduceOp.SUM,
    group: GroupLike = None,
    async_op: bool = False,
    dst_tensor: int = 0,
) -> Work | None:
    """Reduce all arrays of all ranks into `tensor_list[dst_tensor]` of the destination.

    Args:
        tensor_list: This rank's arrays, usually one on each device.
        dst: The destination, as a global rank.
        op: How to reduce.
        group: The group; None is the default group.
        async_op: Return a `Work` immediately instead of waiting for the operation.
        dst_tensor: Which of the destination's arrays; the same on all ranks.

    Returns:
        None, or with `async_op` a `Work`; None on a rank that is not in the group.

    Raises:
        ValueError: The list is empty, its arrays differ, or it has no such array.

    Examples:
        >>> arrays = [np.ones(2), np.ones(2)]
        >>> dist.reduce_multigpu(arrays, dst=0, dst_tensor=1)
        >>> arrays
        [array([1., 1.]), array([4., 4.])]
    """
    pg = None
    try:
        if (pg := resolve(group, "reduce_multigpu")) is None:
            return None
        arrays = _local(pg, "reduce_multigpu", "tensor_list", tensor_list)
        root = group_rank(pg, "dst", dst, None)
        mine = [] if root != pg.rank() else [arrays[_index(pg, "reduce_multigpu", "dst_tensor", dst_tensor, arrays)]]
        lane, total, inner = _reduced_here(pg, "reduce", arrays, op)

        def after() -> None:
            for array in mine:
                _finish(op, total, array)

        return _run(pg, lane, Call("reduce", total, inner, root), async_op, tensor_list, arrays, after)
    except BaseException as error:
        failed(pg, error)
        raise


def all_gather_multigpu(
    output_tensor_lists: Sequence[Sequence[AnyArray]],
    input_tensor_list: Sequence[AnyArray],
    group: GroupLike = None,
    async_op: bool = False,
) -> Work | None:
    """Copy all arrays of all ranks, by rank and then by position, into each `output_tensor_lists[i]` of every rank.

    Args:
        output_tensor_lists: The lists to fill, each with an array for every input of every rank.
        input_tensor_list: This rank's arrays, usually one on each device; as many on all ranks.
        group: The group; None is the default group.
        async_op: Return a `Work` immediately instead of waiting for the operation.

    Returns:
        None, or with `async_op` a `Work`; None on a rank that is not in the group.

    Raises:
        ValueError: The lists do not fit.

    Examples:
        >>> outputs = [[np.empty(1, int) for _ in range(2)]]
        >>> dist.all_gather_multigpu(outputs, [np.array([rank])])
        >>> outputs
        [[array([0]), array([1])]]
    """
    pg = None
    try:
        if (pg := resolve(group, "all_gather_multigpu")) is None:
            return None
        op = "all_gather_multigpu"
        arrays = [_input(pg, op, f"input_tensor_list[{i}]", a) for i, a in enumerate(input_tensor_list)]
        outputs = [_local(pg, op, f"output_tensor_lists[{i}]", outs) for i, outs in enumerate(output_tensor_lists)]
        each = arrays[0].size if arrays else 0
        if not arrays or any(len(outs) != pg.size() * len(arrays) or outs[0].size != each for outs in outputs):
            raise ValueError(
                f"{op} on rank {pg.global_rank}: each output list must have {pg.size() * len(arrays)} arrays of {each} "
                "elements, one for each input of each rank"
            )
        mine = _stacked(arrays)
        with _on(mine):
            whole = np.empty_like(mine, shape=(pg.size(), mine.size))
        lane, rows = pg.lane(mine, "all_gather"), whole.reshape(pg.size() * len(arrays), each)

        def after() -> None:
            for outs in outputs:
                for out, row in zip(outs, rows, strict=True):
                    _assign(out, row)

        call = Call("all_gather", mine, outs=list(whole))
        return _run(pg, lane, call, async_op, output_tensor_lists, chain(*outputs), after)
    except BaseException as error:
        failed(pg, error)
        raise


def reduce_scatter_multigpu(
    output_tensor_list: Sequence[AnyArray],
    input_tensor_lists: Sequence[Sequence[AnyArray]],
    op: ReduceOp = ReduceOp.SUM,
    group: GroupLike = None,
    async_op: bool = False,
) -> Work | None:
    """Reduce the input lists of all ranks, and leave entry (rank, i) in that rank's `output_tensor_list[i]`.

    Args:
        output_tensor_list: The arrays to fill, usually one on each device; as many on all ranks.
        input_tensor_lists: As many lists, each with an array for every output of every rank.
        op: How to reduce.
        group: The group; None is the default group.
        async_op: Return a `Work` immediately instead of waiting for the operation.

    Returns:
        None, or with `async_op` a `Work`; None on a rank that is not in the group.

    Raises:
        ValueError: The lists do not fit.

    Examples:
        >>> outputs = [np.empty(1, int)]
        >>> dist.reduce_scatter_multigpu(outputs, [[np.array([10]), np.array([20])]])
        >>> outputs  # [40] on rank 1
        [array([20])]
    """
    pg = None
    try:
        if (pg := resolve(group, "reduce_scatter_multigpu")) is None:
            return None
        name = "reduce_scatter_multigpu"
        outs = _local(pg, name, "output_tensor_list", output_tensor_list)
        lists = [_local(pg, name, f"input_tensor_lists[{i}]", ins) for i, ins in enumerate(input_tensor_lists)]
        entries = pg.size() * len(outs)
        if len(lists) != len(outs) or any(len(ins) != entries or ins[0].size != outs[0].size for ins in lists):
            raise ValueError(
                f"{name} on rank {pg.global_rank}: there must be {len(outs)} input lists, one for each output, "
                f"of {entries} arrays of {outs[0].size} elements"
            )
        lane, total, inner = _reduced_here(pg, "reduce_scatter", [_stacked(ins) for ins in lists], op)
        with _on(total):
            mine = np.empty_like(total, shape=(len(outs), outs[0].size))

        def after() -> None:
            for out, row in zip(outs, mine, strict=True):
                total_here = _near(row, out)
                with _on(out):
                    op.finish(total_here, out, entries)

        call = Call("reduce_scatter", mine, inner, ins=list(total.reshape(pg.size(), mine.size)))
        return _run(pg, lane, call, async_op, output_tensor_list, outs, after)
    except BaseException as error:
        failed(pg, error)
        raise


def _run(
    pg: ProcessGroup,
    lane: Communicator,
    call: Call,
    async_op: bool,
    given: Any,
    filled: Iterable[Array],
    after: Callable[[], None],
) -> Work | None:
    """Carry the group's part out, then `after`, which writes into `filled`, the arrays of what the caller has given."""
    work = lane.run(call, *terms(pg, call.array, call.op, async_op, None))

    def finished() -> None:
        after()
        for array in filled:  # this thread's stream is not the caller's
            _synchronize(array)

    return finish(pg, CombinedWork([work], after=finished), given, async_op)


def _reduced_here(
    pg: ProcessGroup, op: str, arrays: list[Array], reduce_op: ReduceOp
) -> tuple[Communicator, Array, ReduceOp]:
    """Reduce this rank's own arrays; return the communicator, the sum so far, and the op for the rest of the way."""
    pg.lane(arrays[0], op, check.reduce_op(pg, op, reduce_op, arrays[0]))  # refused by the dtype that the caller gave
    with _on(arrays[0]):
        total = reduce_op.accumulator(arrays[0])
    for array in arrays[1:]:
        with _on(array):
            part = reduce_op.accumulator(array)
        with _on(total):
            reduce_op.combine(total, _near(part, total))
    if reduce_op.name == "AVG" and op != "reduce_scatter":
        # Ranks may have different numbers of arrays; how many there are in all comes along as one more element.
        with _on(total):
            total = np.concatenate([total, np.full_like(total, len(arrays), shape=1)])
    # Averages are divided at the very end, and factors are already in.
    inner = reduce_op.base
    return pg.lane(total, op, inner), total, inner


def _finish(op: ReduceOp, total: Array, out: Array) -> None:
    """Write what `_reduced_here` has begun and the group has finished."""
    total = _near(total, out)
    with _on(out):
        if op.name == "AVG":
            op.finish(total[:-1], out, int(total[-1].real))
        else:
            op.finish(total, out, 1)


def _local(pg: ProcessGroup, op: str, name: str, values: Any) -> list[Array]:
    arrays = [check.output_array(pg, op, f"{name}[{i}]", value) for i, value in enumerate(values)]
    if not arrays:
        raise ValueError(f"{op} on rank {pg.global_rank}: {name} is empty")
    check.same_kind(pg, op, arrays[0], f"{name}[0]", arrays, name)
    for i, array in enumerate(arrays):
        check.same_size(pg, op, array, f"{name}[{i}]", arrays[0], f"{name}[0]")
    return arrays


def _input(pg: ProcessGroup, op: str, name: str, value: Any) -> Array:
    """Return `value` as an array that is only read; if it has to be copied for that, where it lies."""
    try:
        where = _on(as_array(value))
    except TypeError:  # said in more words below
        where = nullcontext()
    with where:
        return check.input_array(pg, op, name, value)


def _index(pg: ProcessGroup, op: str, name: str, index: int, arrays: list[Array]) -> int:
    if not 0 <= index < len(arrays):
        raise ValueError(f"{op} on rank {pg.global_rank}: {name}={index}, but the list has {len(arrays)} arrays")
    return index


# CuPy computes on the current device only, and each device has streams of its own.


def _on(array: Array) -> AbstractContextManager[Any]:
    """Make the device of `array` the current one: CuPy computes nowhere else."""
    return nullcontext() if type(array) is np.ndarray else array.device


def _near(array: Array, target: Array) -> Array:
    """Return `array` on the device of `target`, whose streams and those of `array`'s know nothing of each other."""
    if type(array) is np.ndarray or array.device == target.device:
        return array
    _synchronize(array)
    with _on(target):
        copied = array.copy()
    _synchronize(copied)
    return copied


def _synchronize(array: Array) -> None:
    """Wait for what was begun on a GPU by this thread."""
    if type(array) is not np.ndarray:
        import cupy

        with _on(array):
            cupy.cuda.get_current_stream().synchronize()


def _assign(out: Array, array: Array) -> None:
    """Copy an array into another, wherever the two lie."""
    copied = _near(array, out)
    with _on(out):
        out[...] = copied.reshape(out.shape)


def _stacked(arrays: list[Array]) -> Array:
    """Return the arrays one after the other, on the device of the first."""
    with _on(arrays[0]):
        return np.concatenate([_near(array.reshape(-1), arrays[0]) for array in arrays])
