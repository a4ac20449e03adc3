"""`MpiMeeting`: how the ranks of a group wait for each other before a blocking call of MPI, which has no deadline."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mpi4py import MPI

from rankwise.contract import Context
from rankwise.errors import DistError, GroupAbortedError
from rankwise_mpi.gate import Gate
from rankwise_mpi.messages import MpiMessages
from rankwise_mpi.pages import Pages

if TYPE_CHECKING:
    from rankwise_mpi.process import Process

__all__ = ["MpiMeeting"]

#: For how long a rank that finds another gone waits to hear why.
_NOTICE_S = 1.0


class MpiMeeting(MpiMessages):
    """One group on MPI, with its messages and its gate.

    Args:
        context: What the core says of the group.
        process: MPI in this process.
        pages: The group's own communicators.
        gate: Where its ranks meet, if they are all on one host.
    """

    def __init__(self, context: Context, process: Process, pages: Pages, gate: Gate | None) -> None:
        super().__init__(context, process, pages)
        self._gate = gate
        #: How many collectives this rank has issued.
        self._issued = 0

    def close(self) -> None:
        """Give communicators and gate back."""
        super().close()
        if self._gate is not None:
            self._gate.close()
            self._gate = None

    def _assemble(self, what: str, timeout_s: float) -> BaseException | None:
        """Return once all ranks have come to a blocking call, which this rank must then make too.

        Returns:
            What has interrupted this rank when the others were going on already, to be raised after the call.
        """
        gate = self._gate
        if gate is None:
            self._assemble_in_barrier(what, timeout_s)
            return None
        try:
            if not self.wait_seen(gate.test, timeout_s, what, self._issued):
                stopped: BaseException = self.late(what, timeout_s, self._issued)
            elif gate.gone:
                stopped = self._left_by(self.context.global_ranks[gate.gone[0]])
            else:
                return None
        except BaseException as error:
            stopped = error
        if not gate.leave():
            return None if isinstance(stopped, DistError) else stopped
        if isinstance(stopped, DistError):
            raise self.fail(stopped)
        self.fail(GroupAbortedError(f"{self.where(what)} was broken off by {type(stopped).__name__} on this rank"))
        raise stopped

    def _assemble_in_barrier(self, what: str, timeout_s: float) -> None:
        request: MPI.Request = self._comm.Ibarrier()
        if not request.Test():
            self._wait(what, request, (), timeout_s, self._issued)
        # Who has given up meanwhile came to the barrier too, and would not come to the call.
        if self._notices.has_come():
            self._attend_for_good()

    def _left_by(self, rank: int) -> DistError:
        """Return why a rank has given the group up, from its notice, which is under way."""
        said = self._notices.await_one(_NOTICE_S)
        return GroupAbortedError(
            f"group {self.context.name!r} was given up by another rank: {said or f'rank {rank} has left it'}"
        )
