"""`MpiCommunicator`: one group on MPI, put together from its end, its messages and its collectives."""

from __future__ import annotations

from collections.abc import Callable, Collection
from functools import partial
from typing import Any

from mpi4py import MPI

from rankwise.backends import (
    Array,
    Call,
    Caller,
    Communicator,
    Context,
    Deadline,
    ReduceOp,
    Shortcuts,
    Status,
    Trail,
    Work,
)
from rankwise.errors import DistError
from rankwise_mpi.collectives.collectives import Collectives
from rankwise_mpi.collectives.entry_barrier import EntryBarrier
from rankwise_mpi.collectives.issuing import Issuing
from rankwise_mpi.collectives.shortest import shortest_collective
from rankwise_mpi.group.endpoint import Endpoint
from rankwise_mpi.group.pages import Pages
from rankwise_mpi.messages.messages import MpiMessages
from rankwise_mpi.messages.shortest import shorten_recv, shorten_send, shortest_recv, shortest_send
from rankwise_mpi.process.process import Process


class MpiCommunicator(Communicator):
    """One group on MPI.

    Args:
        context: What the core says of the group.
        process: MPI in this process.
        pages: The group's own communicators.
        entry: Where its ranks meet, if they are all on one host.
    """

    compares_calls = False

    def __init__(self, context: Context, process: Process, pages: Pages, entry: EntryBarrier | None) -> None:
        super().__init__(context)
        self._process = process
        #: At an entry barrier nothing moves. Between hosts the same calls of MPI wait and move.
        self.tells_waits = entry is not None
        self._endpoint = Endpoint(context, process, pages, self.fail)
        self._messages = MpiMessages(self._endpoint)
        self._issuing = Issuing(self._endpoint, self._messages, entry)
        self._collectives = Collectives(self._endpoint)
        #: Collectives at their shortest.
        self._short: dict[str, Callable[..., Work]] = {}
        #: What makes the shortcuts of public calls.
        self._shorten: dict[str, Callable[[Caller], Callable[..., Any]]] = {}
        process.enter(self)

    @property
    def mpi(self) -> MPI.Intracomm:
        """The communicator of MPI that collectives run on."""
        return self._endpoint.mpi

    @property
    def entry(self) -> EntryBarrier | None:
        """Where the ranks meet, if they are all on one host."""
        return self._issuing.entry

    def shorten(self) -> None:
        """Put the fast path in the place of the methods, where there is one."""
        endpoint, entry = self._endpoint, self.entry
        if endpoint.on_device:
            return
        send, receive = shortest_send(endpoint, self.send), shortest_recv(endpoint, self._messages, self.recv)
        if entry is not None:
            for name, usual in (("all_reduce", self._usual_all_reduce), ("broadcast", self._usual_broadcast)):
                made = shortest_collective(endpoint, self._issuing, entry, name, usual)
                self._short[name], self._shorten[name] = made
        vars(self).update(send=send, recv=receive)
        self._shorten["send"] = partial(shorten_send, endpoint, send)
        self._shorten["recv"] = partial(shorten_recv, endpoint, receive)

    def shortcuts(self, group: Caller) -> Shortcuts:
        """Return the fast path of plain calls, where there is one."""
        return Shortcuts(**{name: shorten(group) for name, shorten in self._shorten.items()})

    # ------------------------------------------------------------------ the end

    def drain(self, timeout_s: float) -> None:
        """Wait until everything that was issued has ended, receives that no message has met apart."""
        deadline = Deadline(timeout_s)
        super().drain(timeout_s)
        self._endpoint.drain(deadline.remaining())

    def close(self) -> None:
        """Give communicators and the entry barrier back."""
        for name in ("send", "recv"):
            vars(self).pop(name, None)  # it refers to the group, which should go as soon as nobody needs it
        self._short.clear()
        self._shorten.clear()
        self._process.leave(self)
        self._endpoint.close()
        self._issuing.close()

    def abort(self, error: DistError) -> None:
        """End what is pending here, and tell the peers."""
        self._endpoint.abort(error)

    def let_go(self, error: DistError) -> None:
        """End what is pending here, and call MPI no more."""
        if self.failure is None:
            self.failure = error
        self._endpoint.let_go(error)

    # ------------------------------------------------------------------ for those who look

    def note_to(self, trail: Trail) -> None:
        """Have waits and failures noted."""
        super().note_to(trail)
        self._endpoint.on_wait = trail.waited

    # ------------------------------------------------------------------ messages

    def isend(self, array: Array, dst: int, tag: int) -> Work:
        """Begin to send."""
        return self._messages.isend(array, dst, tag)

    def irecv(self, array: Array, src: int | None, tag: int) -> Work:
        """Begin to receive."""
        return self._messages.irecv(array, src, tag)

    def send(self, array: Array, dst: int, tag: int, timeout_s: float) -> None:
        """Send, and wait until the buffer is the caller's again."""
        self._messages.send(array, dst, tag, timeout_s)

    def recv(self, array: Array, src: int | None, tag: int, timeout_s: float) -> int:
        """Receive, and return the sender's group rank."""
        if self._endpoint.receives.ages:
            return super().recv(array, src, tag, timeout_s)  # behind those
        return self._messages.recv(array, src, tag, timeout_s)

    def iprobe(self, src: int | None, tag: int) -> Status | None:
        """Return what the message is that a receive would meet now."""
        return self._messages.iprobe(src, tag)

    # ------------------------------------------------------------------ collectives

    def run(self, call: Call, timeout_s: float, async_op: bool = False) -> Work:
        """Carry out a collective: at its shortest where that is, by MPI where that takes it, else by messages."""
        short = self._short.get(call.op)
        if short is not None and not call.remark:
            return short(call.array, call.reduce_op or call.root, timeout_s, async_op)
        return self._usual(call, timeout_s, async_op)

    def own_collectives(self) -> Collection[str]:
        """Return those that MPI has."""
        return Collectives.PLANS

    def _usual(self, call: Call, timeout_s: float, async_op: bool) -> Work:
        if not self._collectives.takes(call):
            return super().run(call, timeout_s, async_op)
        return self._issuing.several(call.op, self._collectives.plan(call), timeout_s, async_op)

    def _usual_all_reduce(self, array: Array, op: ReduceOp, timeout_s: float, async_op: bool) -> Work:
        return self._usual(Call("all_reduce", array, op), timeout_s, async_op)

    def _usual_broadcast(self, array: Array, root: int, timeout_s: float, async_op: bool) -> Work:
        return self._usual(Call("broadcast", array, root=root), timeout_s, async_op)
