"""Messages between two ranks. Ranks given as `src`, `dst` and `peer` are global."""

from __future__ import annotations

from typing import Any

from rankwise.basics.arrays import AnyArray
from rankwise.basics.deadline import Timeout
from rankwise.basics.work import COMPLETED, Work
from rankwise.calls import check
from rankwise.calls.calling import bounded, broken, put_back
from rankwise.calls.sides import incoming, outgoing
from rankwise.groups.process_group import GroupLike
from rankwise.groups.world import resolve

__all__ = ["irecv", "isend", "recv", "send"]


def send(
    tensor: AnyArray,
    dst: int | None = None,
    group: GroupLike = None,
    tag: int = 0,
    group_dst: int | None = None,
    *,
    timeout: Timeout | None = None,
) -> None:
    """Send an array; return once it may be changed again, possibly before it is received.

    Args:
        tensor: The array to send.
        dst: The destination, as a global rank.
        group: The group; None is the default group.
        tag: A number; the receiver must pass the same one.
        group_dst: The destination as a rank in the group, instead of `dst`.
        timeout: How long it may take, in seconds or as a `timedelta`; None is the group's time-out.

    Raises:
        TypeError: `tensor` is not an array.
        ValueError: The destination is this rank itself (use `isend` and `irecv` for that), or not exactly one is given.
        DistTimeoutError: It was not received in time.

    Examples:
        >>> array = np.arange(3)
        >>> if rank == 0:
        ...     dist.send(array, dst=1)
        ... else:
        ...     sender = dist.recv(array, src=0)
    """
    pg = None
    try:
        if (pg := resolve(group, "send")) is None:
            return
        if timeout is None and group_dst is None and pg.shortcuts.send(tensor, dst, tag):
            return
        tag = check.tag(pg, "send", tag)
        array, peer, lane = outgoing(pg, "send", tensor, dst, group_dst, tag)
        if peer == pg.rank():
            raise ValueError(f"send on rank {pg.global_rank}: a blocking send to oneself would never return; use isend")
        timeout_s = bounded(pg, array, "send", timeout)
        ticket = pg.trail.begin_message("send", array, pg.ranks[peer], tag)
        try:
            lane.send(array, peer, tag, timeout_s)
        except BaseException as error:
            pg.trail.ended(ticket, error)
            raise
        pg.trail.ended(ticket)
    except BaseException as error:
        broken(pg, error)
        raise


def recv(
    tensor: AnyArray,
    src: int | None = None,
    group: GroupLike = None,
    tag: int = 0,
    group_src: int | None = None,
    *,
    timeout: Timeout | None = None,
) -> int:
    """Receive into an array, from any rank if no source is given.

    A shorter message fills the beginning of the array; a longer one is an error that names both sizes.

    Args:
        tensor: The array to fill.
        src: The source, as a global rank; None, if `group_src` is None too, for any rank.
        group: The group; None is the default group.
        tag: The number that the sender passes.
        group_src: The source as a rank in the group, instead of `src`.
        timeout: How long it may take, in seconds or as a `timedelta`; None is the group's time-out.

    Returns:
        The sender's global rank, or -1 on a rank that is not in the group.

    Raises:
        TypeError: `tensor` is not an array.
        ValueError: The array cannot be written to, or both sources are given.
        DistTimeoutError: No message arrived in time.
        UnsupportedOperationError: The backend cannot receive from any source.

    Examples:
        >>> array = np.full(3, rank)
        >>> if rank == 0:
        ...     print("from", dist.recv(array), array)
        ... else:
        ...     dist.send(array, dst=0)
        from 1 [1 1 1]
    """
    pg = None
    try:
        if (pg := resolve(group, "recv")) is None:
            return -1
        if timeout is None and group_src is None and (source := pg.shortcuts.recv(tensor, src, tag)) is not None:
            return source
        tag = check.tag(pg, "recv", tag)
        array, peer, lane = incoming(pg, "recv", tensor, src, group_src, tag)
        timeout_s = bounded(pg, array, "recv", timeout)
        ticket = pg.trail.begin_message("recv", array, None if peer is None else pg.ranks[peer], tag)
        try:
            source = pg.ranks[lane.recv(array, peer, tag, timeout_s)]
            if array is not tensor:
                put_back(COMPLETED, tensor, array)
        except BaseException as error:
            pg.trail.ended(ticket, error)
            raise
        pg.trail.ended(ticket, source=source)
        return source
    except BaseException as error:
        broken(pg, error)
        raise


