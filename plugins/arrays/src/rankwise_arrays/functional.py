"""Calls that leave their arguments unchanged and return their result: `rankwise.functional`.

The result is a new value of the caller's own kind: an array of NumPy, CuPy, torch, JAX or any library with DLPack, or a
number. Inputs may be read-only and need not be contiguous. On a rank that is not in the group each call returns None.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import accumulate, pairwise
from typing import Any

import numpy as np

import rankwise as dist
from rankwise import ReduceOp
from rankwise_arrays.blocks import axis_of, cut, shares
from rankwise_arrays.kinds import Array, Group, copied, empty, in_order, is_member, placed_like, taken
from rankwise_arrays.locating import maxloc, minloc
from rankwise_arrays.messages import tag_for
from rankwise_arrays.objects import all_to_all_objects, broadcast_object, reduce_objects
from rankwise_arrays.scans import Op, reduced_by, scanned
from rankwise_arrays.shapes import gather_shapes, joined
from rankwise_arrays.transposing import exchanged, transpose

__all__ = [
    "all_gather",
    "all_reduce",
    "all_to_all",
    "all_to_all_objects",
    "broadcast",
    "broadcast_object",
    "exscan",
    "gather",
    "maxloc",
    "minloc",
    "permute",
    "reduce_objects",
    "reduce_scatter",
    "scan",
    "scatter",
    "transpose",
]


def all_reduce(x: Any, op: Op = ReduceOp.SUM, group: Group = None, *, timeout: Any = None) -> Any:
    """Return the element-wise reduction of all ranks' values.

    Args:
        x: What this rank contributes; of one dtype and shape on all ranks.
        op: How to reduce: a reduce op, or a function of two arrays, such as `np.logical_and` or `np.matmul`, which is
            called with what lower ranks make first. It must be associative, and need not be commutative.
        group: The group; None is the default group.
        timeout: How long it may take, in seconds or as a `timedelta`; None is the group's time-out.

    Returns:
        The result, like `x`.

    Examples:
        >>> functional.all_reduce(rank + 1)
        3
        >>> functional.all_reduce(rank == 0, np.logical_or)
        True
        >>> functional.all_reduce(np.array([1.0, rank]), dist.ReduceOp.MAX)
        array([1., 1.])
    """
    given = taken("all_reduce", x)
    if not is_member(group):
        return None
    if not isinstance(op, ReduceOp):
        return given.give_back(reduced_by("all_reduce", given.array, op, group, timeout))
    out = copied(given.array)
    dist.all_reduce(out, op, group, timeout=timeout)
    return given.give_back(out)


def broadcast(x: Any, src: int = 0, group: Group = None, *, timeout: Any = None) -> Any:
    """Return the source's array.

    Args:
        x: The array; the other ranks give one of the same dtype and shape, whose values do not matter.
        src: The source, as a global rank.
        group: The group; None is the default group.
        timeout: How long it may take; None is the group's time-out.

    Returns:
        A copy of it.

    Examples:
        >>> functional.broadcast(np.array([rank, rank]), src=1)
        array([1, 1])
    """
    given = taken("broadcast", x)
    out = copied(given.array)
    if not is_member(group):
        return None
    dist.broadcast(out, src, group, timeout=timeout)
    return given.give_back(out)


def all_gather(x: Any, axis: int | None = None, group: Group = None, *, timeout: Any = None) -> Any:
    """Return all ranks' values, in rank order.

    Args:
        x: What this rank gives.
        axis: None stacks along a new first axis, where all ranks give one shape. A number joins along that axis, in
            which lengths may differ.
        group: The group; None is the default group.
        timeout: How long it may take; None is the group's time-out.

    Returns:
        The whole.

    Raises:
        ValueError: The shapes do not fit together; the same on all ranks.

    Examples:
        >>> functional.all_gather(np.array([rank, 7]))
        array([[0, 7],
               [1, 7]])
        >>> functional.all_gather(np.full(rank + 1, rank), axis=0)
        array([0, 1, 1])
    """
    given = taken("all_gather", x)
    if not is_member(group):
        return None
    array = in_order(given.array)
    if axis is None:
        out = empty(array, (dist.get_world_size(group), *array.shape))
        dist.all_gather_into_tensor(out, array, group, timeout=timeout)
        return given.give_back(out)
    axis = axis_of("all_gather", array.ndim, axis)
    shapes = gather_shapes("all_gather", array, axis, group, timeout)
    out, parts = joined(array, shapes, axis)
    dist.all_gather(parts, array, group, timeout=timeout)
    return given.give_back(out())


def gather(x: Any, dst: int = 0, axis: int | None = None, group: Group = None, *, timeout: Any = None) -> Any:
    """Return all ranks' values, in rank order, to one rank, and None to the others.

    Args:
        x: What this rank gives.
        dst: The rank that gets it, as a global rank.
        axis: None stacks along a new first axis; a number joins along that axis, in which lengths may differ.
        group: The group; None is the default group.
        timeout: How long it may take; None is the group's time-out.

    Returns:
        The whole on rank `dst`.

    Examples:
        >>> whole = functional.gather(np.array([rank, 7]), dst=0)
        >>> whole.tolist() if rank == 0 else whole
        [[0, 7], [1, 7]]
    """
    given = taken("gather", x)
    if not is_member(group):
        return None
    array = in_order(given.array)
    is_root = dist.get_rank() == dst
    if axis is None:
        if not is_root:
            dist.gather(array, None, dst, group, timeout=timeout)
            return None
        size = dist.get_world_size(group)
        out = empty(array, (size, *array.shape))
        dist.gather(
            array, [out[rank : rank + 1].reshape(array.shape) for rank in range(size)], dst, group, timeout=timeout
        )
        return given.give_back(out)
    axis = axis_of("gather", array.ndim, axis)
    shapes = gather_shapes("gather", array, axis, group, timeout)
    if not is_root:
        dist.gather(array, None, dst, group, timeout=timeout)
        return None
    whole, parts = joined(array, shapes, axis)
    dist.gather(array, parts, dst, group, timeout=timeout)
    return given.give_back(whole())


def scatter(
    x: Any,
    src: int = 0,
    axis: int = 0,
    group: Group = None,
    *,
    lengths: Sequence[int] | None = None,
    timeout: Any = None,
) -> Any:
    """Return each rank's part of the source's array, whose shape the others need not know; `gather` is the inverse.

    Args:
        x: The array on rank `src`; None on the others.
        src: The source, as a global rank.
        axis: The axis along which it is divided.
        group: The group; None is the default group.
        lengths: How long each rank's part is; None divides as `share` does. Only the source's counts.
        timeout: How long it may take; None is the group's time-out.

    Returns:
        This rank's part.

    Raises:
        ValueError: There is no such axis, or the lengths are not those of parts of it; the same on all ranks.

    Examples:
        >>> functional.scatter(np.arange(5) if rank == 0 else None, src=0).tolist()
        [0, 1, 2]
        >>> functional.scatter(np.arange(5), src=0, lengths=[1, 4]).tolist()
        [0]
    """
    if not is_member(group):
        return None
    is_root = dist.get_rank() == src
    given = taken("scatter", x if is_root else np.empty(0))
    parts: list[Array] | None = None
    told: Any = None
    if is_root:
        try:
            parts = _parts(given.array, axis, lengths, dist.get_world_size(group))
            told = [part.shape for part in parts], given.array.dtype
        except ValueError as error:
            told = str(error)
    told = broadcast_object(told, src, group)
    if isinstance(told, str):
        raise ValueError(told)
    shapes, dtype = told
    out = empty(given.array, tuple(shapes[dist.get_rank(group)]), dtype)
    dist.scatter(out, parts, src, group, timeout=timeout)
    return given.give_back(out)


def reduce_scatter(
    x: Any, op: ReduceOp = ReduceOp.SUM, axis: int = 0, group: Group = None, *, timeout: Any = None
) -> Any:
    """Return this rank's share of the reduction of all ranks' values.

    Args:
        x: What this rank contributes; of one dtype and shape on all ranks.
        op: How to reduce.
        axis: The axis along which the result is divided, as `share` divides.
        group: The group; None is the default group.
        timeout: How long it may take; None is the group's time-out.

    Returns:
        The part.

    Examples:
        >>> functional.reduce_scatter(np.array([1, 2, 3])).tolist()
        [2, 4]
    """
    given = taken("reduce_scatter", x)
    if not is_member(group):
        return None
    axis = axis_of("reduce_scatter", given.array.ndim, axis)
    parts = cut(given.array, axis, shares(given.array.shape[axis], dist.get_world_size(group)))
    out = empty(given.array, parts[dist.get_rank(group)].shape)
    dist.reduce_scatter(out, parts, op, group, timeout=timeout)
    return given.give_back(out)


def all_to_all(
    x: Any, split_axis: int = 0, concat_axis: int | None = None, group: Group = None, *, timeout: Any = None
) -> Any:
    """Send each rank a part, and join the received parts: divide an array along another axis than before.

    Args:
        x: This rank's array, or a list of one array for each rank, of one dtype and of any shapes.
        split_axis: The axis of an array that is divided among the ranks, as `share` divides.
        concat_axis: The axis along which what comes is joined, in the order of ranks. None is the first for an array,
            and joins nothing of a list.
        group: The group; None is the default group.
        timeout: How long it may take; None is the group's time-out.

    Returns:
        The array; of a list that is not joined a list, of what comes from each rank.

    Raises:
        ValueError: A list has not one array for each rank, or what comes does not fit together.

    Examples:
        >>> whole = np.arange(16).reshape(4, 4)
        >>> rows = whole[2 * rank : 2 * rank + 2]
        >>> columns = functional.all_to_all(rows, split_axis=1, concat_axis=0)
        >>> columns.tolist() == whole[:, 2 * rank : 2 * rank + 2].tolist()
        True
        >>> [part.tolist() for part in functional.all_to_all([np.array([rank, to]) for to in range(2)])]
        [[0, 0], [1, 0]]
    """
    if not is_member(group):
        return None
    size = dist.get_world_size(group)
    if isinstance(x, (list, tuple)):
        if len(x) != size:
            raise ValueError(f"all_to_all: {len(x)} arrays for a group of {size}")
        given = [taken("all_to_all", each) for each in x]
        parts = [in_order(each.array) for each in given]
    else:
        given = [taken("all_to_all", x)]
        split_axis = axis_of("all_to_all", given[0].array.ndim, split_axis)
        parts = cut(given[0].array, split_axis, shares(given[0].array.shape[split_axis], size))
        concat_axis = concat_axis or 0
    if concat_axis is not None:
        concat_axis = axis_of("all_to_all", parts[0].ndim, concat_axis)
    whole, come = exchanged(parts, concat_axis, group, timeout)
    if concat_axis is not None:
        return given[0].give_back(whole())
    return [each.give_back(array) for each, array in zip(given, come, strict=True)]


def permute(x: Any, pairs: Iterable[tuple[int, int]], group: Group = None, *, timeout: Any = None) -> Any:
    """Send arrays along pairs of ranks; a rank that receives none gets zeros.

    Args:
        x: What this rank gives; of one dtype and shape on all ranks.
        pairs: Who sends to whom, as ranks in the group; no rank sends or gets twice.
        group: The group; None is the default group.
        timeout: How long it may take; None is the group's time-out.

    Returns:
        What has come, like `x`.

    Raises:
        ValueError: A rank would send or get twice, or there is no such rank.

    Examples:
        >>> functional.permute(np.array([rank + 1]), [(0, 1)]).tolist()
        [0]
    """
    given = taken("permute", x)
    if not is_member(group):
        return None
    goes, comes = _checked_pairs([*pairs], dist.get_world_size(group))
    me, tag = dist.get_rank(group), tag_for(group)
    array = in_order(given.array)
    out = placed_like(array, np.zeros(array.shape, array.dtype))
    works = []
    if me in comes:
        works.append(dist.irecv(out, None, group, tag, comes[me]))
    if me in goes:
        works.append(dist.isend(array, None, group, tag, goes[me]))
    for work in works:
        work.wait(timeout)
    return given.give_back(out)


def scan(x: Any, op: Op = ReduceOp.SUM, group: Group = None, *, timeout: Any = None) -> Any:
    """Return the reduction of the values of the ranks up to this one, in rank order.

    Args:
        x: What this rank contributes; of one dtype and shape on all ranks.
        op: How to reduce, as for `all_reduce`; not AVG.
        group: The group; None is the default group.
        timeout: How long it may take; None is the group's time-out.

    Returns:
        The result, like `x`.

    Examples:
        >>> functional.scan(rank + 1) == sum(range(1, rank + 2))
        True
    """
    return _scanned("scan", x, op, group, timeout, exclusive=False)


def exscan(x: Any, op: Op = ReduceOp.SUM, group: Group = None, *, timeout: Any = None) -> Any:
    """Return the reduction of the values of the ranks before this one; rank 0 gets its own value.

    Args:
        x: What this rank contributes; of one dtype and shape on all ranks.
        op: How to reduce, as for `all_reduce`; not AVG.
        group: The group; None is the default group.
        timeout: How long it may take; None is the group's time-out.

    Returns:
        The result, like `x`.

    Examples:
        >>> functional.exscan(10 * (rank + 1))
        10
    """
    return _scanned("exscan", x, op, group, timeout, exclusive=True)


def _scanned(call: str, x: Any, op: Op, group: Group, timeout: Any, exclusive: bool) -> Any:
    given = taken(call, x)
    if not is_member(group):
        return None
    return given.give_back(scanned(call, given.array, op, group, timeout, exclusive))


def _parts(array: Array, axis: int, lengths: Sequence[int] | None, size: int) -> list[Array]:
    """Return the parts of an array that a scatter sends."""
    axis = axis_of("scatter", array.ndim, axis)
    if lengths is None:
        return cut(array, axis, shares(array.shape[axis], size))
    if len(lengths) != size or min(lengths) < 0 or sum(lengths) != array.shape[axis]:
        raise ValueError(f"scatter: {list(lengths)} are no lengths of {size} parts of {array.shape[axis]} elements")
    ends = accumulate(lengths, initial=0)
    return cut(array, axis, [range(begin, end) for begin, end in pairwise(ends)])


def _checked_pairs(pairs: Sequence[tuple[int, int]], size: int) -> tuple[dict[int, int], dict[int, int]]:
    """Return to whom each rank sends, and from whom each gets."""
    goes, comes = dict(pairs), {to: by for by, to in pairs}
    if len(goes) != len(pairs) or len(comes) != len(pairs):
        raise ValueError(f"permute: a rank sends or gets twice in {list(pairs)}")
    strange = [rank for pair in pairs for rank in pair if not 0 <= rank < size]
    if strange:
        raise ValueError(f"permute: there is no rank {strange[0]} in a group of {size}")
    return goes, comes
