"""The collectives. Names and arguments are those of `torch.distributed`; what it calls a tensor is an array here.

All take `group` (None is the default group) and `timeout` (None is the group's). With `async_op=True` a call returns a
`Work` at once; otherwise it returns None when this rank is done. On a rank that is not in the group a call warns and
returns None. Ranks given as `src` and `dst` are global; `group_src` and `group_dst` are ranks in the group.

All ranks of a group must make the same calls in the same order; if they do not, all raise `CollectiveMismatchError`.

The plainest calls, which most are, may take a shortcut of the backend's (see `rankwise.backends.shortcuts`). What is
below the question for it is the general way, which does the same for all calls.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from rankwise.basics.arrays import AnyArray, SparseArray, is_sparse
from rankwise.basics.deadline import Timeout
from rankwise.basics.reduce_op import ReduceOp
from rankwise.basics.work import Work
from rankwise.calls import check
from rankwise.calls.calling import finish, require_uneven, terms
from rankwise.calls.overlap import aside, parts_aside
from rankwise.groups.process_group import GroupLike, ProcessGroup
from rankwise.groups.ranks import group_rank
from rankwise.groups.world import resolve

__all__ = [
    "all_gather",
    "all_gather_into_tensor",
    "all_gather_single",
    "all_reduce",
    "all_to_all",
    "all_to_all_single",
    "barrier",
    "broadcast",
    "gather",
    "reduce",
    "reduce_scatter",
    "reduce_scatter_single",
    "reduce_scatter_tensor",
    "scatter",
]


def broadcast(
    tensor: AnyArray,
    src: int | None = None,
    group: GroupLike = None,
    async_op: bool = False,
    group_src: int | None = None,
    *,
    timeout: Timeout | None = None,
) -> Work | None:
    """Copy the source's array into the array of every rank."""
    pg = resolve(group, "broadcast")
    if pg is None:
        return None
    root = group_rank(pg, "src", src, group_src)
    if not async_op and timeout is None and pg.shortcuts.broadcast(tensor, root):
        return None
    checked = check.input_array if root == pg.rank() else check.output_array
    array = checked(pg, "broadcast", "tensor", tensor)
    lane = pg.lane(array, "broadcast")
    return finish(pg, lane.broadcast(array, root, *terms(pg, array, "broadcast", async_op, timeout)), tensor, async_op)


def all_reduce(
    tensor: AnyArray | SparseArray,
    op: ReduceOp = ReduceOp.SUM,
    group: GroupLike = None,
    async_op: bool = False,
    *,
    timeout: Timeout | None = None,
) -> Work | None:
    """Reduce the arrays of all ranks, element by element, and leave the result in every rank's array.

    On backends with the feature `sparse` the arrays may be of `scipy.sparse` (CSR, CSC or COO, with SUM). Their content
    is replaced: sorted, each place once, with an element wherever any rank had one.
    """
    pg = resolve(group, "all_reduce")
    if pg is None:
        return None
    if not async_op and timeout is None and pg.shortcuts.all_reduce(tensor, op):
        return None
    if type(tensor) is not np.ndarray and is_sparse(tensor):
        array, given = check.sparse_elements(pg, "all_reduce", "tensor", tensor, op), tensor
    else:
        array = given = check.output_array(pg, "all_reduce", "tensor", tensor)
    lane = pg.lane(array, "all_reduce", check.reduce_op(pg, "all_reduce", op, array))
    if given is not array:
        pg.require_feature("sparse", "cpu", "all_reduce")
    return finish(pg, lane.all_reduce(given, op, *terms(pg, array, "all_reduce", async_op, timeout)), tensor, async_op)


