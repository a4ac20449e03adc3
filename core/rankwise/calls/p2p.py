"""Messages between two ranks. Ranks given as `src`, `dst` and `peer` are global."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from rankwise.backends.communicator import Communicator
from rankwise.basics.arguments import require
from rankwise.basics.arrays import AnyArray, Array, device_of
from rankwise.basics.deadline import Timeout
from rankwise.basics.recording import Ticket
from rankwise.basics.work import COMPLETED, Work
from rankwise.calls import check
from rankwise.calls.calling import bounded, broken, put_back
from rankwise.calls.fronts import fronted
from rankwise.groups.process_group import GroupLike, ProcessGroup
from rankwise.groups.ranks import group_rank
from rankwise.groups.world import resolve


@fronted("tensor", "dst", "tag", ends=broken)
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
    pg = ticket = None
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
        lane.send(array, peer, tag, timeout_s)
        pg.trail.ended(ticket)
    except BaseException as error:
        message_failed(pg, ticket, error)
        raise


@fronted("tensor", "src", "tag", ends=broken)
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
    pg = ticket = None
    try:
        if (pg := resolve(group, "recv")) is None:
            return -1
        if timeout is None and group_src is None and (source := pg.shortcuts.recv(tensor, src, tag)) is not None:
            return source
        tag = check.tag(pg, "recv", tag)
        array, peer, lane = incoming(pg, "recv", tensor, src, group_src, tag)
        timeout_s = bounded(pg, array, "recv", timeout)
        ticket = pg.trail.begin_message("recv", array, None if peer is None else pg.ranks[peer], tag)
        source = pg.ranks[lane.recv(array, peer, tag, timeout_s)]
        if array is not tensor:
            put_back(COMPLETED, tensor, array)
        pg.trail.ended(ticket, source=source)
        return source
    except BaseException as error:
        message_failed(pg, ticket, error)
        raise


def _spelled(*of_work: Any) -> Work:
    """Return all that a work of compiled code is."""
    from rankwise.calls.message_work import spelled

    return spelled(*of_work)


def _sent(tensor: AnyArray, dst: int | None, tag: int, pg: ProcessGroup, _: Any, sent: tuple[Any, Any]) -> Work:
    """Make the work of an `isend` that compiled code has carried out, or left a rest of."""
    from rankwise.calls.message_work import Ended, Message  # for each work that compiled code does not make

    ticket, rest = sent
    if rest is None:
        return Ended(pg, tensor, f"isend to rank {dst}", ticket)
    return Message(pg, pg.lane(tensor, "send"), rest, tensor, tensor, f"isend to rank {dst}", ticket, dst)


def _come(tensor: AnyArray, src: int | None, tag: int, pg: ProcessGroup, _: Any, come: tuple[Any, int, int]) -> Work:
    """Make the work of an `irecv` whose message was there already."""
    from rankwise.calls.message_work import Ended

    ticket, sender, nbytes = come
    return Ended(pg, tensor, f"irecv from rank {sender}", ticket, sender, nbytes)


@fronted("tensor", "dst", "tag", ProcessGroup, _spelled, ends=broken, made=_sent)
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
    pg = ticket = None
    try:
        if (pg := resolve(group, "isend")) is None:
            return None
        if group_dst is None and (sent := pg.shortcuts.isend(tensor, dst, tag, pg, _spelled)) is not None:
            return _sent(tensor, dst, tag, pg, _spelled, sent) if isinstance(sent, tuple) else sent
        tag = check.tag(pg, "isend", tag)
        array, peer, lane = outgoing(pg, "isend", tensor, dst, group_dst, tag)
        ticket = pg.trail.begin_message("isend", array, pg.ranks[peer], tag)
        work = lane.isend(array, peer, tag)
        from rankwise.calls.message_work import Message

        what = f"isend to rank {pg.ranks[peer]}"
        return Message(pg, lane, work, tensor, array, what, ticket, pg.ranks[peer])
    except BaseException as error:
        message_failed(pg, ticket, error)
        raise


@fronted("tensor", "src", "tag", ProcessGroup, _spelled, ends=broken, made=_come)
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
    pg = ticket = None
    try:
        if (pg := resolve(group, "irecv")) is None:
            return None
        if group_src is None and (come := pg.shortcuts.irecv(tensor, src, tag, pg, _spelled)) is not None:
            return _come(tensor, src, tag, pg, _spelled, come) if isinstance(come, tuple) else come
        tag = check.tag(pg, "irecv", tag)
        array, peer, lane = incoming(pg, "irecv", tensor, src, group_src, tag)
        source = None if peer is None else pg.ranks[peer]
        ticket = pg.trail.begin_message("irecv", array, source, tag)
        work = put_back(lane.irecv(array, peer, tag), tensor, array)
        from rankwise.calls.message_work import FromAnyone, Message

        who, kind = ("anyone", FromAnyone) if source is None else (f"rank {source}", Message)
        return kind(pg, lane, work, tensor, array, f"irecv from {who}", ticket, source)
    except BaseException as error:
        message_failed(pg, ticket, error)
        raise


def message_failed(pg: ProcessGroup | None, ticket: Ticket, error: BaseException) -> None:
    """End a public call that raises, and note that its message has failed, if that had begun."""
    if pg is not None and ticket is not None:
        pg.trail.ended(ticket, error)
    broken(pg, error)


def outgoing(
    pg: ProcessGroup, op: str, tensor: Any, dst: int | None, group_dst: int | None, tag: int
) -> tuple[Array, int, Communicator]:
    """Return the array of a send, the receiver's rank in the group, and what carries it; refuse what cannot be."""
    peer = group_rank(pg, "dst", dst, group_dst)
    array = check.input_array(pg, op, "tensor", tensor)
    if tag:
        pg.require_feature("tags", device_of(array), op)
    return array, peer, pg.lane(array, "send")


