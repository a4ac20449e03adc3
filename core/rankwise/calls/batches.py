"""Messages that are begun together."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from rankwise.backends.communicator import Communicator
from rankwise.basics.arguments import require
from rankwise.basics.arrays import AnyArray
from rankwise.basics.work import Work
from rankwise.calls import check
from rankwise.calls.calling import broken
from rankwise.calls.p2p import irecv, isend
from rankwise.calls.sides import incoming, outgoing
from rankwise.groups.process_group import GroupLike, ProcessGroup
from rankwise.groups.world import resolve

__all__ = ["P2POp", "batch_isend_irecv"]


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
