"""`MpiMeeting`: how the ranks of a group wait for each other before a blocking call of MPI, which has no deadline."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from mpi4py import MPI

from rankwise.backends import Context
from rankwise.errors import DistError, GroupAbortedError
from rankwise_mpi.gate import Gate
from rankwise_mpi.messages import MpiMessages
from rankwise_mpi.pages import Pages

if TYPE_CHECKING:
    from rankwise_mpi.process import Process

__all__ = ["Met", "MpiMeeting"]

#: For how long a rank that finds another gone waits to hear why.
_NOTICE_S = 1.0


class Met(NamedTuple):
    """What has come of a meeting.

    Attributes:
        alike: All ranks make the call synchronously; if not, it must be MPI's nonblocking one.
        stopped: What has interrupted this rank when the others were going on already, to be raised after the call.
    """

    alike: bool
    stopped: BaseException | None = None


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
        self._answer: Any = None

    def close(self) -> None:
        """Give communicators and gate back."""
        super().close()
        if self._gate is not None:
            self._gate.close()
            self._gate = None

    def _pass_by(self, first: int, last: int) -> tuple[list[MPI.Request], Any]:
        """Let the others know that some calls of this rank are asynchronous, where they meet for such calls.

        Returns:
            What must have ended before these calls are over, and what it writes to.
        """
        if self._gate is not None:
            self._gate.pass_by(first, last)
            return [], None
        answers = np.ones((last - first + 1, 1), np.uint8)
        return [self._ask(answer) for answer in answers], answers

    def _meet_all(self, what: str, timeout_s: float, number: int) -> Met:
        """Return once all ranks have come to a call, which this rank must then make too."""
        self._meeting = True
        try:
            if self._gate is None:
                return self._meet_between_hosts(what, timeout_s, number)
            return self._meet_at(self._gate, what, timeout_s, number)
        finally:
            self._meeting = False

    def _meet_at(self, gate: Gate, what: str, timeout_s: float, number: int) -> Met:
        try:
            if not self.wait_seen(gate.test, timeout_s, what, number):
                stopped: BaseException = self.late(what, timeout_s, number)
            elif gate.gone:
                stopped = self._left_by(self.context.global_ranks[gate.gone[0]])
            else:
                return Met(gate.alike)
        except BaseException as error:
            stopped = error
        if not gate.leave():
            return Met(gate.alike, None if isinstance(stopped, DistError) else stopped)
        raise self.fail(stopped) if isinstance(stopped, DistError) else stopped

    def _meet_between_hosts(self, what: str, timeout_s: float, number: int) -> Met:
        passing = self._answer = np.zeros(1, np.uint8)  # kept, should this rank be interrupted
        request = self._ask(passing)
        if not request.Test():
            self.look_on(what, request, passing, timeout_s, number)
        # Who has given up meanwhile came to the meeting too, and would not come to the call.
        if self._notices.has_come():
            self._attend_for_good()
        return Met(alike=not passing[0])

    def _ask(self, passing: np.ndarray[Any, Any]) -> MPI.Request:
        """Tell whether this rank passes by, and begin to learn whether any does."""
        request: MPI.Request = self._comm.Iallreduce(MPI.IN_PLACE, (passing, 1, MPI.UINT8_T), MPI.MAX)
        return request

    def _left_by(self, rank: int) -> DistError:
        """Return why a rank has given the group up, from its notice, which is under way."""
        said = self._notices.await_one(_NOTICE_S)
        return GroupAbortedError(
            f"group {self.context.name!r} was given up by another rank: {said or f'rank {rank} has left it'}"
        )
