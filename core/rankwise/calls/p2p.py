"""Messages between two ranks. Ranks given as `src`, `dst` and `peer` are global."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

from rankwise.backends.communicator import Communicator
from rankwise.basics import unasked
from rankwise.basics.arrays import AnyArray, Array
from rankwise.basics.deadline import Timeout, seconds
from rankwise.basics.recording import Ticket, title
from rankwise.basics.work import COMPLETED, BoundWork, CompletedWork, Work, future_of, state
from rankwise.calls import check
from rankwise.calls.calling import bounded, broken, put_back
from rankwise.calls.sides import incoming, outgoing
from rankwise.errors import DistError, DistTimeoutError
from rankwise.groups.process_group import GroupLike, ProcessGroup
from rankwise.groups.world import resolve

if TYPE_CHECKING:
    from concurrent.futures import Future

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
            ticket, rest = sent
            if rest is None:
                return _Ended(pg, tensor, f"isend to rank {dst}", ticket)
            lane = pg.lane(tensor, "send")
            return _Message(pg, lane, rest, tensor, tensor, f"isend to rank {dst}", ticket, dst)
        tag = check.tag(pg, "isend", tag)
        array, peer, lane = outgoing(pg, "isend", tensor, dst, group_dst, tag)
        ticket = pg.trail.begin_message("isend", array, pg.ranks[peer], tag)
        try:
            work = lane.isend(array, peer, tag)
        except BaseException as error:
            pg.trail.ended(ticket, error)
            raise
        return _Message(pg, lane, work, tensor, array, f"isend to rank {pg.ranks[peer]}", ticket, pg.ranks[peer])
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
            ticket, sender, nbytes = come
            return _Ended(pg, tensor, f"irecv from rank {sender}", ticket, sender, nbytes)
        tag = check.tag(pg, "irecv", tag)
        array, peer, lane = incoming(pg, "irecv", tensor, src, group_src, tag)
        source = None if peer is None else pg.ranks[peer]
        ticket = pg.trail.begin_message("irecv", array, source, tag)
        try:
            work = put_back(lane.irecv(array, peer, tag), tensor, array)
        except BaseException as error:
            pg.trail.ended(ticket, error)
            raise
        who, kind = ("anyone", _FromAnyone) if source is None else (f"rank {source}", _Message)
        return kind(pg, lane, work, tensor, array, f"irecv from {who}", ticket, source)
    except BaseException as error:
        broken(pg, error)
        raise


def _spelled(
    pg: ProcessGroup,
    lane: Communicator,
    inner: Work | None,
    tensor: Any,
    op: str,
    peer: int,
    ticket: Ticket,
    nbytes: int,
) -> Work:
    """Return all that a work of compiled code is, which does by itself only what programs do with most works.

    Args:
        pg: The group.
        lane: The communicator that carries the message.
        inner: The backend's work; None for a message that had ended before its call returned.
        tensor: The caller's array.
        op: `isend` or `irecv`.
        peer: The other, as a global rank.
        ticket: What stands for the message in the recorder.
        nbytes: How many bytes of a message were there already.
    """
    what = f"isend to rank {peer}" if op == "isend" else f"irecv from rank {peer}"
    if inner is None:
        return _Ended(pg, tensor, what, ticket, None if op == "isend" else peer, nbytes)
    return _Message(pg, lane, inner, tensor, tensor, what, ticket, peer)


class _Ended(CompletedWork):
    """A message that has ended before its call returned."""

    def __init__(
        self, pg: ProcessGroup, result: Any, what: str, ticket: Ticket, source: int | None = None, nbytes: int = 0
    ) -> None:
        self._source, self._result, self._told = source, result, (pg.group_desc, what, ticket)
        self.nbytes = nbytes

    def result(self) -> Any:
        """Return the caller's own array."""
        return self._result

    def get_future(self) -> Future[Any]:
        """Return a future that is done."""
        future = future_of(self, self.result)
        future.end()
        return future

    def _named(self) -> str:
        group, what, ticket = self._told
        return _name_of(ticket, what, repr(group))

    def __repr__(self) -> str:
        return f"<Work: {self._named()}: {state(self)}>"

    def _repr_html_(self) -> str:
        from rankwise.basics.rich_display import facts

        return facts("work", (("operation", self._named()), ("state", state(self))))


def _name_of(ticket: Ticket, what: str, group: str) -> str:
    return f"{title(ticket)}, {what.partition(' ')[2]}, on group {group}"


class _Message(BoundWork):
    """A message under way, which the group's time-out bounds where a wait gives none.

    It is made for each message that does not end immediately: what only errors and prints say is put together there.
    """

    #: What a compiled wait has come to before it leaves the rest to this: an error, or that it has noted its beginning.
    _come_to: BaseException | bool = False

    def __init__(
        self,
        pg: ProcessGroup,
        lane: Communicator,
        inner: Work,
        result: Any,
        array: Array,
        what: str,
        ticket: Ticket,
        peer: int | None,
    ) -> None:
        pg.trail.released(ticket)
        self._inner, self._result, self._global_ranks = inner, result, pg.ranks
        self._array = array  # what the backend uses, which may be a copy; kept alive with the work
        self._pg, self._lane, self._timeout_s, self._peer = pg, lane, pg.timeout_s, peer
        self._told, self._ticket = what, ticket
        self._noted = partial(pg.trail.ended, ticket)
        if hasattr(inner, "ended"):
            unasked.watch(inner, self._noted)

    def _what_it_is(self) -> str:
        return _name_of(self._ticket, self._told, repr(self._pg.group_desc))

    def _broken(self, error: BaseException) -> None:
        broken(self._pg, error)

    def synchronize(self) -> None:
        """Block the host until the message has been sent or received."""
        if self._noted is not None:
            self._pg.trail.asked(self._ticket)
        super().synchronize()

    def wait(self, timeout: Timeout | None = None) -> bool:
        """Wait until the message has been sent or received.

        Without a time-out the group's applies, and at its end the message is withdrawn, or the group given up.
        """
        try:
            if self._come_to:
                come_to, self._come_to = self._come_to, False
                if isinstance(come_to, BaseException):
                    raise come_to
            elif self._noted is not None:
                self._pg.trail.asked(self._ticket)
            timeout_s = self._timeout_s if timeout is None else seconds(timeout)
            try:
                self._inner.wait(timeout_s)
            except DistTimeoutError:
                if not self._inner.is_completed():
                    raise self._late(timeout_s, timeout is None) from None
                self._inner.wait()
            self._note(None)
            return True
        except BaseException as error:
            self._broken(error)
            self.is_completed()
            raise

    def _late(self, timeout_s: float, was_last: bool) -> DistError:
        """Return the error of a wait whose time is up; the last wait withdraws the message, or gives the group up."""
        peers = () if self._peer is None else (self._peer,)
        where = f"{self._told} on group {self._pg.group_desc!r}, rank {self._pg.global_rank}"
        who = f", waiting for rank {self._peer}" if peers else ""
        text = f"{where}: timed out: not done within {timeout_s:g} s{who}"
        late: DistError = self._lane.timed_out(text, peers)
        if was_last:
            if not self._inner.cancel():
                late = self._lane.fail(late)
            self._note(late)
        return late


class _FromAnyone(_Message):
    """A receive of which only the end tells who has sent."""

    def _note(self, error: BaseException | None) -> None:
        if self._noted is not None and error is None:
            self._pg.trail.ended(self._ticket, None, self._global_ranks[self._inner.source_rank()])
        super()._note(error)
