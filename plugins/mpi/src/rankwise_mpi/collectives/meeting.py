"""How the ranks of a group wait for each other before a call of MPI: at a gate on one host, or in a reduction."""

from __future__ import annotations

from typing import Any, NamedTuple, Protocol

import numpy as np
from mpi4py import MPI

from rankwise.backends import ReduceOp
from rankwise.errors import DistError
from rankwise_mpi.collectives.gate import Gate
from rankwise_mpi.collectives.marks import WORD_MASK, CallMark
from rankwise_mpi.group.endpoint import Endpoint
from rankwise_mpi.library.reductions import KERNELS

__all__ = ["AtGate", "BetweenHosts", "Meeting", "Met"]


class Met(NamedTuple):
    """What has come of a meeting.

    Attributes:
        alike: All ranks make the call synchronously; if not, it must be MPI's nonblocking one.
        agreed: All ranks make the same call, as far as was compared: only where they are alike.
        stopped: What has interrupted this rank when the others were going on already, to be raised after the call.
    """

    alike: bool
    agreed: bool
    stopped: BaseException | None = None


class Meeting(Protocol):
    """How the ranks of one group meet."""

    def meet(self, what: str, mark: CallMark, timeout_s: float, number: int) -> Met:
        """Return once all ranks have come to a call, which this rank must then make too."""

    def pass_by(self, first: int, last: int) -> tuple[list[MPI.Request], Any]:
        """Let the others know that some calls of this rank are asynchronous.

        Returns:
            What must have ended before these calls are over, and what it writes to.
        """

    def close(self) -> None:
        """Give back what it holds."""


class AtGate:
    """Ranks of one host meet in memory that they share.

    Args:
        endpoint: This rank's end of the group.
        gate: The gate.
    """

    def __init__(self, endpoint: Endpoint, gate: Gate) -> None:
        self._endpoint, self._gate = endpoint, gate

    def meet(self, what: str, mark: CallMark, timeout_s: float, number: int) -> Met:
        """Return once all ranks have come to the call that this rank has come to."""
        endpoint, gate = self._endpoint, self._gate
        try:
            if not endpoint.wait_seen(gate.test, timeout_s, what, number):
                stopped: BaseException = endpoint.late(what, timeout_s, number)
            elif gate.gone:
                stopped = endpoint.left_by(endpoint.context.global_ranks[gate.gone[0]])
            else:
                return self._met(mark)
        except BaseException as error:
            stopped = error
        if not gate.leave():
            return self._met(mark, None if isinstance(stopped, DistError) else stopped)
        raise endpoint.fail(stopped) if isinstance(stopped, DistError) else stopped

    def pass_by(self, first: int, last: int) -> tuple[list[MPI.Request], Any]:
        """Note it at the gate."""
        self._gate.pass_by(first, last)
        return [], None

    def close(self) -> None:
        """Give the memory back."""
        self._gate.close()

    def _met(self, mark: CallMark, stopped: BaseException | None = None) -> Met:
        alike = self._gate.alike
        return Met(alike, not alike or self._gate.agreed(mark), stopped)


class BetweenHosts:
    """Ranks that share no memory meet in a nonblocking reduction, which tells the largest of three words.

    They are: whether any rank passes by, the word of the call, and its complement, whose largest tells the least.

    Args:
        endpoint: This rank's end of the group.
    """

    def __init__(self, endpoint: Endpoint) -> None:
        self._endpoint = endpoint
        self._kernel = KERNELS[ReduceOp.MAX.name, np.dtype(np.uint64)]
        self._asked: Any = None

    def meet(self, what: str, mark: CallMark, timeout_s: float, number: int) -> Met:
        """Return once all ranks have come, synchronously or not."""
        words = self._asked = np.array([0, mark.word, mark.word ^ WORD_MASK], np.uint64)  # kept, if interrupted here
        request = self._ask(words)
        if not request.Test():
            self._endpoint.look_on(what, request, words, timeout_s, number)
        # Who has given up meanwhile came to the meeting too, and would not come to the call.
        self._endpoint.heed_notices()
        passes, most, least = words.tolist()
        return Met(not passes, bool(passes) or most == least ^ WORD_MASK)

    def pass_by(self, first: int, last: int) -> tuple[list[MPI.Request], Any]:
        """Come to the meetings of these calls without waiting."""
        answers = np.tile(np.array([1, 0, 0], np.uint64), (last - first + 1, 1))
        return [self._ask(answer) for answer in answers], answers

    def close(self) -> None:
        """Have nothing to give back."""

    def _ask(self, words: Any) -> MPI.Request:
        buffer = words, words.size, self._kernel.datatype
        request: MPI.Request = self._endpoint.mpi.Iallreduce(MPI.IN_PLACE, buffer, self._kernel.op)
        return request
