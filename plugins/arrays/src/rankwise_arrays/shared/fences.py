"""A barrier that also orders memory."""

from __future__ import annotations

from threading import Lock
from typing import Any

import rankwise as dist
from rankwise_arrays.kinds import Group

__all__ = ["fence"]

_order = Lock()


def fence(group: Group = None, *, timeout: Any = None) -> None:
    """Wait until all ranks of a group have come: what any has written before, all see afterwards.

    Args:
        group: The group; None is the default group.
        timeout: How long it may take, in seconds or as a `timedelta`; None is the group's time-out.

    Raises:
        PeerDiedError: A rank has died.
        DistTimeoutError: Some have not come in time.

    Examples:
        >>> mine = dist.shared_zeros(1, int)
        >>> if rank == 0:
        ...     mine.peer(1)[:] = 7
        >>> dist.fence()
        >>> mine.peer(1)
        SharedArray([7])
    """
    with _order:  # a lock orders memory, whatever way the backend's barrier goes
        pass
    dist.barrier(group, timeout=timeout)
    with _order:
        pass
