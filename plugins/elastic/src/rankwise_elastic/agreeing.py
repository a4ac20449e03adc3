"""A process on its way into the next epoch: it takes the protocol's steps, and says why there is no end of them."""

from __future__ import annotations

import time

import rankwise as dist
from rankwise.errors import DistError, DistTimeoutError
from rankwise_elastic.board import Pulse, StoreBoard, where
from rankwise_elastic.rounds import Agreed, Seeker

#: How long a process pauses between two looks at the store, at first and at the most.
_PAUSE_S, _LONGEST_PAUSE_S = 0.001, 0.05
#: How long a process holds back that the others do not hear, at first and at the most: each time it tries again all of
#: them stop their work, for as long as a trial takes.
_RESTRAINT_S, _LONGEST_RESTRAINT_S = 5.0, 80.0
#: How many processes a message names.
_NAMED = 4


class Finished(SystemExit):
    """Raised where a process comes to a job whose ranks have come to the end of their work, and are gone.

    As a `SystemExit` it ends the process with status 0, unless it is caught.
    """

    def __init__(self) -> None:
        super().__init__(0)


class Search:
    """The search of one process for its next epoch, over several attempts.

    Args:
        store: The job's.
        pulse: Tells who is gone.
        is_newcomer: Whether it has been in no epoch so far.
        wait_s: How long members of the epoch before are waited for, in each attempt.
        until: When to give up.
    """

    def __init__(self, store: dist.Store, pulse: Pulse, is_newcomer: bool, wait_s: float, until: float) -> None:
        self._board, self._pulse, self._is_newcomer = StoreBoard(store), pulse, is_newcomer
        self._wait_s, self._until = wait_s, until
        self._restraint_s, self._restrained_until = _RESTRAINT_S, 0.0

    def agree(self, seeker: Seeker, failure: DistError | None) -> Agreed:
        """Take the protocol's steps until this process is in an epoch.

        Args:
            seeker: Takes the steps.
            failure: Why the group of the epoch before could not be made, for the error.

        Raises:
            DistTimeoutError: That takes too long.
            Finished: There is nothing left to do.
        """
        patient_until, pause_s = time.monotonic() + self._wait_s, _PAUSE_S
        while True:
            epoch, had_arrived = seeker.epoch, seeker.has_arrived
            is_patient, holds_back = time.monotonic() < patient_until, self._holds_back(seeker)
            agreed = seeker.step(self._board, self._is_gone, self._is_lost, is_patient, holds_back)
            if agreed is not None:
                return agreed
            if seeker.epoch != epoch and had_arrived and seeker.apart_from:
                self._restrained_until = time.monotonic() + self._restraint_s
                self._restraint_s = min(2 * self._restraint_s, _LONGEST_RESTRAINT_S)
            may_be_late = self._is_newcomer or bool(seeker.apart_from)
            if may_be_late and (seeker.choice or pause_s == _LONGEST_PAUSE_S):
                self._end_if_finished(epoch)
            if seeker.epoch != epoch or seeker.is_to_arrive or seeker.choice:
                pause_s = _PAUSE_S
                continue
            if time.monotonic() > self._until:
                raise DistTimeoutError(f"regroup: timed out: {self._words(seeker, failure)}") from failure
            time.sleep(pause_s)
            pause_s = min(2 * pause_s, _LONGEST_PAUSE_S)

    def _is_gone(self, process: str) -> bool:
        return bool(self._pulse.why_gone(process))

    def _is_lost(self, process: str) -> bool:
        """Tell whether what a process has done is given up: it is dead, or would not even have come in `wait_s`."""
        return self._pulse.is_lost(process, self._wait_s)

    def _holds_back(self, seeker: Seeker) -> bool:
        return time.monotonic() < self._restrained_until and not all(map(self._is_gone, seeker.apart_from))

    def _end_if_finished(self, epoch: int) -> None:
        """Raise if there is nothing to be done any more, and nobody who would do it."""
        before = self._board.decided(epoch - 1) or ()
        if self._board.is_finished() and len(self._pulse.gone_among(before)) == len(before):
            raise Finished

    def _words(self, seeker: Seeker, failure: DistError | None) -> str:
        """Say why this process is in no epoch."""
        if seeker.apart_from:
            return (
                f"the job goes on without this process, since {_named(seeker.apart_from)} and this process do "
                "not hear each other over the network, though all reach the store"
            )
        if seeker.ahead:
            return (
                f"the job does not go on: {_named(seeker.ahead)} may live and have done more than those that have come "
                f"to epoch {seeker.epoch}"
            )
        here = self._board.look(seeker.epoch).arrived
        why = "" if failure is None else f"; epoch {seeker.epoch - 1} could not be made: {failure}"
        return (
            f"epoch {seeker.epoch} is not decided; there are {len(here)} processes that want to be in it, and there "
            f"must be {seeker.wishes.least}{why}"
        )


def _named(processes: frozenset[str]) -> str:
    """Return how many members these are, and where the first few run."""
    them = sorted(map(where, processes))
    few = "; ".join(them[:_NAMED]) + ("; ..." if len(them) > _NAMED else "")
    return f"{len(them)} of its members ({few})"
