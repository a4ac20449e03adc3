"""How ranks wait for each other before a call of MPI: at an entry barrier on one host, or in a reduction."""

from __future__ import annotations

from typing import Any, NamedTuple, Protocol

import numpy as np
from mpi4py import MPI

from rankwise.backends import ReduceOp, blake2b
from rankwise.errors import DistBackendError, DistError
from rankwise_mpi.collectives.entry_barrier import EntryBarrier
from rankwise_mpi.collectives.marks import WORD_MASK, CallMark
from rankwise_mpi.group.endpoint import Endpoint, nobody
from rankwise_mpi.library.reductions import KERNELS

#: Odd, so that no two meetings of a group have the same word.
_STEP = 0x9E3779B97F4A7C15


class Outcome(NamedTuple):
    """What has come of a meeting.

    Attributes:
        alike: All ranks make the call synchronously; if not, it must be MPI's nonblocking one.
        agreed: All ranks make the same call, as far as was compared: only where they are alike.
    """

    alike: bool
    agreed: bool


class EntryProtocol(Protocol):
    """How the ranks of one group meet.

    Who has come to a call is counted on by the others, so that whatever stops it then, a deadline or an interrupt, it
    must `leave`, or make the call with them.
    """

    def meet(self, what: str, mark: CallMark, timeout_s: float, number: int) -> None:
        """Return once all ranks have come to a call, which this rank must then make too."""

    def outcome(self, what: str, mark: CallMark) -> Outcome:
        """Return what has come of the meeting that is over."""

    def decide(self, number: int) -> None:
        """Note that it is settled what becomes of a call on this rank: it makes it with all others, or nobody does."""

    def undecided(self, number: int) -> bool:
        """Tell whether this rank has come to a call, and nothing is settled."""

    def leave(self, patience_s: float) -> bool:
        """Give up the call that this rank has come to; false if all have come, so that it must go on.

        Args:
            patience_s: How long the others may be waited for where leaving cannot be told them in time.
        """

    def bypass(self, first: int, last: int) -> tuple[list[MPI.Request], Any]:
        """Let the others know that some calls of this rank are asynchronous.

        Returns:
            What must have ended before these calls are over, and what it writes to.
        """

    def close(self, made: int) -> None:
        """Give back what it holds, when this rank has made so many calls."""


class AtEntryBarrier:
    """Ranks of one host meet in memory that they share.

    Args:
        endpoint: This rank's end of the group.
        entry: The entry barrier.
    """

    def __init__(self, endpoint: Endpoint, entry: EntryBarrier) -> None:
        self._endpoint, self._entry = endpoint, entry
        endpoint.destroyed_by = entry.destroyed_by

    def meet(self, what: str, mark: CallMark, timeout_s: float, number: int) -> None:
        """Return once all ranks have come to the call that this rank has come to."""
        endpoint, entry = self._endpoint, self._entry
        if not endpoint.wait_seen(entry.test, timeout_s, what, number):
            raise endpoint.late(what, timeout_s, number)
        endpoint.check_destroyed(number)
        if entry.gone:
            raise endpoint.left_by(endpoint.context.global_ranks[entry.gone[0]])

    def outcome(self, what: str, mark: CallMark) -> Outcome:
        """Return what the entry barrier shows."""
        alike = self._entry.alike
        return Outcome(alike, not alike or self._entry.agreed(mark))

    def decide(self, number: int) -> None:
        """Note that it is settled what becomes of a call on this rank."""
        self._entry.decided = number

    def undecided(self, number: int) -> bool:
        """Tell whether this rank has come to a call, and nothing is settled."""
        return self._entry.undecided(number)

    def leave(self, patience_s: float) -> bool:
        """Leave the entry barrier, unless all have come."""
        while True:
            try:
                return self._entry.leave()
            except BaseException:
                continue  # interrupted once more, which is not raised beside what this rank leaves for

    def bypass(self, first: int, last: int) -> tuple[list[MPI.Request], Any]:
        """Note it at the entry barrier."""
        self._entry.bypass(first, last)
        return [], None

    def close(self, made: int) -> None:
        """Give the memory back, in which the others read that this rank comes no more."""
        if self._endpoint.failure is None:
            self._entry.destroy(made)
        self._endpoint.destroyed_by = nobody
        self._entry.close()


