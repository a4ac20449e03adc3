"""The collectives. Names and arguments are those of `torch.distributed`; what it calls a tensor is an array here.

All take `group` (None is the default group) and `timeout` (None is the group's). With `async_op=True` a call returns a
`Work` at once; otherwise it returns None when this rank is done. On a rank that is not in the group a call warns and
returns None. Ranks given as `src` and `dst` are global; `group_src` and `group_dst` are ranks in the group.

All ranks of a group must make the same calls in the same order; if they do not, all raise `CollectiveMismatchError`, on
backends with the feature `mismatch`. Wrong arguments are a `TypeError` or `ValueError`, and what the backend's
capability table refuses is an `UnsupportedOperationError`, before anything is sent.
"""

# The plainest calls, as most are, may take a shortcut of the backend's (see `rankwise.backends.shortcuts`). The code
# below that question is the general path, which does the same for every call.

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from rankwise.basics.arrays import AnyArray, SparseArray, is_sparse
from rankwise.basics.deadline import Timeout
from rankwise.basics.reduce_op import ReduceOp
from rankwise.basics.work import Work
from rankwise.calls import check
from rankwise.calls.calling import failed, finish, require_uneven, terms
from rankwise.calls.overlap import aside, parts_aside
from rankwise.collective.call import Call
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
    """Copy the source's array into the array of every rank.

    Args:
        tensor: What the source sends and the others receive into; of the same dtype and shape on all ranks.
        src: The source, as a global rank.
        group: The group; None is the default group.
        async_op: Return at once with a `Work`, rather than when this rank is done.
        group_src: The source as a rank in the group, instead of `src`.
        timeout: How long it may take, in seconds or as a `timedelta`; None is the group's time-out.

    Returns:
        None, or with `async_op` a `Work`; None on a rank that is not in the group.

    Raises:
        TypeError: `tensor` is no array.
        ValueError: The array cannot be written to, or not exactly one source is given.
        CollectiveMismatchError: The ranks do not agree about source, dtype or shape.
        DistTimeoutError: Some ranks did not call in time.

    Examples:
        >>> array = np.full(3, rank)
        >>> dist.broadcast(array, src=1)
        >>> array
        array([1, 1, 1])
    """
    pg = None
    try:
        pg = resolve(group, "broadcast")
        if pg is None:
            return None
        root = group_rank(pg, "src", src, group_src)
        if not async_op and pg.shortcuts.broadcast(tensor, root, timeout):
            return None
        checked = check.input_array if root == pg.rank() else check.output_array
        array = checked(pg, "broadcast", "tensor", tensor)
        lane = pg.lane(array, "broadcast")
        work = lane.run(Call("broadcast", array, root=root), *terms(pg, array, "broadcast", async_op, timeout))
        return finish(pg, work, tensor, async_op)
    except BaseException as error:
        failed(pg, error)
        raise


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

    Args:
        tensor: What this rank contributes and where the result goes; of the same dtype and shape on all ranks.
        op: How to reduce.
        group: The group; None is the default group.
        async_op: Return at once with a `Work`, rather than when this rank is done.
        timeout: How long it may take, in seconds or as a `timedelta`; None is the group's time-out.

    Returns:
        None, or with `async_op` a `Work`; None on a rank that is not in the group.

    Raises:
        TypeError: `tensor` is no array, or `op` no `ReduceOp`.
        ValueError: The array cannot be written to.
        CollectiveMismatchError: The ranks do not agree about op, dtype or shape.
        DistTimeoutError: Some ranks did not call in time.
        UnsupportedOperationError: The backend does not reduce this dtype with `op`.

    Examples:
        >>> array = np.array([1.0, rank])
        >>> dist.all_reduce(array)
        >>> array
        array([2., 1.])

        Do something else meanwhile:

        >>> work = dist.all_reduce(array, dist.ReduceOp.MAX, async_op=True)
        >>> work.wait()
        True
    """
    pg = None
    try:
        pg = resolve(group, "all_reduce")
        if pg is None:
            return None
        if not async_op and pg.shortcuts.all_reduce(tensor, op, timeout):
            return None
        if type(tensor) is not np.ndarray and is_sparse(tensor):
            array, given, remark = check.sparse_elements(pg, "all_reduce", "tensor", tensor, op), tensor, " sparse"
        else:
            array, remark = check.output_array(pg, "all_reduce", "tensor", tensor), ""
            given = array
        lane = pg.lane(array, "all_reduce", check.reduce_op(pg, "all_reduce", op, array))
        if given is not array:
            pg.require_feature("sparse", "cpu", "all_reduce")
        work = lane.run(
            Call("all_reduce", given, op, remark=remark), *terms(pg, array, "all_reduce", async_op, timeout)
        )
        return finish(pg, work, tensor, async_op)
    except BaseException as error:
        failed(pg, error)
        raise


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
    """Reduce the arrays of all ranks into that of the destination; the others keep theirs as they are.

    Args:
        tensor: What this rank contributes and, at the destination, where the result goes; of the same dtype and shape
            on all ranks.
        dst: The destination, as a global rank.
        op: How to reduce.
        group: The group; None is the default group.
        async_op: Return at once with a `Work`, rather than when this rank is done.
        group_dst: The destination as a rank in the group, instead of `dst`.
        timeout: How long it may take, in seconds or as a `timedelta`; None is the group's time-out.

    Returns:
        None, or with `async_op` a `Work`; None on a rank that is not in the group.

    Raises:
        TypeError: `tensor` is no array, or `op` no `ReduceOp`.
        ValueError: The destination's array cannot be written to, or not exactly one destination is given.
        CollectiveMismatchError: The ranks do not agree about destination, op, dtype or shape.
        DistTimeoutError: Some ranks did not call in time.
        UnsupportedOperationError: The backend does not reduce this dtype with `op`.

    Examples:
        >>> array = np.full(3, rank + 1)
        >>> dist.reduce(array, dst=0)
        >>> array  # on the other rank it is as it was
        array([3, 3, 3])
    """
    pg = None
    try:
        pg = resolve(group, "reduce")
        if pg is None:
            return None
        root = group_rank(pg, "dst", dst, group_dst)
        checked = check.output_array if root == pg.rank() else check.input_array
        array = checked(pg, "reduce", "tensor", tensor)
        lane = pg.lane(array, "reduce", check.reduce_op(pg, "reduce", op, array))
        work = lane.run(Call("reduce", array, op, root), *terms(pg, array, "reduce", async_op, timeout))
        return finish(pg, work, tensor, async_op)
    except BaseException as error:
        failed(pg, error)
        raise


def all_gather(
    tensor_list: Sequence[AnyArray],
    tensor: AnyArray,
    group: GroupLike = None,
    async_op: bool = False,
    *,
    timeout: Timeout | None = None,
) -> Work | None:
    """Copy rank i's array into `tensor_list[i]` of every rank.

    The ranks' arrays may differ in size, on backends with the feature `uneven`: then `tensor_list[i]` has the size of
    rank i's array.

    Args:
        tensor_list: The arrays to fill, one for each rank of the group, which must not share memory.
        tensor: What this rank contributes.
        group: The group; None is the default group.
        async_op: Return at once with a `Work`, rather than when this rank is done.
        timeout: How long it may take, in seconds or as a `timedelta`; None is the group's time-out.

    Returns:
        None, or with `async_op` a `Work`; None on a rank that is not in the group.

    Raises:
        TypeError: Something is no array, or no list of arrays.
        ValueError: The list has the wrong length, or an array the wrong size or dtype, or it cannot be written to.
        CollectiveMismatchError: The ranks do not agree about dtype or sizes.
        DistTimeoutError: Some ranks did not call in time.
        UnsupportedOperationError: The sizes differ, and the backend takes only equal ones.

    Examples:
        >>> mine = np.arange(1 + rank)  # of 1 element on rank 0, of 2 on rank 1
        >>> arrays = [np.empty(1, int), np.empty(2, int)]
        >>> dist.all_gather(arrays, mine)
        >>> arrays
        [array([0]), array([0, 1])]
    """
    pg = None
    try:
        pg = resolve(group, "all_gather")
        if pg is None:
            return None
        if not async_op and pg.shortcuts.all_gather(tensor_list, tensor, timeout):
            return None
        array = check.input_array(pg, "all_gather", "tensor", tensor)
        parts = check.array_list(pg, "all_gather", "tensor_list", tensor_list, writable=True)
        check.same_kind(pg, "all_gather", array, "tensor", parts, "tensor_list")
        check.same_size(pg, "all_gather", array, "tensor", parts[pg.rank()], "this rank's own entry of tensor_list")
        check.apart(pg, "all_gather", "tensor_list", parts)
        array = aside(array, parts, parts[pg.rank()])
        require_uneven(pg, "all_gather", parts)
        lane = pg.lane(array, "all_gather")
        work = lane.run(Call("all_gather", array, outs=parts), *terms(pg, array, "all_gather", async_op, timeout))
        return finish(pg, work, tensor_list, async_op)
    except BaseException as error:
        failed(pg, error)
        raise


def all_gather_single(
    output_tensor: AnyArray,
    input_tensor: AnyArray,
    group: GroupLike = None,
    async_op: bool = False,
    *,
    timeout: Timeout | None = None,
) -> Work | None:
    """Copy rank i's array into the i-th of equal parts of every rank's output, concatenated or stacked.

    Nothing may be uneven; see `all_gather` for arrays that differ in size.

    Args:
        output_tensor: The array to fill, with as many elements as all inputs together.
        input_tensor: What this rank contributes; of the same dtype and size on all ranks.
        group: The group; None is the default group.
        async_op: Return at once with a `Work`, rather than when this rank is done.
        timeout: How long it may take, in seconds or as a `timedelta`; None is the group's time-out.

    Returns:
        None, or with `async_op` a `Work`; None on a rank that is not in the group.

    Raises:
        TypeError: Something is no array.
        ValueError: The sizes or dtypes do not fit, or the output cannot be written to.
        CollectiveMismatchError: The ranks do not agree about dtype or size.
        DistTimeoutError: Some ranks did not call in time.

    Examples:
        >>> whole = np.empty((2, 3), int)
        >>> dist.all_gather_single(whole, np.full(3, rank))
        >>> whole
        array([[0, 0, 0],
               [1, 1, 1]])
    """
    pg = None
    try:
        pg = resolve(group, "all_gather_single")
        if pg is None:
            return None
        if not async_op and pg.shortcuts.all_gather_single(output_tensor, input_tensor, timeout):
            return None
        array = check.input_array(pg, "all_gather_single", "input_tensor", input_tensor)
        output = check.output_array(pg, "all_gather_single", "output_tensor", output_tensor)
        check.same_kind(pg, "all_gather_single", array, "input_tensor", [output], "output_tensor")
        parts = check.equal_parts(pg, "all_gather_single", "output_tensor", output, array, "input_tensor")
        array = aside(array, (output,), parts[pg.rank()])
        lane = pg.lane(array, "all_gather")
        work = lane.run(Call("all_gather", array, outs=parts), *terms(pg, array, "all_gather", async_op, timeout))
        return finish(pg, work, output_tensor, async_op)
    except BaseException as error:
        failed(pg, error)
        raise


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
    """Copy rank i's array into `gather_list[i]` of the destination, global rank 0 unless told otherwise.

    The ranks' arrays may differ in size, on backends with the feature `uneven`.

    Args:
        tensor: What this rank contributes.
        gather_list: At the destination, the arrays to fill, one for each rank of the group; elsewhere None.
        dst: The destination, as a global rank.
        group: The group; None is the default group.
        async_op: Return at once with a `Work`, rather than when this rank is done.
        group_dst: The destination as a rank in the group, instead of `dst`.
        timeout: How long it may take, in seconds or as a `timedelta`; None is the group's time-out.

    Returns:
        None, or with `async_op` a `Work`; None on a rank that is not in the group.

    Raises:
        TypeError: Something is no array, or no list of arrays.
        ValueError: The list is missing at the destination, given elsewhere, or does not fit; or an array cannot be
            written to.
        CollectiveMismatchError: The ranks do not agree about destination, dtype or sizes.
        DistTimeoutError: Some ranks did not call in time.
        UnsupportedOperationError: The sizes differ, and the backend takes only equal ones.

    Examples:
        >>> arrays = [np.empty(2, int), np.empty(2, int)] if rank == 0 else None
        >>> dist.gather(np.full(2, rank), arrays, dst=0)
        >>> arrays
        [array([0, 0]), array([1, 1])]
    """
    pg = None
    try:
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
        work = lane.run(Call("gather", array, root=root, outs=parts), *terms(pg, array, "gather", async_op, timeout))
        return finish(pg, work, gather_list, async_op)
    except BaseException as error:
        failed(pg, error)
        raise


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
    """Copy `scatter_list[i]` of the source, global rank 0 unless told otherwise, into rank i's array.

    The ranks' arrays may differ in size, on backends with the feature `uneven`.

    Args:
        tensor: The array to fill.
        scatter_list: At the source, what each rank of the group gets; elsewhere None.
        src: The source, as a global rank.
        group: The group; None is the default group.
        async_op: Return at once with a `Work`, rather than when this rank is done.
        group_src: The source as a rank in the group, instead of `src`.
        timeout: How long it may take, in seconds or as a `timedelta`; None is the group's time-out.

    Returns:
        None, or with `async_op` a `Work`; None on a rank that is not in the group.

    Raises:
        TypeError: Something is no array, or no list of arrays.
        ValueError: The list is missing at the source, given elsewhere, or does not fit; or the array cannot be written
            to.
        CollectiveMismatchError: The ranks do not agree about source, dtype or sizes.
        DistTimeoutError: Some ranks did not call in time.
        UnsupportedOperationError: The sizes differ, and the backend takes only equal ones.

    Examples:
        >>> array = np.empty(2, int)
        >>> dist.scatter(array, [np.full(2, 10), np.full(2, 11)] if rank == 0 else None, src=0)
        >>> array
        array([10, 10])
    """
    pg = None
    try:
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
        work = lane.run(Call("scatter", array, root=root, ins=parts), *terms(pg, array, "scatter", async_op, timeout))
        return finish(pg, work, tensor, async_op)
    except BaseException as error:
        failed(pg, error)
        raise


def reduce_scatter(
    output: AnyArray,
    input_list: Sequence[AnyArray],
    op: ReduceOp = ReduceOp.SUM,
    group: GroupLike = None,
    async_op: bool = False,
    *,
    timeout: Timeout | None = None,
) -> Work | None:
    """Reduce `input_list[i]` of all ranks into rank i's output.

    The parts may differ in size, on backends with the feature `uneven`; part i has the same size on all ranks.

    Args:
        output: The array to fill.
        input_list: What this rank contributes, one array for each rank of the group.
        op: How to reduce.
        group: The group; None is the default group.
        async_op: Return at once with a `Work`, rather than when this rank is done.
        timeout: How long it may take, in seconds or as a `timedelta`; None is the group's time-out.

    Returns:
        None, or with `async_op` a `Work`; None on a rank that is not in the group.

    Raises:
        TypeError: Something is no array, or no list of arrays, or `op` no `ReduceOp`.
        ValueError: The list has the wrong length, or an array the wrong size or dtype, or the output cannot be written
            to.
        CollectiveMismatchError: The ranks do not agree about op, dtype or sizes.
        DistTimeoutError: Some ranks did not call in time.
        UnsupportedOperationError: The backend does not reduce this dtype with `op`, or takes only equal sizes.

    Examples:
        >>> array = np.empty(1, int)
        >>> dist.reduce_scatter(array, [np.array([10 + rank]), np.array([20 + rank])])
        >>> array  # [41] on rank 1
        array([21])
    """
    pg = None
    try:
        pg = resolve(group, "reduce_scatter")
        if pg is None:
            return None
        if not async_op and pg.shortcuts.reduce_scatter(output, input_list, op, timeout):
            return None
        array = check.output_array(pg, "reduce_scatter", "output", output)
        parts = check.array_list(pg, "reduce_scatter", "input_list", input_list, writable=False)
        check.same_kind(pg, "reduce_scatter", array, "output", parts, "input_list")
        check.same_size(pg, "reduce_scatter", array, "output", parts[pg.rank()], "this rank's own entry of input_list")
        parts = parts_aside(parts, array)
        require_uneven(pg, "reduce_scatter", parts)
        lane = pg.lane(array, "reduce_scatter", check.reduce_op(pg, "reduce_scatter", op, array))
        work = lane.run(
            Call("reduce_scatter", array, op, ins=parts), *terms(pg, array, "reduce_scatter", async_op, timeout)
        )
        return finish(pg, work, output, async_op)
    except BaseException as error:
        failed(pg, error)
        raise


def reduce_scatter_single(
    output: AnyArray,
    input: AnyArray,
    op: ReduceOp = ReduceOp.SUM,
    group: GroupLike = None,
    async_op: bool = False,
    *,
    timeout: Timeout | None = None,
) -> Work | None:
    """Reduce the i-th of equal parts of all ranks' inputs into rank i's output.

    Nothing may be uneven; see `reduce_scatter` for parts that differ in size.

    Args:
        output: The array to fill; of the same dtype and size on all ranks.
        input: What this rank contributes, with as many elements as all outputs together.
        op: How to reduce.
        group: The group; None is the default group.
        async_op: Return at once with a `Work`, rather than when this rank is done.
        timeout: How long it may take, in seconds or as a `timedelta`; None is the group's time-out.

    Returns:
        None, or with `async_op` a `Work`; None on a rank that is not in the group.

    Raises:
        TypeError: Something is no array, or `op` no `ReduceOp`.
        ValueError: The sizes or dtypes do not fit, or the output cannot be written to.
        CollectiveMismatchError: The ranks do not agree about op, dtype or size.
        DistTimeoutError: Some ranks did not call in time.
        UnsupportedOperationError: The backend does not reduce this dtype with `op`.

    Examples:
        >>> array = np.empty(2, int)
        >>> dist.reduce_scatter_single(array, np.arange(4))
        >>> array  # [4, 6] on rank 1
        array([0, 2])
    """
    pg = None
    try:
        pg = resolve(group, "reduce_scatter_single")
        if pg is None:
            return None
        if not async_op and pg.shortcuts.reduce_scatter_single(output, input, op, timeout):
            return None
        array = check.output_array(pg, "reduce_scatter_single", "output", output)
        whole = check.input_array(pg, "reduce_scatter_single", "input", input)
        check.same_kind(pg, "reduce_scatter_single", array, "output", [whole], "input")
        parts = check.equal_parts(pg, "reduce_scatter_single", "input", whole, array, "output")
        parts = parts_aside(parts, array)
        lane = pg.lane(array, "reduce_scatter", check.reduce_op(pg, "reduce_scatter_single", op, array))
        work = lane.run(
            Call("reduce_scatter", array, op, ins=parts), *terms(pg, array, "reduce_scatter", async_op, timeout)
        )
        return finish(pg, work, output, async_op)
    except BaseException as error:
        failed(pg, error)
        raise


def all_to_all(
    output_tensor_list: Sequence[AnyArray],
    input_tensor_list: Sequence[AnyArray],
    group: GroupLike = None,
    async_op: bool = False,
    *,
    timeout: Timeout | None = None,
) -> Work | None:
    """Copy rank i's `input_tensor_list[j]` into rank j's `output_tensor_list[i]`.

    All the arrays may differ in size, on backends with the feature `uneven`: each only has to fit where it arrives.

    Args:
        output_tensor_list: The arrays to fill, one for each rank of the group.
        input_tensor_list: What each rank of the group gets from this one.
        group: The group; None is the default group.
        async_op: Return at once with a `Work`, rather than when this rank is done.
        timeout: How long it may take, in seconds or as a `timedelta`; None is the group's time-out.

    Returns:
        None, or with `async_op` a `Work`; None on a rank that is not in the group.

    Raises:
        TypeError: Something is no array, or no list of arrays.
        ValueError: A list has the wrong length, the dtypes differ, or an output cannot be written to or shares memory
            with another array.
        CollectiveMismatchError: The ranks do not agree about dtype or sizes.
        DistTimeoutError: Some ranks did not call in time.
        UnsupportedOperationError: The sizes differ, and the backend takes only equal ones.

    Examples:
        >>> outputs = [np.empty(1, int), np.empty(1, int)]
        >>> dist.all_to_all(outputs, [np.array([10 * rank]), np.array([10 * rank + 1])])
        >>> outputs  # [1] and [11] on rank 1
        [array([0]), array([10])]
    """
    pg = None
    try:
        pg = resolve(group, "all_to_all")
        if pg is None:
            return None
        if not async_op and pg.shortcuts.all_to_all(output_tensor_list, input_tensor_list, timeout):
            return None
        outs = check.array_list(pg, "all_to_all", "output_tensor_list", output_tensor_list, writable=True)
        ins = check.array_list(pg, "all_to_all", "input_tensor_list", input_tensor_list, writable=False)
        check.same_kind(pg, "all_to_all", ins[0], "the first input", [*ins, *outs], "the arrays")
        check.apart(pg, "all_to_all", "output_tensor_list", outs, ins)
        work = _exchange(pg, "all_to_all", outs, ins, async_op, timeout)
        return finish(pg, work, output_tensor_list, async_op)
    except BaseException as error:
        failed(pg, error)
        raise


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
    """Cut the input along its first dimension, send part j to rank j, and put what comes one after the other.

    The parts are equal, unless split sizes are given; different sizes need a backend with the feature `uneven`.

    Args:
        output: The array to fill.
        input: What this rank sends.
        output_split_sizes: How many rows come from each rank; None for as many from each.
        input_split_sizes: How many rows each rank gets; None for as many for each.
        group: The group; None is the default group.
        async_op: Return at once with a `Work`, rather than when this rank is done.
        timeout: How long it may take, in seconds or as a `timedelta`; None is the group's time-out.

    Returns:
        None, or with `async_op` a `Work`; None on a rank that is not in the group.

    Raises:
        TypeError: Something is no array.
        ValueError: The sizes do not add up to the rows of an array, the dtypes differ, or the output cannot be written
            to or shares memory with the input.
        CollectiveMismatchError: The ranks do not agree about dtype or sizes.
        DistTimeoutError: Some ranks did not call in time.
        UnsupportedOperationError: The sizes differ, and the backend takes only equal ones.

    Examples:
        >>> output = np.empty(2, int)
        >>> dist.all_to_all_single(output, np.array([10 * rank, 10 * rank + 1]))
        >>> output  # [1, 11] on rank 1
        array([ 0, 10])
    """
    pg = None
    try:
        pg = resolve(group, "all_to_all_single")
        if pg is None:
            return None
        equal = not output_split_sizes and not input_split_sizes
        if equal and not async_op and pg.shortcuts.all_to_all_single(output, input, timeout):
            return None
        whole = check.output_array(pg, "all_to_all_single", "output", output)
        array = check.input_array(pg, "all_to_all_single", "input", input)
        outs = check.split_parts(pg, "all_to_all_single", "output", whole, output_split_sizes)
        ins = check.split_parts(pg, "all_to_all_single", "input", array, input_split_sizes)
        check.same_kind(pg, "all_to_all_single", array, "input", [whole], "output")
        check.apart(pg, "all_to_all_single", "output", [whole], [array])
        work = _exchange(pg, "all_to_all_single", outs, ins, async_op, timeout)
        return finish(pg, work, output, async_op)
    except BaseException as error:
        failed(pg, error)
        raise


def barrier(
    group: GroupLike = None,
    async_op: bool = False,
    device_ids: Sequence[int] | None = None,
    timeout: Timeout | None = None,
) -> Work | None:
    """Return once every rank of the group has called.

    Args:
        group: The group; None is the default group.
        async_op: Return at once with a `Work`, rather than when this rank is done.
        device_ids: Taken for torch's sake, and not needed.
        timeout: How long it may take, in seconds or as a `timedelta`; None is the group's time-out.

    Returns:
        None, or with `async_op` a `Work`; None on a rank that is not in the group.

    Raises:
        CollectiveMismatchError: Another rank has called something else.
        DistTimeoutError: Some ranks did not call in time; see `monitored_barrier` for which.

    Examples:
        >>> dist.barrier()
    """
    pg = None
    try:
        pg = resolve(group, "barrier")
        if pg is None:
            return None
        if not async_op and pg.shortcuts.barrier(timeout):
            return None
        lane, device = pg.any_lane("barrier")
        return finish(pg, lane.run(Call("barrier"), *terms(pg, device, "barrier", async_op, timeout)), None, async_op)
    except BaseException as error:
        failed(pg, error)
        raise


all_gather_into_tensor = all_gather_single
"""`all_gather_single` by the name that torch used before 2.13."""
reduce_scatter_tensor = reduce_scatter_single
"""`reduce_scatter_single` by the name that torch used before 2.13."""


def _exchange(
    pg: ProcessGroup, op: str, outs: list[Any], ins: list[Any], async_op: bool, timeout: Timeout | None
) -> Work:
    mine = pg.rank()
    check.same_size(pg, op, outs[mine], "this rank's own output part", ins[mine], "its own input part")
    require_uneven(pg, op, outs, ins)
    lane = pg.lane(ins[0], "all_to_all")
    return lane.run(
        Call("all_to_all", ins[mine], ins=ins, outs=outs), *terms(pg, ins[0], "all_to_all", async_op, timeout)
    )
