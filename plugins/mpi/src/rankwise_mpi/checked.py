"""The communicator of `RANKWISE_DEBUG=detail`: ranks compare all calls before these reach MPI, and all messages.

The comparison of calls is the core's, over the side communicator of the core's tags; it takes asynchronous calls too,
and hosts that share no memory. Messages tell their dtype. Without detail the plain communicator is made, which has no
trace of this.
"""

from __future__ import annotations

from rankwise.backends import Array, Call, Communicator, Context, Prepared, Status, Work
from rankwise_mpi.collectives.entry_barrier import EntryBarrier
from rankwise_mpi.communicator import MpiCommunicator
from rankwise_mpi.group.pages import Pages
from rankwise_mpi.messages.marked import MarkedMessages
from rankwise_mpi.process.process import Process


class CheckedCommunicator(MpiCommunicator):
    """A group whose ranks all raise `CollectiveMismatchError` if any calls differ, and compare dtypes of messages."""

    compares_calls = True

    def __init__(self, context: Context, process: Process, pages: Pages, entry: EntryBarrier | None) -> None:
        super().__init__(context, process, pages, entry)
        self._marked = MarkedMessages(self._messages)

    def isend(self, array: Array, dst: int, tag: int) -> Work:
        """Begin to send."""
        return self._marked.isend(array, dst, tag)

    def irecv(self, array: Array, src: int | None, tag: int) -> Work:
        """Begin to receive."""
        return self._marked.irecv(array, src, tag)

    def send(self, array: Array, dst: int, tag: int, timeout_s: float) -> None:
        """Send, and wait until the buffer is the caller's again."""
        Communicator.send(self, array, dst, tag, timeout_s)

    def recv(self, array: Array, src: int | None, tag: int, timeout_s: float) -> int:
        """Receive, and return the sender's group rank."""
        return Communicator.recv(self, array, src, tag, timeout_s)

    def iprobe(self, src: int | None, tag: int) -> Status | None:
        """Return what the message is that a receive would meet now."""
        return self._marked.iprobe(src, tag)

    def run(self, call: Call, timeout_s: float, async_op: bool = False) -> Work:
        """Compare the calls of all ranks, and carry out the collective."""
        if not self._collectives.takes(call):
            return super().run(call, timeout_s, async_op)  # derived, and so compared already
        # Asynchronous calls compare on a thread of their own, for which MPI must allow several.
        later = async_op and self._endpoint.progresses
        return self.issue(call, self.prepare(call), timeout_s, later)

    def prepare(self, call: Call) -> Prepared:
        """Return what carries one call out by MPI, if that takes it, once the calls have been compared."""
        if not self._collectives.takes(call):
            return super().prepare(call)
        run = super().run
        return self.once(call, lambda deadline, counts: run(call, deadline.remaining()).wait())
