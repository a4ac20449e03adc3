"""Messages that are looked at before they are received."""

from __future__ import annotations

from dataclasses import replace

from rankwise.backends.communicator import Communicator
from rankwise.basics.deadline import Timeout, seconds
from rankwise.basics.messages import Status
from rankwise.calls import check
from rankwise.calls.calling import broken
from rankwise.groups.process_group import GroupLike, ProcessGroup
from rankwise.groups.ranks import group_rank
from rankwise.groups.world import resolve


def probe(
    src: int | None = None,
    group: GroupLike = None,
    tag: int = 0,
    group_src: int | None = None,
    *,
    timeout: Timeout | None = None,
) -> Status | None:
    """Wait for a message, and tell what it is; a receive from its source takes it.

    Args:
        src: The source, as a global rank; None, if `group_src` is None too, for any rank.
        group: The group; None is the default group.
        tag: The number that the sender passes.
        group_src: The source as a rank in the group, instead of `src`.
        timeout: How long it may take, in seconds or as a `timedelta`; None is the group's time-out.

    Returns:
        The message's source, tag, length and, where messages tell it, dtype; None on a rank that is not in the group.

    Raises:
        DistTimeoutError: No message has come in time; nothing else has changed.
        UnsupportedOperationError: The backend cannot probe.

    Examples:
        >>> sending = dist.isend(np.arange(rank + 1), dst=1 - rank)
        >>> message = dist.probe()
        >>> array = np.empty(message.count(int), int)
        >>> dist.recv(array, src=message.source), array
        (1, array([0, 1]))
        >>> sending.wait()
        True
    """
    pg = None
    try:
        if (pg := resolve(group, "probe")) is None:
            return None
        lane, peer = _asked(pg, "probe", src, group_src, tag)
        timeout_s = pg.timeout_s if timeout is None else seconds(timeout)
        return _named(pg, lane.probe(peer, tag, timeout_s))
    except BaseException as error:
        broken(pg, error)
        raise


def iprobe(
    src: int | None = None, group: GroupLike = None, tag: int = 0, group_src: int | None = None
) -> Status | None:
    """Tell of a message that has come and that no receive has met; never waits.

    Args:
        src: The source, as a global rank; None, if `group_src` is None too, for any rank.
        group: The group; None is the default group.
        tag: The number that the sender passes.
        group_src: The source as a rank in the group, instead of `src`.

    Returns:
        The message's source, tag, length and, where messages tell it, dtype; or None, also on a rank that is not in
        the group.

    Raises:
        UnsupportedOperationError: The backend cannot probe.

    Examples:
        >>> dist.iprobe(src=1 - rank, tag=3) is None
        True
    """
    pg = None
    try:
        if (pg := resolve(group, "iprobe")) is None:
            return None
        lane, peer = _asked(pg, "iprobe", src, group_src, tag)
        found = lane.iprobe(peer, tag)
        return None if found is None else _named(pg, found)
    except BaseException as error:
        broken(pg, error)
        raise


def _asked(
    pg: ProcessGroup, op: str, src: int | None, group_src: int | None, tag: int
) -> tuple[Communicator, int | None]:
    check.tag(pg, op, tag)
    peer = None if src is None and group_src is None else group_rank(pg, "src", src, group_src)
    lane, device = pg.any_lane("recv")
    for feature, asked in (("probe", True), ("any_source", peer is None), ("tags", tag)):
        if asked:
            pg.require_feature(feature, device, op)
    return lane, peer


def _named(pg: ProcessGroup, found: Status) -> Status:
    return replace(found, source=pg.ranks[found.source])
