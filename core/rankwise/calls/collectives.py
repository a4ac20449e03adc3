"""The collectives. Names and arguments are those of `torch.distributed`; its tensors are arrays here.

All take `group` (None is the default group) and `timeout` (None is the group's). With `async_op=True` a call returns a
`Work` immediately, otherwise None when this rank is done. On a rank that is not in the group a call warns and returns
None. Ranks given as `src` and `dst` are global; `group_src` and `group_dst` are ranks in the group.

All ranks of a group must make the same calls in the same order; if they do not, all raise `CollectiveMismatchError`, on
backends with the feature `mismatch`. Wrong arguments are a `TypeError` or `ValueError`, and what the backend's
capability table refuses is an `UnsupportedOperationError`, before anything is sent.
"""

# Plain calls, as most are, may take a shortcut of the backend's (see `rankwise.backends.fast_calls`). The code
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
from rankwise.calls.calling import carry_out, failed, issued, require_uneven
from rankwise.calls.check import aside, parts_aside
from rankwise.calls.fronts import Root, fronted
from rankwise.collective.call import Call
from rankwise.groups.process_group import GroupLike
from rankwise.groups.ranks import group_rank
from rankwise.groups.world import resolve


@fronted("tensor", Root("src"), "timeout")
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
        async_op: Return a `Work` immediately instead of waiting for the operation.
        group_src: The source as a rank in the group, instead of `src`.
        timeout: How long it may take, in seconds or as a `timedelta`; None is the group's time-out.

    Returns:
        None, or with `async_op` a `Work`; None on a rank that is not in the group.

    Raises:
        TypeError: `tensor` is not an array.
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
        if (pg := resolve(group, "broadcast")) is None:
            return None
        root = group_rank(pg, "src", src, group_src)
        if async_op:
            if (work := issued(pg, "broadcast", tensor, timeout, tensor, root)) is not None:
                return work
        elif pg.shortcuts.broadcast(tensor, root, timeout):
            return None
        is_root = root == pg.rank()
        found = check.by_memory(pg, tensor, is_filled=not is_root)
        given = tensor if found is None else found.memory
        array = (check.input_array if is_root else check.output_array)(pg, "broadcast", "tensor", given)
        call = Call("broadcast", array, root=root, reordered=found)
        return carry_out(pg, call, tensor, async_op, timeout, filled=None if is_root or found is not None else array)
    except BaseException as error:
        failed(pg, error)
        raise


@fronted("tensor", "op", "timeout")
def all_reduce(
    tensor: AnyArray | SparseArray,
    op: ReduceOp = ReduceOp.SUM,
    group: GroupLike = None,
    async_op: bool = False,
    *,
    timeout: Timeout | None = None,
) -> Work | None:
    """Reduce the arrays of all ranks, element by element, and leave the result in every rank's array.

    On backends with the feature `sparse` the arrays may be of `scipy.sparse` (CSR, CSC or COO, with SUM). They
    become the sum: sorted, without duplicates, with an element wherever any rank had one.

    Args:
        tensor: What this rank contributes and where the result goes; of the same dtype and shape on all ranks.
        op: How to reduce.
        group: The group; None is the default group.
        async_op: Return a `Work` immediately instead of waiting for the operation.
        timeout: How long it may take, in seconds or as a `timedelta`; None is the group's time-out.

    Returns:
        None, or with `async_op` a `Work`; None on a rank that is not in the group.

    Raises:
        TypeError: `tensor` is not an array, or `op` is not a `ReduceOp`.
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
        if (pg := resolve(group, "all_reduce")) is None:
            return None
        if async_op:
            if (work := issued(pg, "all_reduce", tensor, timeout, tensor, op)) is not None:
                return work
        elif pg.shortcuts.all_reduce(tensor, op, timeout):
            return None
        found = None
        if type(tensor) is not np.ndarray and is_sparse(tensor):
            array, remark = check.sparse_elements(pg, "all_reduce", "tensor", tensor, op)
            given: Any = tensor
        else:
            found, remark = check.by_memory(pg, tensor), ""
            given = tensor if found is None else found.memory
            given = array = check.reducible_array(pg, "all_reduce", "tensor", given)
        reduction = check.reduce_op(pg, "all_reduce", op, array)
        if given is not array:
            pg.lane(array, "all_reduce", reduction)  # which refuses what no feature would help
            pg.require_feature("sparse", "cpu", "all_reduce")
        call = Call("all_reduce", given, reduction, remark=remark, reordered=found)
        return carry_out(pg, call, tensor, async_op, timeout, filled=given if found is None else None, own=array)
    except BaseException as error:
        failed(pg, error)
        raise


@fronted("tensor", "op", Root("dst"), "timeout")
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
    """Reduce the arrays of all ranks into that of the destination; the other arrays keep their content.

    Args:
        tensor: What this rank contributes and, at the destination, where the result goes; of the same dtype and shape
            on all ranks.
        dst: The destination, as a global rank.
        op: How to reduce.
        group: The group; None is the default group.
        async_op: Return a `Work` immediately instead of waiting for the operation.
        group_dst: The destination as a rank in the group, instead of `dst`.
        timeout: How long it may take, in seconds or as a `timedelta`; None is the group's time-out.

    Returns:
        None, or with `async_op` a `Work`; None on a rank that is not in the group.

    Raises:
        TypeError: `tensor` is not an array, or `op` is not a `ReduceOp`.
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
        if (pg := resolve(group, "reduce")) is None:
            return None
        root = group_rank(pg, "dst", dst, group_dst)
        if async_op:
            if (work := issued(pg, "reduce", tensor, timeout, tensor, op, root)) is not None:
                return work
        elif pg.shortcuts.reduce(tensor, op, root, timeout):
            return None
        is_root = root == pg.rank()
        found = check.by_memory(pg, tensor, is_filled=is_root)
        given = tensor if found is None else found.memory
        array = check.reducible_array(pg, "reduce", "tensor", given, is_result=is_root)
        call = Call("reduce", array, check.reduce_op(pg, "reduce", op, array), root, reordered=found)
        return carry_out(pg, call, tensor, async_op, timeout, filled=array if is_root and found is None else None)
    except BaseException as error:
        failed(pg, error)
        raise


