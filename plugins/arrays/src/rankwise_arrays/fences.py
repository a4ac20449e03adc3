"""A barrier that also orders memory."""

from __future__ import annotations

from threading import Lock
from typing import Any

import rankwise as dist
from rankwise_arrays.kinds import Array, Group

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


def tell(told: Array, mine: Array, group: Group, timeout: Any) -> None:
    """Tell all ranks of a group some numbers, and take theirs; it is a fence, too.

    Args:
        told: Takes the numbers of each rank, as rows.
        mine: This rank's numbers.
        group: The group; None is the default group.
        timeout: How long it may take; None is the group's time-out.
    """
    with _order:
        pass
    dist.all_gather_single(told, mine, group, timeout=timeout)
    with _order:
        pass
