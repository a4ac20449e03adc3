"""What `isend` and `irecv` return: works of messages that have ended already, or are under way."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

from rankwise.backends.communicator import Communicator
from rankwise.basics import unasked
from rankwise.basics.arrays import Array
from rankwise.basics.deadline import Timeout, seconds
from rankwise.basics.recording import Ticket, title
from rankwise.basics.work import BoundWork, CompletedWork, Work, future_of, state
from rankwise.calls.calling import broken
from rankwise.errors import DistError, DistTimeoutError
from rankwise.groups.process_group import ProcessGroup

if TYPE_CHECKING:
    from concurrent.futures import Future


def spelled(
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

    `inner` is the backend's work, None for a message that had ended before its call returned; `ticket` stands for the
    message in the recorder; and `nbytes` of it were there already.
    """
    what = f"isend to rank {peer}" if op == "isend" else f"irecv from rank {peer}"
    if inner is None:
        return Ended(pg, tensor, what, ticket, None if op == "isend" else peer, nbytes)
    return Message(pg, lane, inner, tensor, tensor, what, ticket, peer)


class Ended(CompletedWork):
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


class Message(BoundWork):
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


class FromAnyone(Message):
    """A receive of which only the end tells who has sent."""

    def _note(self, error: BaseException | None) -> None:
        if self._noted is not None and error is None:
            self._pg.trail.ended(self._ticket, None, self._global_ranks[self._inner.source_rank()])
        super()._note(error)