@fronted("tensor", "gather_list", Root("dst"), "timeout")
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
    """Copy rank i's array into `gather_list[i]` of the destination, by default global rank 0.

    The ranks' arrays may differ in size, on backends with the feature `uneven`.

    Args:
        tensor: What this rank contributes.
        gather_list: At the destination, the arrays to fill, one for each rank of the group; elsewhere None.
        dst: The destination, as a global rank.
        group: The group; None is the default group.
        async_op: Return a `Work` immediately instead of waiting for the operation.
        group_dst: The destination as a rank in the group, instead of `dst`.
        timeout: How long it may take, in seconds or as a `timedelta`; None is the group's time-out.

    Returns:
        None, or with `async_op` a `Work`; None on a rank that is not in the group.

    Raises:
        TypeError: An argument is not an array, or not a list of arrays.
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
        if (pg := resolve(group, "gather")) is None:
            return None
        root = group_rank(pg, "dst", 0 if dst is None and group_dst is None else dst, group_dst)
        if async_op:
            if (work := issued(pg, "gather", gather_list, timeout, tensor, gather_list, root)) is not None:
                return work
        elif pg.shortcuts.gather(tensor, gather_list, root, timeout):
            return None
        array = check.input_array(pg, "gather", "tensor", tensor)
        parts = check.root_list(pg, "gather", "gather_list", gather_list, root, writable=True)
        if parts is not None:
            check.same_kind(pg, "gather", array, "tensor", parts, "gather_list")
            check.same_size(pg, "gather", array, "tensor", parts[root], "this rank's own entry of gather_list")
            check.apart(pg, "gather", "gather_list", parts)
            array = aside(array, parts, parts[root])
        require_uneven(pg, "gather", parts)
        call = Call("gather", array, root=root, outs=parts)
        return carry_out(pg, call, gather_list, async_op, timeout, filled=parts)
    except BaseException as error:
        failed(pg, error)
        raise


@fronted("tensor", "scatter_list", Root("src"), "timeout")
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
    """Copy `scatter_list[i]` of the source, global rank 0 by default, into rank i's array.

    The ranks' arrays may differ in size, on backends with the feature `uneven`.

    Args:
        tensor: The array to fill.
        scatter_list: At the source, what each rank of the group gets; elsewhere None.
        src: The source, as a global rank.
        group: The group; None is the default group.
        async_op: Return a `Work` immediately instead of waiting for the operation.
        group_src: The source as a rank in the group, instead of `src`.
        timeout: How long it may take, in seconds or as a `timedelta`; None is the group's time-out.

    Returns:
        None, or with `async_op` a `Work`; None on a rank that is not in the group.

    Raises:
        TypeError: An argument is not an array, or not a list of arrays.
        ValueError: The list is missing at the source, given elsewhere, or does not fit; or the array cannot be written
            to.
        CollectiveMismatchError: The ranks do not agree about source, dtype or sizes.
        DistTimeoutError: Some ranks did not call in time.
        UnsupportedOperationError: The sizes differ, and the backend takes only equal ones.

    Examples:
        >>> array = np.empty(2, int)
        >>> parts = [np.full(2, 10), np.full(2, 11)] if rank == 0 else None
        >>> dist.scatter(array, parts, src=0)
        >>> array
        array([10, 10])
    """
    pg = None
    try:
        if (pg := resolve(group, "scatter")) is None:
            return None
        root = group_rank(pg, "src", 0 if src is None and group_src is None else src, group_src)
        if async_op:
            if (work := issued(pg, "scatter", tensor, timeout, tensor, scatter_list, root)) is not None:
                return work
        elif pg.shortcuts.scatter(tensor, scatter_list, root, timeout):
            return None
        array = check.output_array(pg, "scatter", "tensor", tensor)
        parts = check.root_list(pg, "scatter", "scatter_list", scatter_list, root, writable=False)
        if parts is not None:
            check.same_kind(pg, "scatter", array, "tensor", parts, "scatter_list")
            check.same_size(pg, "scatter", array, "tensor", parts[root], "this rank's own entry of scatter_list")
            parts = parts_aside(parts, array)
        require_uneven(pg, "scatter", parts)
        call = Call("scatter", array, root=root, ins=parts)
        return carry_out(pg, call, tensor, async_op, timeout, filled=array)
    except BaseException as error:
        failed(pg, error)
        raise


@fronted("timeout")
def barrier(
    group: GroupLike = None,
    async_op: bool = False,
    device_ids: Sequence[int] | None = None,
    timeout: Timeout | None = None,
) -> Work | None:
    """Return once every rank of the group has called.

    Args:
        group: The group; None is the default group.
        async_op: Return a `Work` immediately instead of waiting for the operation.
        device_ids: Accepted as in torch, and ignored.
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
        if (pg := resolve(group, "barrier")) is None:
            return None
        if async_op:
            if (work := issued(pg, "barrier", None, timeout)) is not None:
                return work
        elif pg.shortcuts.barrier(timeout):
            return None
        return carry_out(pg, Call("barrier"), None, async_op, timeout)
    except BaseException as error:
        failed(pg, error)
        raise
