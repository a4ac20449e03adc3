"""What torch wants of a group: what it says to the maker of one, and what only its own helper knows."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from datetime import timedelta
from types import FrameType
from typing import Any, NamedTuple

from torch.distributed import Store

_HELPER = "_new_process_group_helper"


class Request(NamedTuple):
    """A group that torch asks for, or that is split off from another."""

    #: The group's own part of torch's store.
    store: Store
    #: This process's rank in the group, and the global rank of each of its ranks.
    rank: int
    ranks: Sequence[int]
    #: The backend's name in torch.
    backend: str
    timeout: timedelta
    #: The group's unique name, and what messages call it.
    name: str
    description: str


def asked(store: Store, rank: int, size: int, backend: str, timeout: timedelta) -> Request:
    """Return what torch's helper, which has called, wants of a group."""
    local = helper()
    ranks = list(local.get("global_ranks_in_group") or range(size))
    name = str(local.get("group_name") or "unnamed")
    return Request(store, rank, ranks, backend, timeout, name, str(local.get("group_desc") or name))


def helper() -> dict[str, Any]:
    """Return the variables of the function of torch's that is making a group; none if it is not on the stack.

    It tells no backend which other devices the group is for, and its own gloo not even the name.
    """
    frame: FrameType | None = sys._getframe(1)
    while frame is not None and frame.f_code.co_name != _HELPER:
        frame = frame.f_back
    return {} if frame is None else dict(frame.f_locals)
