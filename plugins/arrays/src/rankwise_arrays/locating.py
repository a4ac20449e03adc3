"""The minimum and maximum with their places: MPI's MINLOC and MAXLOC."""

from __future__ import annotations

from typing import Any

import numpy as np

import rankwise as dist
from rankwise import ReduceOp
from rankwise.backends import kind_of, to_host
from rankwise_arrays.kinds import Array, Group, copied, in_order, is_member, placed_like, taken


def minloc(x: Any, index: Any = None, group: Group = None, *, timeout: Any = None) -> Any:
    """Return the element-wise minimum of all ranks' values, and where it is.

    Args:
        x: What this rank contributes; of one dtype and shape on all ranks.
        index: An integer for it, or for each element; None is this rank's number in the group. Where several ranks have
            the least, the lowest of theirs counts.
        group: The group; None is the default group.
        timeout: How long each of its two reductions may take; None is the group's time-out.

    Returns:
        The least, like `x`, and the integers that belong to it.

    Examples:
        >>> functional.minloc(np.array([3, rank]))
        (array([3, 0]), array([0, 0]))
    """
    return _located("minloc", x, index, ReduceOp.MIN, group, timeout)


def maxloc(x: Any, index: Any = None, group: Group = None, *, timeout: Any = None) -> Any:
    """Return the element-wise maximum of all ranks' values, and where it is; see `minloc`.

    Args:
        x: What this rank contributes; of one dtype and shape on all ranks.
        index: An integer for it, or for each element; None is this rank's number in the group.
        group: The group; None is the default group.
        timeout: How long each of its two reductions may take; None is the group's time-out.

    Returns:
        The greatest, like `x`, and the integers that belong to it.

    Examples:
        >>> functional.maxloc(10 * rank)
        (10, 1)
    """
    return _located("maxloc", x, index, ReduceOp.MAX, group, timeout)


def _located(call: str, x: Any, index: Any, op: ReduceOp, group: Group, timeout: Any) -> Any:
    given = taken(call, x)
    if not is_member(group):
        return None
    best = copied(given.array)
    dist.all_reduce(best, op, group, timeout=timeout)
    where = _candidates(in_order(given.array), best, dist.get_rank(group) if index is None else index)
    dist.all_reduce(where, ReduceOp.MIN, group, timeout=timeout)
    return given.give_back(best), given.give_back(where)


def _candidates(array: Array, best: Array, index: Any) -> Array:
    """Return the index of each element that is the best, or one beyond all."""
    on_host = kind_of(array) is None
    mine, top = (array, best) if on_host else (to_host(array), to_host(best))
    is_best = (mine == top) | (mine != mine)  # NaN, which is the best wherever it is, differs from itself
    return placed_like(array, np.where(is_best, np.asarray(index, np.int64), np.iinfo(np.int64).max))
