"""`MpiCommunicator`: one group on MPI, put together from its end, its messages and its collectives."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from mpi4py import MPI

from rankwise.backends import Array, Communicator, Context, Deadline, ReduceOp, Work
from rankwise.backends.shortcuts import Caller, Shortcuts
from rankwise.basics.recording import Trail
from rankwise.errors import DistError
from rankwise_mpi.collectives.collectives import Collectives
from rankwise_mpi.collectives.gate import Gate
from rankwise_mpi.collectives.issuing import Issuing
from rankwise_mpi.collectives.shortest import shortest_collective
from rankwise_mpi.group.endpoint import Endpoint
from rankwise_mpi.group.pages import Pages
from rankwise_mpi.messages.messages import Messages
from rankwise_mpi.messages.shortest import shorten_recv, shorten_send, shortest_recv, shortest_send
from rankwise_mpi.process.process import Process

__all__ = ["MpiCommunicator"]

_SHORT = ("send", "recv", "all_reduce", "broadcast")


class MpiCommunicator(Communicator):
    """One group on MPI.

    Args:
        context: What the core says of the group.
        process: MPI in this process.
        pages: The group's own communicators.
        gate: Where its ranks meet, if they are all on one host.
    """

    def __init__(self, context: Context, process: Process, pages: Pages, gate: Gate | None) -> None:
        super().__init__(context)
        self._process = process
        #: At a gate nothing moves. Between hosts the same calls of MPI wait and move.
        self.tells_waits = gate is not None
        self._endpoint = Endpoint(context, process, pages, self.fail)
        self._messages = Messages(self._endpoint)
        self._issuing = Issuing(self._endpoint, self._messages, gate)
        self._collectives = Collectives(self._endpoint, self._issuing)
        #: What makes the shortcuts of public calls.
        self._shorten: dict[str, Callable[[Caller], Callable[..., Any]]] = {}
        process.enter(self)

    @property
    def mpi(self) -> MPI.Intracomm:
        """The communicator of MPI that collectives run on."""
        return self._endpoint.mpi

    @property
    def gate(self) -> Gate | None:
        """Where the ranks meet, if they are all on one host."""
        return self._issuing.gate

    def shorten(self) -> None:
        """Put the shortest ways in the place of the methods, where there are such."""
        endpoint, gate = self._endpoint, self.gate
        if endpoint.on_device:
            return
        ways: dict[str, Callable[..., Any]] = {
            "send": shortest_send(endpoint, self.send),
            "recv": shortest_recv(endpoint, self._messages, self.recv),
        }
        if gate is not None:
            for name in ("all_reduce", "broadcast"):
                ways[name], self._shorten[name] = shortest_collective(
                    endpoint, self._issuing, gate, name, getattr(self, name)
                )
        for name, way in ways.items():
            setattr(self, name, way)
        self._shorten["send"] = partial(shorten_send, endpoint, ways["send"])
        self._shorten["recv"] = partial(shorten_recv, endpoint, ways["recv"])

    def shortcuts(self, group: Caller) -> Shortcuts:
        """Return what does the plainest calls in one go, where there are shortest ways."""
        return Shortcuts(**{name: shorten(group) for name, shorten in self._shorten.items()})

    # ------------------------------------------------------------------ the end

    def drain(self, timeout_s: float) -> None:
        """Wait until everything that was issued has ended, receives that no message has met apart."""
        deadline = Deadline(timeout_s)
        super().drain(timeout_s)
        self._endpoint.drain(deadline.remaining())

    def close(self) -> None:
        """Give communicators and gate back."""
        for name in _SHORT:
            vars(self).pop(name, None)  # it refers to the group, which should go as soon as nobody needs it
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

    # ------------------------------------------------------------------ collectives

    def broadcast(self, array: Array, root: int, timeout_s: float, async_op: bool = False) -> Work:
        """Copy the root's array into everyone's."""
        return self._collectives.broadcast(array, root, timeout_s, async_op)

    def all_reduce(self, array: Array, op: ReduceOp, timeout_s: float, async_op: bool = False) -> Work:
        """Reduce into everyone's array."""
        return self._collectives.all_reduce(array, op, timeout_s, async_op)

    def reduce(self, array: Array, op: ReduceOp, root: int, timeout_s: float, async_op: bool = False) -> Work:
        """Reduce into the root's array."""
        return self._collectives.reduce(array, op, root, timeout_s, async_op)

    def all_gather(self, parts: Sequence[Array], array: Array, timeout_s: float, async_op: bool = False) -> Work:
        """Copy rank i's array into everyone's `parts[i]`."""
        if sum([part.nbytes for part in parts]) > self._endpoint.limit:
            return super().all_gather(parts, array, timeout_s, async_op)
        return self._collectives.all_gather(parts, array, timeout_s, async_op)

    def gather(
        self, parts: Sequence[Array] | None, array: Array, root: int, timeout_s: float, async_op: bool = False
    ) -> Work:
        """Copy rank i's array into `parts[i]` of the root."""
        return self._collectives.gather(parts, array, root, timeout_s, async_op)

    def scatter(
        self, array: Array, parts: Sequence[Array] | None, root: int, timeout_s: float, async_op: bool = False
    ) -> Work:
        """Copy `parts[i]` of the root into rank i's array."""
        return self._collectives.scatter(array, parts, root, timeout_s, async_op)

    def reduce_scatter(
        self, array: Array, parts: Sequence[Array], op: ReduceOp, timeout_s: float, async_op: bool = False
    ) -> Work:
        """Reduce everyone's `parts[i]` into rank i's array."""
        if sum([part.size for part in parts]) > self._endpoint.limit:
            return super().reduce_scatter(array, parts, op, timeout_s, async_op)
        return self._collectives.reduce_scatter(array, parts, op, timeout_s, async_op)

    def all_to_all(self, outs: Sequence[Array], ins: Sequence[Array], timeout_s: float, async_op: bool = False) -> Work:
        """Copy rank i's `ins[j]` into rank j's `outs[i]`."""
        return self._collectives.all_to_all(outs, ins, timeout_s, async_op)

    def barrier(self, timeout_s: float, async_op: bool = False) -> Work:
        """Return once every rank has called."""
        return self._collectives.barrier(timeout_s, async_op)