def incoming(
    pg: ProcessGroup, op: str, tensor: Any, src: int | None, group_src: int | None, tag: int
) -> tuple[Array, int | None, Communicator]:
    """Return the array of a receive, the sender's rank in the group, and what carries it; refuse what cannot be."""
    array = check.output_array(pg, op, "tensor", tensor)
    peer = None if src is None and group_src is None else group_rank(pg, "src", src, group_src)
    if peer is None:
        pg.require_feature("any_source", device_of(array), op)
    if tag:
        pg.require_feature("tags", device_of(array), op)
    return array, peer, pg.lane(array, "recv")


# Messages that are begun together


class P2POp:
    """One message of a batch.

    Args:
        op: The function `isend` or `irecv`.
        tensor: The array.
        peer: The other rank, as a global rank; optional for an `irecv`.
        group: The group; None is the default group.
        tag: The tag.
        group_peer: The other rank, as a rank in the group, instead of `peer`.

    Raises:
        ValueError: `op` is neither function, or an `isend` has no peer.

    Examples:
        >>> dist.P2POp(dist.isend, np.zeros(3), peer=1)
        P2POp(isend, peer=1, tag=0)
    """

    def __init__(
        self,
        op: Callable[..., Work | None],
        tensor: AnyArray,
        peer: int | None = None,
        group: GroupLike = None,
        tag: int = 0,
        group_peer: int | None = None,
    ) -> None:
        if op not in (isend, irecv):
            raise ValueError("P2POp: op must be the function isend or irecv of this package")
        if op is isend and peer is None and group_peer is None:
            raise ValueError("P2POp: isend needs peer or group_peer")
        self.op = op
        self.tensor = tensor
        self.peer = peer
        self.group = group
        self.tag = tag
        self.group_peer = group_peer

    def __repr__(self) -> str:
        peer = f"peer={self.peer}" if self.group_peer is None else f"group_peer={self.group_peer}"
        return f"P2POp({self.op.__name__}, {peer}, tag={self.tag})"


def batch_isend_irecv(p2p_op_list: Sequence[P2POp]) -> list[Work]:
    """Begin all messages of a list, whose order does not matter.

    Args:
        p2p_op_list: The messages, all of one group.

    Returns:
        Their works in the list's order; an empty list on a rank that is not in the group.

    Raises:
        ValueError: The list is empty, or its messages belong to different groups.
        TypeError: It holds something that is not a `P2POp`.

    Examples:
        >>> other, array = 1 - rank, np.empty(2, int)
        >>> works = dist.batch_isend_irecv(
        ...     [
        ...         dist.P2POp(dist.irecv, array, other),
        ...         dist.P2POp(dist.isend, np.full(2, rank), other),
        ...     ]
        ... )
        >>> [work.wait() for work in works]
        [True, True]
        >>> array
        array([1, 1])
    """
    pg = None
    try:
        require(p2p_op_list=p2p_op_list)
        messages = list(p2p_op_list)
        if not messages:
            raise ValueError("p2p_op_list is empty")
        if (pg := resolve(messages[0].group, "batch_isend_irecv")) is None:
            return []
        if any(resolve(message.group, "batch_isend_irecv") is not pg for message in messages):
            raise ValueError("batch_isend_irecv: all messages of a batch must belong to one group")
        lanes = [_lane_of(pg, message) for message in messages]  # which checks all arguments before a message leaves
        works: dict[int, Work] = {}
        with lanes[0].batch():
            # Sends first: what has come already is received immediately.
            for place in sorted(range(len(messages)), key=lambda place: messages[place].op is irecv):
                each = messages[place]
                work = each.op(each.tensor, each.peer, each.group, each.tag, each.group_peer)
                if work is not None:  # as it is on members
                    works[place] = work
        return [works[place] for place in range(len(messages))]
    except BaseException as error:
        broken(pg, error)
        raise


def _lane_of(pg: ProcessGroup, message: P2POp) -> Communicator:
    """Return what carries a message, after a look at its arguments."""
    side = outgoing if message.op is isend else incoming
    name = message.op.__name__
    tag = check.tag(pg, name, message.tag)
    return side(pg, name, message.tensor, message.peer, message.group_peer, tag)[2]