class BetweenHosts:
    """Ranks that share no memory meet in a nonblocking reduction of three words.

    They are summed: a word of this rank and this meeting alone, one for each rank that passes by, and the words of the
    calls, which are hashes. If the first sum is not that of all such words, somebody has made another call of MPI,
    which MPI has taken for this one; what is added up then is whatever lay in the library's memory, such as an own
    word twice.

    Args:
        endpoint: This rank's end of the group.
    """

    def __init__(self, endpoint: Endpoint) -> None:
        self._endpoint = endpoint
        self._kernel = KERNELS[ReduceOp.SUM.name, np.dtype(np.uint64)]
        words = [_hash(f"{endpoint.context.name} {rank}") for rank in range(endpoint.size)]
        self._own, self._all = words[endpoint.rank], sum(words)
        #: The last meeting: its number, its words, and MPI's request.
        self._number, self._asked = 0, np.zeros(3, np.uint64)
        self._request: MPI.Request | None = None
        self._decided = 0
        endpoint.destroyed_by = endpoint.whereabouts.gone_before

    def meet(self, what: str, mark: CallMark, timeout_s: float, number: int) -> None:
        """Return once all ranks have come, synchronously or not."""
        endpoint = self._endpoint
        self._request, self._number = None, number
        self._asked = self._words(number, 0, mark.word)
        self._request = request = self._ask(self._asked)
        if not request.Test() and not endpoint.wait_seen(request.Test, timeout_s, what, number):
            raise endpoint.late(what, timeout_s, number)
        # Who has given up meanwhile came to the meeting too, and would not come to the call.
        endpoint.check_notices()

    def outcome(self, what: str, mark: CallMark) -> Outcome:
        """Return what the sums tell."""
        size = self._endpoint.size
        met, passing, total = self._asked.tolist()
        if met != (self._all + size * self._number * _STEP) & WORD_MASK:
            self._decided = self._number
            raise self._endpoint.fail(self._unlike(what))
        return Outcome(not passing, bool(passing) or total == (mark.word * size) & WORD_MASK)

    def decide(self, number: int) -> None:
        """Note that it is settled what becomes of a call on this rank."""
        self._decided = number

    def undecided(self, number: int) -> bool:
        """Tell whether this rank has come to a call, and nothing is settled."""
        return self._decided < number == self._number

    def leave(self, patience_s: float) -> bool:
        """Wait a little for the others, as what this rank has said cannot be taken back; later ones see its notice."""
        request, self._decided = self._request, self._number
        try:
            if request is not None and self._endpoint.wait_until(request.Test, patience_s):
                self._endpoint.check_notices()
                return False
        except DistError:
            pass  # they have given the group up
        self._endpoint.keep(request, self._asked)
        return True

    def bypass(self, first: int, last: int) -> tuple[list[MPI.Request], Any]:
        """Come to the meetings of these calls without waiting."""
        answers = [self._words(number, 1, 0) for number in range(first, last + 1)]
        return [self._ask(answer) for answer in answers], answers

    def close(self, made: int) -> None:
        """Have those told who wait for this rank, which comes no more."""
        if self._endpoint.failure is None:
            self._endpoint.whereabouts.note_end(made)
        self._endpoint.destroyed_by = nobody

    def _words(self, number: int, passes: int, word: int) -> Any:
        return np.array([(self._own + number * _STEP) & WORD_MASK, passes, word], np.uint64)

    def _ask(self, words: Any) -> MPI.Request:
        buffer = words, words.size, self._kernel.datatype
        request: MPI.Request = self._endpoint.mpi.Iallreduce(MPI.IN_PLACE, buffer, self._kernel.op)
        return request

    def _unlike(self, what: str) -> DistBackendError:
        return DistBackendError(
            f"{self._endpoint.where(what)}: another rank has made a call of another kind or size; "
            "RANKWISE_DEBUG=detail names the one that differs"
        )


def _hash(text: str) -> int:
    return int.from_bytes(blake2b(text.encode(), digest_size=8).digest(), "little")