def reduce(
    tensor: AnyArray,
    dst: int | None = None,
    op: ReduceOp = ReduceOp.SUM,
    group: GroupLike = None,
    async_op: bool = False,
    group_dst: int | None = None,
    *,
    timeout: Timeout | None = None,
) -> Work | None:
    """Reduce the arrays of all ranks into that of the destination; the others keep theirs as they are."""
    pg = resolve(group, "reduce")
    if pg is None:
        return None
    root = group_rank(pg, "dst", dst, group_dst)
    checked = check.output_array if root == pg.rank() else check.input_array
    array = checked(pg, "reduce", "tensor", tensor)
    lane = pg.lane(array, "reduce", check.reduce_op(pg, "reduce", op, array))
    return finish(pg, lane.reduce(array, op, root, *terms(pg, array, "reduce", async_op, timeout)), tensor, async_op)


def all_gather(
    tensor_list: Sequence[AnyArray],
    tensor: AnyArray,
    group: GroupLike = None,
    async_op: bool = False,
    *,
    timeout: Timeout | None = None,
) -> Work | None:
    """Copy rank i's array into `tensor_list[i]` of every rank. The arrays may differ in size between ranks."""
    pg = resolve(group, "all_gather")
    if pg is None:
        return None
    if not async_op and timeout is None and pg.shortcuts.all_gather(tensor_list, tensor):
        return None
    array = check.input_array(pg, "all_gather", "tensor", tensor)
    parts = check.array_list(pg, "all_gather", "tensor_list", tensor_list, writable=True)
    check.same_kind(pg, "all_gather", array, "tensor", parts, "tensor_list")
    check.same_size(pg, "all_gather", array, "tensor", parts[pg.rank()], "this rank's own entry of tensor_list")
    check.apart(pg, "all_gather", "tensor_list", parts)
    array = aside(array, parts, parts[pg.rank()])
    require_uneven(pg, "all_gather", parts)
    lane = pg.lane(array, "all_gather")
    work = lane.all_gather(parts, array, *terms(pg, array, "all_gather", async_op, timeout))
    return finish(pg, work, tensor_list, async_op)


def all_gather_single(
    output_tensor: AnyArray,
    input_tensor: AnyArray,
    group: GroupLike = None,
    async_op: bool = False,
    *,
    timeout: Timeout | None = None,
) -> Work | None:
    """Copy rank i's array into the i-th of equal parts of every rank's output, concatenated or stacked."""
    pg = resolve(group, "all_gather_single")
    if pg is None:
        return None
    if not async_op and timeout is None and pg.shortcuts.all_gather_single(output_tensor, input_tensor):
        return None
    array = check.input_array(pg, "all_gather_single", "input_tensor", input_tensor)
    output = check.output_array(pg, "all_gather_single", "output_tensor", output_tensor)
    check.same_kind(pg, "all_gather_single", array, "input_tensor", [output], "output_tensor")
    parts = check.equal_parts(pg, "all_gather_single", "output_tensor", output, array, "input_tensor")
    array = aside(array, (output,), parts[pg.rank()])
    lane = pg.lane(array, "all_gather")
    work = lane.all_gather(parts, array, *terms(pg, array, "all_gather", async_op, timeout))
    return finish(pg, work, output_tensor, async_op)


def gather(
    tensor: AnyArray,
    gather_list: Sequence[AnyArray] | None = None,
    dst: int | None = None,
    group: GroupLike = None,
    async_op: bool = False,
    group_dst: int | None = None,
    *,
    timeout: Timeout | None = None,
) -> Work | None:
    """Copy rank i's array into `gather_list[i]` of the destination, global rank 0 unless told otherwise."""
    pg = resolve(group, "gather")
    if pg is None:
        return None
    root = group_rank(pg, "dst", 0 if dst is None and group_dst is None else dst, group_dst)
    array = check.input_array(pg, "gather", "tensor", tensor)
    parts = check.root_list(pg, "gather", "gather_list", gather_list, root, writable=True)
    if parts is not None:
        check.same_kind(pg, "gather", array, "tensor", parts, "gather_list")
        check.same_size(pg, "gather", array, "tensor", parts[root], "this rank's own entry of gather_list")
        check.apart(pg, "gather", "gather_list", parts)
        array = aside(array, parts, parts[root])
    require_uneven(pg, "gather", parts)
    lane = pg.lane(array, "gather")
    work = lane.gather(parts, array, root, *terms(pg, array, "gather", async_op, timeout))
    return finish(pg, work, gather_list, async_op)