def isend(
    tensor: AnyArray, dst: int | None = None, group: GroupLike = None, tag: int = 0, group_dst: int | None = None
) -> Work | None:
    """Begin to send an array, and return a work; the array must not be changed until that has ended.

    Args:
        tensor: The array to send.
        dst: The destination, as a global rank.
        group: The group; None is the default group.
        tag: A number; the receiver must pass the same one.
        group_dst: The destination as a rank in the group, instead of `dst`.

    Returns:
        The work, or None on a rank that is not in the group.

    Raises:
        TypeError: `tensor` is not an array.
        ValueError: Not exactly one destination is given, or it is not in the group.

    Examples:
        >>> array = np.full(3, rank)
        >>> sending = dist.isend(np.full(3, rank), dst=1 - rank)
        >>> dist.recv(array, src=1 - rank)
        1
        >>> sending.wait()
        True
    """
    pg = None
    try:
        if (pg := resolve(group, "isend")) is None:
            return None
        if group_dst is None and (sent := pg.shortcuts.isend(tensor, dst, tag, pg, _spelled)) is not None:
            if not isinstance(sent, tuple):
                return sent
            from rankwise.calls.message_work import Ended, Message  # for each work that compiled code does not make

            ticket, rest = sent
            if rest is None:
                return Ended(pg, tensor, f"isend to rank {dst}", ticket)
            lane = pg.lane(tensor, "send")
            return Message(pg, lane, rest, tensor, tensor, f"isend to rank {dst}", ticket, dst)
        tag = check.tag(pg, "isend", tag)
        array, peer, lane = outgoing(pg, "isend", tensor, dst, group_dst, tag)
        ticket = pg.trail.begin_message("isend", array, pg.ranks[peer], tag)
        try:
            work = lane.isend(array, peer, tag)
        except BaseException as error:
            pg.trail.ended(ticket, error)
            raise
        from rankwise.calls.message_work import Message

        what = f"isend to rank {pg.ranks[peer]}"
        return Message(pg, lane, work, tensor, array, what, ticket, pg.ranks[peer])
    except BaseException as error:
        broken(pg, error)
        raise


def irecv(
    tensor: AnyArray, src: int | None = None, group: GroupLike = None, tag: int = 0, group_src: int | None = None
) -> Work | None:
    """Begin to receive into an array, and return a work whose `source_rank()` is the sender's global rank.

    A shorter message fills the beginning of the array, and the work's `nbytes` and `count(dtype)` tell how much has
    come; a longer one is an error that names both sizes.

    Args:
        tensor: The array to fill.
        src: The source, as a global rank; None, if `group_src` is None too, for any rank.
        group: The group; None is the default group.
        tag: The number that the sender passes.
        group_src: The source as a rank in the group, instead of `src`.

    Returns:
        The work, or None on a rank that is not in the group.

    Raises:
        TypeError: `tensor` is not an array.
        ValueError: The array cannot be written to, or both sources are given.
        UnsupportedOperationError: The backend cannot receive from any source.

    Examples:
        >>> array = np.empty(3, int)
        >>> receiving = dist.irecv(array)
        >>> dist.send(np.full(3, rank), dst=1 - rank)
        >>> receiving.wait()
        True
        >>> receiving.source_rank(), array
        (1, array([1, 1, 1]))
    """
    pg = None
    try:
        if (pg := resolve(group, "irecv")) is None:
            return None
        if group_src is None and (come := pg.shortcuts.irecv(tensor, src, tag, pg, _spelled)) is not None:
            if not isinstance(come, tuple):
                return come
            from rankwise.calls.message_work import Ended

            ticket, sender, nbytes = come
            return Ended(pg, tensor, f"irecv from rank {sender}", ticket, sender, nbytes)
        tag = check.tag(pg, "irecv", tag)
        array, peer, lane = incoming(pg, "irecv", tensor, src, group_src, tag)
        source = None if peer is None else pg.ranks[peer]
        ticket = pg.trail.begin_message("irecv", array, source, tag)
        try:
            work = put_back(lane.irecv(array, peer, tag), tensor, array)
        except BaseException as error:
            pg.trail.ended(ticket, error)
            raise
        from rankwise.calls.message_work import FromAnyone, Message

        who, kind = ("anyone", FromAnyone) if source is None else (f"rank {source}", Message)
        return kind(pg, lane, work, tensor, array, f"irecv from {who}", ticket, source)
    except BaseException as error:
        broken(pg, error)
        raise


def _spelled(*of_work: Any) -> Work:
    """Return all that a work of compiled code is."""
    from rankwise.calls.message_work import spelled

    return spelled(*of_work)
