"""`WireCommunicator`: one live group."""

from __future__ import annotations

from collections.abc import Iterable
from time import monotonic_ns
from typing import Any

from rankwise.backends import (
    COMPLETED,
    Array,
    Call,
    Communicator,
    Context,
    Deadline,
    Gauges,
    Mailbox,
    Work,
    as_bytes,
)
from rankwise.errors import DistError, DistTimeoutError, PeerDiedError
from rankwise_wire import OWN
from rankwise_wire.collectives import all_reduce, broadcast
from rankwise_wire.link import Dtype, Kind, Link, Payload
from rankwise_wire.meeting import connect_all
from rankwise_wire.options import Options

_ALGORITHMS = {"broadcast": broadcast, "all_reduce": all_reduce}


class WireCommunicator(Communicator):
    """A link to each other rank, and a mailbox for each kind of message."""

    def __init__(self, context: Context) -> None:
        super().__init__(context)
        self.options = context.options_as(Options)
        self.boxes = {kind: Mailbox(context.global_ranks) for kind in (Kind.MESSAGE, Kind.OWN)}
        self.dead: dict[int, DistError] = {}
        connections = connect_all(context, self.options)
        self.links = {p: Link(self, p, connection, self.options.short_nbytes) for p, connection in connections.items()}
        for link in self.links.values():
            link.start()

    # ------------------------------------------------------------------ messages

    def isend(self, array: Array, dst: int, tag: int) -> Work:
        return self._send(Kind.MESSAGE, array, dst, tag)

    def irecv(self, array: Array, src: int | None, tag: int) -> Work:
        return self.boxes[Kind.MESSAGE].receive(array, src, tag)

    def send_own(self, array: Array, dst: int, tag: int) -> Work:
        """Begin to send a message of a collective."""
        return self._send(Kind.OWN, array, dst, tag)

    def receive_own(self, array: Array, src: int, tag: int) -> Work:
        """Begin to receive a message of a collective."""
        return self.boxes[Kind.OWN].receive(array, src, tag)

    def _send(self, kind: Kind, array: Array, dst: int, tag: int) -> Work:
        payload = as_bytes(array)
        if dst == self.rank:
            self.deliver(kind, dst, tag, bytes(payload), array.dtype)
            return COMPLETED
        return self.links[dst].send(kind, tag, payload, array.dtype)

    # ------------------------------------------------------------------ collectives

    def own_collectives(self) -> tuple[str, ...]:
        return OWN

    def algorithm(self, call: Call) -> Any:
        own = _ALGORITHMS.get(call.op)
        return super().algorithm(call) if own is None else lambda deadline, counts: own(self, call, deadline)

    def end(self, works: Iterable[tuple[int, Work]], deadline: Deadline) -> None:
        """Wait for the works of a collective, each with the rank that it is about."""
        began = monotonic_ns()
        for peer, work in works:
            try:
                work.wait(deadline.remaining())
            except DistTimeoutError as error:
                error.waited_for = (self.context.global_ranks[peer],)
                raise
        self.on_wait(monotonic_ns() - began)

    # ------------------------------------------------------------------ what links tell and ask

    def deliver(self, kind: Kind, src: int, tag: int, payload: Payload, dtype: Dtype) -> None:
        """Take a message that has come."""
        self.boxes[kind].deliver(src, tag, payload, dtype=dtype)

    def ended(self, peer: int) -> None:
        """Fail what waits for a rank from which nothing more will come."""
        error = self.error_of(peer)
        for box in self.boxes.values():
            box.fail(error, src=peer)

    def error_of(self, peer: int) -> DistError:
        """Return why nothing goes to a rank, or comes from it, any more."""
        found = self.failure or self.dead.get(peer)
        return found or PeerDiedError(self.context.global_ranks[peer], "this job", "its connection was closed")

    # ------------------------------------------------------------------ ends

    def peer_died(self, rank: int, error: DistError) -> bool:
        """End what needs the dead rank, when all that it has sent has been read; the others go on."""
        self.dead.setdefault(rank, error)
        self.links[rank].cut()  # a child of the dead process may hold the other end open
        return True

    def abort(self, error: DistError) -> None:
        for box in self.boxes.values():
            box.fail(error)
        for link in self.links.values():
            link.cut()

    def close(self) -> None:
        deadline = Deadline(self.context.timeout_s)
        for link in self.links.values():
            link.say_goodbye()
        for link in self.links.values():
            link.written_by(deadline.remaining())
        for link in self.links.values():
            link.close()
        for box in self.boxes.values():
            box.fail(self.error_of(self.rank))

    def gauges(self) -> Gauges:
        """Tell `rankwise top` what has moved and what waits."""
        moved: dict[str, int] = {self.options.family: sum(link.moved_nbytes for link in self.links.values())}
        waiting = sum(link.waiting() for link in self.links.values())
        return super().gauges()._replace(moved_nbytes=moved, queued={"messages": waiting}, way=self.options.family)