def scatter(
    tensor: AnyArray,
    scatter_list: Sequence[AnyArray] | None = None,
    src: int | None = None,
    group: GroupLike = None,
    async_op: bool = False,
    group_src: int | None = None,
    *,
    timeout: Timeout | None = None,
) -> Work | None:
    """Copy `scatter_list[i]` of the source, global rank 0 unless told otherwise, into rank i's array."""
    pg = resolve(group, "scatter")
    if pg is None:
        return None
    root = group_rank(pg, "src", 0 if src is None and group_src is None else src, group_src)
    array = check.output_array(pg, "scatter", "tensor", tensor)
    parts = check.root_list(pg, "scatter", "scatter_list", scatter_list, root, writable=False)
    if parts is not None:
        check.same_kind(pg, "scatter", array, "tensor", parts, "scatter_list")
        check.same_size(pg, "scatter", array, "tensor", parts[root], "this rank's own entry of scatter_list")
        parts = parts_aside(parts, array)
    require_uneven(pg, "scatter", parts)
    lane = pg.lane(array, "scatter")
    work = lane.scatter(array, parts, root, *terms(pg, array, "scatter", async_op, timeout))
    return finish(pg, work, tensor, async_op)


def reduce_scatter(
    output: AnyArray,
    input_list: Sequence[AnyArray],
    op: ReduceOp = ReduceOp.SUM,
    group: GroupLike = None,
    async_op: bool = False,
    *,
    timeout: Timeout | None = None,
) -> Work | None:
    """Reduce `input_list[i]` of all ranks into rank i's output. The parts may differ in size."""
    pg = resolve(group, "reduce_scatter")
    if pg is None:
        return None
    if not async_op and timeout is None and pg.shortcuts.reduce_scatter(output, input_list, op):
        return None
    array = check.output_array(pg, "reduce_scatter", "output", output)
    parts = check.array_list(pg, "reduce_scatter", "input_list", input_list, writable=False)
    check.same_kind(pg, "reduce_scatter", array, "output", parts, "input_list")
    check.same_size(pg, "reduce_scatter", array, "output", parts[pg.rank()], "this rank's own entry of input_list")
    parts = parts_aside(parts, array)
    require_uneven(pg, "reduce_scatter", parts)
    lane = pg.lane(array, "reduce_scatter", check.reduce_op(pg, "reduce_scatter", op, array))
    work = lane.reduce_scatter(array, parts, op, *terms(pg, array, "reduce_scatter", async_op, timeout))
    return finish(pg, work, output, async_op)


def reduce_scatter_single(
    output: AnyArray,
    input: AnyArray,
    op: ReduceOp = ReduceOp.SUM,
    group: GroupLike = None,
    async_op: bool = False,
    *,
    timeout: Timeout | None = None,
) -> Work | None:
    """Reduce the i-th of equal parts of all ranks' inputs into rank i's output."""
    pg = resolve(group, "reduce_scatter_single")
    if pg is None:
        return None
    if not async_op and timeout is None and pg.shortcuts.reduce_scatter_single(output, input, op):
        return None
    array = check.output_array(pg, "reduce_scatter_single", "output", output)
    whole = check.input_array(pg, "reduce_scatter_single", "input", input)
    check.same_kind(pg, "reduce_scatter_single", array, "output", [whole], "input")
    parts = check.equal_parts(pg, "reduce_scatter_single", "input", whole, array, "output")
    parts = parts_aside(parts, array)
    lane = pg.lane(array, "reduce_scatter", check.reduce_op(pg, "reduce_scatter_single", op, array))
    work = lane.reduce_scatter(array, parts, op, *terms(pg, array, "reduce_scatter", async_op, timeout))
    return finish(pg, work, output, async_op)


