"""Collectives over several arrays per rank, usually one on each of the process's devices.

Each is one collective of the group with a step on this rank's own arrays before and after it, so it runs on every
backend and on every kind of device. The group's part is on the device of the first array. The arrays of a list have one
dtype and size, the same on all ranks; where nothing else is said, ranks may have different numbers of them. Beside what
is said here, each raises what its collective of one array does.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import partial
from itertools import chain, repeat
from typing import Any

import numpy as np

from rankwise.backends import Array, ReduceOp, Work
from rankwise.binding import (
    AnyArray,
    Call,
    GroupLike,
    ProcessGroup,
    carry_out,
    check,
    empty_like,
    failed,
    group_rank,
    on_device_of,
    require,
    resolve,
)
from rankwise_arrays.moving import assign, computable, near, synchronize


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
        name = "broadcast_multigpu"
        _place(src_tensor=src_tensor)
        arrays = _alike_list(pg, name, "tensor_list", tensor_list)
        root = group_rank(pg, "src", src, None)
        # All ranks use their first device: on some backends each device has connections of its own.
        carrier = arrays[0]
        pg.lane(carrier, "broadcast")  # refused before anything is written
        if root == pg.rank():
            assign(carrier, _chosen(pg, name, "src_tensor", src_tensor, arrays))
        call = Call("broadcast", carrier, root=root)
        return _run(pg, call, async_op, tensor_list, lambda: [(array, carrier) for array in arrays])
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
        arrays = _alike_list(pg, "all_reduce_multigpu", "tensor_list", tensor_list)
        call = Call("all_reduce", _reduced(pg, "all_reduce", op, arrays), op.base)
        return _run(pg, call, async_op, tensor_list, lambda: zip(arrays, repeat(_finished(op, call.array))))
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
        name = "reduce_multigpu"
        _place(dst_tensor=dst_tensor)
        arrays = _alike_list(pg, name, "tensor_list", tensor_list)
        root = group_rank(pg, "dst", dst, None)
        mine = [_chosen(pg, name, "dst_tensor", dst_tensor, arrays)] if root == pg.rank() else []
        call = Call("reduce", _reduced(pg, "reduce", op, arrays), op.base, root)
        return _run(pg, call, async_op, tensor_list, lambda: [(array, _finished(op, call.array)) for array in mine])
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
        name = "all_gather_multigpu"
        ins = _alike_list(pg, name, "input_tensor_list", input_tensor_list, writable=False)
        lists = [
            _alike_list(pg, name, f"output_tensor_lists[{i}]", outs, own=("input_tensor_list", ins))
            for i, outs in enumerate(output_tensor_lists)
        ]
        check.apart(pg, name, "output_tensor_lists", list(chain(*lists)))
        mine = _stacked(ins)
        rows = empty_like(mine, (pg.size() * len(ins), ins[0].size))
        call = Call("all_gather", mine, outs=list(rows.reshape(pg.size(), mine.size)))
        return _run(
            pg, call, async_op, output_tensor_lists, lambda: chain(*[zip(outs, rows, strict=True) for outs in lists])
        )
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
        outs = _alike_list(pg, name, "output_tensor_list", output_tensor_list)
        lists = [
            _alike_list(pg, name, f"input_tensor_lists[{i}]", ins, writable=False, own=("output_tensor_list", outs))
            for i, ins in enumerate(input_tensor_lists)
        ]
        if len(lists) != len(outs):
            wanted = f"one for each of {len(outs)} outputs"
            raise ValueError(f"input_tensor_lists holds {len(lists)} lists, but must hold {wanted}")
        total = _reduced(pg, "reduce_scatter", op, [_stacked(ins) for ins in lists])
        mine = empty_like(total, (len(outs), outs[0].size))
        call = Call("reduce_scatter", mine, op.base, ins=list(total.reshape(pg.size(), mine.size)))
        return _run(
            pg, call, async_op, output_tensor_list, lambda: zip(outs, _finished(op, mine, len(lists[0])), strict=True)
        )
    except BaseException as error:
        failed(pg, error)
        raise


def _run(
    pg: ProcessGroup, call: Call, async_op: bool, given: Any, parts: Callable[[], Iterable[tuple[Array, Array]]]
) -> Work | None:
    """Carry the group's part out, then copy: `parts` says then what goes into which of the caller's arrays."""

    def hand_out() -> None:
        for out in [assign(out, part) for out, part in parts()]:
            synchronize(out)  # this thread's stream is not the caller's

    return carry_out(pg, call, given, async_op, None, after=hand_out)


def _alike_list(
    group: ProcessGroup,
    op: str,
    name: str,
    values: Iterable[Any],
    writable: bool = True,
    own: tuple[str, Sequence[Array]] | None = None,
) -> list[Array]:
    """Return a list of arrays of one dtype and size, of which there is at least one.

    With `own`, another list of this rank's by its name and arrays, there must be one like these for each of them on
    each rank.
    """
    take = partial(check.output_array, in_order=True) if writable else check.input_array
    arrays = [take(group, op, f"{name}[{i}]", value) for i, value in enumerate(values)]
    if not arrays:
        raise ValueError(f"{check.where(group, op, name)} is empty")
    own_name, others = own or (name, arrays)
    if own and len(arrays) != group.size() * len(others):
        raise ValueError(
            f"{check.where(group, op, name)} has {len(arrays)} arrays, but must have {group.size()} x {len(others)}: "
            f"one for each of {own_name} of each of {group.size()} ranks"
        )
    check.same_kind(group, op, others[0], f"{own_name}[0]", arrays, name)
    for i, array in enumerate(arrays):
        check.same_size(group, op, array, f"{name}[{i}]", others[0], f"{own_name}[0]")
    check.apart(group, op, name, arrays if writable else ())
    return arrays


def _chosen(group: ProcessGroup, op: str, name: str, place: int, arrays: Sequence[Array]) -> Array:
    """Return the array at a place that the caller has given."""
    if place >= len(arrays):
        raise ValueError(f"{check.where(group, op, f'{name}={place}')}, but the list has {len(arrays)} arrays")
    return arrays[place]


def _place(**given: int) -> None:
    """Raise unless a number that tells one of several arrays can be one; which there are is known where the list is."""
    require(**given)
    for name, value in given.items():
        if value < 0:
            raise ValueError(f"{name} must not be negative, but is {value}")


def _stacked(arrays: list[Array]) -> Array:
    """Return the arrays one after the other, on the device of the first."""
    with on_device_of(arrays[0]):
        return near(np.concatenate([computable(near(array.reshape(-1), arrays[0])) for array in arrays]), arrays[0])


def _reduced(pg: ProcessGroup, op: str, reduce_op: ReduceOp, arrays: list[Array]) -> Array:
    """Reduce this rank's own arrays, factors and all; an average is divided at the very end, by `_finished`."""
    checked = check.reduce_op(pg, f"{op}_multigpu", reduce_op, arrays[0])
    pg.lane(arrays[0], op, checked)  # refused by the dtype that the caller gave
    with on_device_of(arrays[0]):
        total = reduce_op.accumulator(computable(arrays[0]))
        for array in arrays[1:]:
            reduce_op.combine(total, reduce_op.accumulator(computable(near(array, arrays[0]))))
        if reduce_op.name == "AVG" and op != "reduce_scatter":
            # Ranks may have different numbers of arrays; how many there are in all comes along as one more element.
            total = np.concatenate([total, np.full_like(total, len(arrays), shape=1)])
        return near(total, arrays[0])


def _finished(op: ReduceOp, total: Array, count: int = 0) -> Array:
    """Return what `count` arrays are reduced to; where that is not known, the last element of an average says it."""
    total = computable(total)
    with on_device_of(total):
        if op.name == "AVG" and not count:
            total, count = total[:-1], int(total[-1].real)
        op.average(total, count)
        return total
