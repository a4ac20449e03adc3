"""Doing something on every rank of a group, and failing on all of them if it fails on one; comparing what all say."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any
from zlib import crc32

import numpy as np

import rankwise as dist
from rankwise.errors import CollectiveMismatchError, UnsupportedOperationError
from rankwise_arrays.fences import tell
from rankwise_arrays.kinds import Group

#: What a rank may raise in place of another.
_KINDS = {kind.__name__: kind for kind in (MemoryError, TypeError, UnsupportedOperationError, ValueError)}


def together(call: str, act: Callable[[], Any], group: Group) -> list[Any]:
    """Do something, and return what it has returned on each rank, in the order of ranks.

    Raises:
        MemoryError, TypeError, UnsupportedOperationError, ValueError: It has failed on some rank; the same on all.
    """
    cause: Exception | None = None
    try:
        mine = [None, act()]
    except tuple(_KINDS.values()) as error:
        cause, mine = error, [type(error).__name__, str(error).removeprefix(f"{call}: ")]
    told: list[Any] = [None] * dist.get_world_size(group)
    dist.all_gather_object(told, mine, group)
    failed = [place for place, (kind, _) in enumerate(told) if kind is not None]
    if failed:
        kind, text = told[failed[0]]
        whose = "" if len(failed) == len(told) else f"rank {dist.get_process_group_ranks(group)[failed[0]]}: "
        raise _KINDS[kind](f"{call}: {whose}{text}") from cause
    return [value for _, value in told]


def compare(call: str, wanted: str, told: Sequence[str], group: Group) -> None:
    """Compare what the ranks of a group say.

    Raises:
        CollectiveMismatchError: They differ; it names those that differ from most.
    """
    ways = Counter(told)
    if len(ways) == 1:
        return
    most, votes = ways.most_common(1)[0]
    ranks = dist.get_process_group_ranks(group)
    odd = tuple(rank for rank, each in zip(ranks, told, strict=True) if each != most or 2 * votes <= len(told))
    lines = "; ".join(f"rank {rank}: {each}" for rank, each in zip(ranks, told, strict=True))
    raise CollectiveMismatchError(f"{call}: the ranks do not {wanted}: {lines}", odd)


def agree(call: str, said: str, group: Group, timeout: Any) -> None:
    """Compare what the ranks of a group say, in one short collective if they say the same; it is a fence, too.

    Raises:
        CollectiveMismatchError: They say different things; it names those that differ from most.
    """
    told = np.empty(dist.get_world_size(group), np.int64)
    tell(told, np.array([crc32(said.encode())]), group, timeout)
    if (told != told[0]).any():
        compare(call, "make the same call", together(call, lambda: said, group), group)