def all_to_all(
    output_tensor_list: Sequence[AnyArray],
    input_tensor_list: Sequence[AnyArray],
    group: GroupLike = None,
    async_op: bool = False,
    *,
    timeout: Timeout | None = None,
) -> Work | None:
    """Copy rank i's `input_tensor_list[j]` into rank j's `output_tensor_list[i]`. The arrays may differ in size."""
    pg = resolve(group, "all_to_all")
    if pg is None:
        return None
    if not async_op and timeout is None and pg.shortcuts.all_to_all(output_tensor_list, input_tensor_list):
        return None
    outs = check.array_list(pg, "all_to_all", "output_tensor_list", output_tensor_list, writable=True)
    ins = check.array_list(pg, "all_to_all", "input_tensor_list", input_tensor_list, writable=False)
    check.same_kind(pg, "all_to_all", ins[0], "the first input", [*ins, *outs], "the arrays")
    check.apart(pg, "all_to_all", "output_tensor_list", outs, ins)
    work = _exchange(pg, "all_to_all", outs, ins, async_op, timeout)
    return finish(pg, work, output_tensor_list, async_op)


def all_to_all_single(
    output: AnyArray,
    input: AnyArray,
    output_split_sizes: Sequence[int] | None = None,
    input_split_sizes: Sequence[int] | None = None,
    group: GroupLike = None,
    async_op: bool = False,
    *,
    timeout: Timeout | None = None,
) -> Work | None:
    """Cut the input along its first dimension, send part j to rank j, and put what comes one after the other."""
    pg = resolve(group, "all_to_all_single")
    if pg is None:
        return None
    equal = not output_split_sizes and not input_split_sizes
    if equal and not async_op and timeout is None and pg.shortcuts.all_to_all_single(output, input):
        return None
    whole = check.output_array(pg, "all_to_all_single", "output", output)
    array = check.input_array(pg, "all_to_all_single", "input", input)
    outs = check.split_parts(pg, "all_to_all_single", "output", whole, output_split_sizes)
    ins = check.split_parts(pg, "all_to_all_single", "input", array, input_split_sizes)
    check.same_kind(pg, "all_to_all_single", array, "input", [whole], "output")
    check.apart(pg, "all_to_all_single", "output", [whole], [array])
    work = _exchange(pg, "all_to_all_single", outs, ins, async_op, timeout)
    return finish(pg, work, output, async_op)


def barrier(
    group: GroupLike = None,
    async_op: bool = False,
    device_ids: Sequence[int] | None = None,
    timeout: Timeout | None = None,
) -> Work | None:
    """Return once every rank of the group has called. `device_ids` is taken for torch's sake and not needed."""
    pg = resolve(group, "barrier")
    if pg is None:
        return None
    if not async_op and timeout is None and pg.shortcuts.barrier():
        return None
    lane, device = pg.any_lane("barrier")
    return finish(pg, lane.barrier(*terms(pg, device, "barrier", async_op, timeout)), None, async_op)


#: The names that torch used before 2.13.
all_gather_into_tensor = all_gather_single
reduce_scatter_tensor = reduce_scatter_single


def _exchange(
    pg: ProcessGroup, op: str, outs: list[Any], ins: list[Any], async_op: bool, timeout: Timeout | None
) -> Work:
    mine = pg.rank()
    check.same_size(pg, op, outs[mine], "this rank's own output part", ins[mine], "its own input part")
    require_uneven(pg, op, outs, ins)
    lane = pg.lane(ins[0], "all_to_all")
    return lane.all_to_all(outs, ins, *terms(pg, ins[0], "all_to_all", async_op, timeout))
