"""How the members of a group that is being made come together, before they make calls of MPI that know no deadline.

Each member tells the first one that it is here, and goes on when that one says so. The first alone decides: it lets all
go on when all are here, and none once its own time is up or one has withdrawn. A member whose time is up, or that is
interrupted, withdraws, and waits a moment for the answer: if it was let go on meanwhile the others count on it, and it
goes on with them.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import count
from typing import Any

import msgpack
import numpy as np
from mpi4py import MPI

from rankwise.backends import Deadline
from rankwise.errors import DistError, DistTimeoutError, GroupAbortedError
from rankwise_mpi.library import ulfm
from rankwise_mpi.process.waiting import wait_until

_TAG = 11
_HERE, _GO, _LATE, _BROKEN = range(4)
#: What a member's own time-out or interrupt is marked with, by which it withdraws what it has told before.
_WITHDRAWN = 4
#: How long a member that withdraws waits for the answer. One that has not come, or does not look, gives none.
_PATIENCE_S = 0.2

Keep = Callable[[MPI.Request, Any], object]
#: Kind, the sender's number of the attempt, and why; of one that is here or lets all go on, who is dead.
_Note = tuple[int, int, str]


class Assembly:
    """The comings together of one process.

    Args:
        comm: Where the notes travel.
        keep: Keeps what MPI still reads.
        known_dead: Returns the ranks that this process knows to be dead.
    """

    def __init__(self, comm: MPI.Intracomm, keep: Keep, known_dead: Callable[[], Iterable[int]] = tuple) -> None:
        self._comm, self._keep, self._known_dead = comm, keep, known_dead
        self._lock = threading.RLock()
        self._numbers = count(1)
        #: What has come and was not looked at: by group and sender, of which only the last note counts.
        self._come: dict[tuple[str, int], _Note] = {}

    @contextmanager
    def of(
        self,
        name: str,
        life: str,
        ranks: Sequence[int],
        deadline: Deadline,
        look: Callable[[], None],
        names: Sequence[int] = (),
    ) -> Iterator[frozenset[int]]:
        """Enter the block once all members have come; each of them does, whatever interrupts it, or none.

        Args:
            name: The group's, which the members have in common.
            life: What tells it from groups of that name before, which a member may have withdrawn from unheard.
            ranks: The members, as ranks of the communicator.
            deadline: When to give up.
            look: Called while waiting; raises what shall end that.
            names: What messages call the members, if not by these ranks.

        Yields:
            The ranks that any member knows to be dead, the same on all members.

        Raises:
            DistTimeoutError: Not all have come; those that have not are named.
            GroupAbortedError: Another member was stopped.
        """
        stop = None
        key, called = f"{life}/{name}", dict(zip(ranks, names or ranks, strict=True))
        if ranks[0] == self._comm.rank:
            dead = self._lead(name, key, called, deadline, look)
        else:
            dead, stop = self._follow(name, key, called, deadline, look)
        yield dead
        if stop is not None:
            raise stop

    def _lead(
        self, name: str, key: str, called: Mapping[int, int], deadline: Deadline, look: Callable[[], None]
    ) -> frozenset[int]:
        mine, *others = called

        def notes() -> list[_Note | None]:
            self._take_in()
            return [self._come.get((key, rank)) for rank in others]

        def decided() -> bool:
            found = notes()
            return all(found) or any(note is not None and note[0] != _HERE for note in found)

        answer, why = _BROKEN, ""
        try:
            wait_until(decided, deadline.remaining(), look)
            found = notes()
            left = next((note for note in found if note is not None and note[0] != _HERE), None)
            if left is not None:
                answer, _, why = left
            elif None in found:
                absent = [called[rank] for rank, note in zip(others, found, strict=True) if note is None]
                answer, why = _LATE, _missing(name, absent, deadline.timeout_s)
            else:
                answer, why = (
                    _GO,
                    _listed({*self._known_dead(), *(rank for note in found if note for rank in _dead(note))}),
                )
        except BaseException as error:
            why = _broken_off(name, error, called[mine])
            raise
        finally:
            for rank in others:
                note = self._come.pop((key, rank), None)
                if note is not None:
                    self._tell(rank, key, answer, note[1], why)
        if answer != _GO:
            raise _stopped(answer, why)
        return _dead((answer, 0, why))

    def _follow(
        self, name: str, key: str, called: Mapping[int, int], deadline: Deadline, look: Callable[[], None]
    ) -> tuple[frozenset[int], BaseException | None]:
        """Return who is dead, and what has stopped this rank although it must go on, if anything has."""
        leader = next(iter(called))
        number, stop = next(self._numbers), None

        def answered() -> bool:
            self._take_in()
            note = self._come.get((key, leader))
            return note is not None and note[1] == number

        self._tell(leader, key, _HERE, number, _listed(self._known_dead()))
        try:
            if not wait_until(answered, deadline.remaining(), look):
                raise DistTimeoutError(_missing(name, [called[leader]], deadline.timeout_s))
        except BaseException as error:
            stop = error
            is_late = isinstance(error, DistTimeoutError)
            why = str(error) if is_late else _broken_off(name, error, called[self._comm.rank])
            self._tell(leader, key, _WITHDRAWN + (_LATE if is_late else _BROKEN), number, why)
            if not wait_until(answered, _PATIENCE_S, _see_nothing):
                raise
        answer = self._come.pop((key, leader))
        if answer[0] == _GO:
            return _dead(answer), None if isinstance(stop, DistError) else stop
        raise stop or _stopped(answer[0], answer[2])

    def _tell(self, rank: int, key: str, kind: int, number: int, why: str = "") -> None:
        data = np.frombuffer(msgpack.packb((key, kind, number, why)), np.uint8)
        self._keep(self._comm.Isend((data, data.nbytes, MPI.BYTE), rank, _TAG), data)

    def _take_in(self) -> None:
        status = MPI.Status()
        with self._lock:
            try:
                while (met := self._comm.Improbe(MPI.ANY_SOURCE, _TAG, status)) is not None:
                    data = np.empty(status.Get_count(MPI.BYTE), np.uint8)
                    met.Recv((data, data.nbytes, MPI.BYTE))
                    key, kind, number, why = msgpack.unpackb(data.tobytes())
                    self._note((key, status.Get_source()), kind, number, why)
            except MPI.Exception:
                ulfm.acknowledge(self._comm)  # somebody has died; the others' notes come all the same

    def _note(self, place: tuple[str, int], kind: int, number: int, why: str) -> None:
        if kind >= _WITHDRAWN:
            here = self._come.get(place)
            if here is None or here[1] != number:
                return  # it was answered before it was withdrawn, and the member has heard that
            kind -= _WITHDRAWN
        self._come[place] = kind, number, why


def _listed(ranks: Iterable[int]) -> str:
    return " ".join(map(str, sorted(ranks)))


def _dead(note: _Note) -> frozenset[int]:
    """Return the ranks that the sender of a note, which is here or lets all go on, knows to be dead."""
    return frozenset(map(int, note[2].split()))


def _missing(name: str, ranks: Sequence[int], timeout_s: float) -> str:
    listed = f"rank{'s' * (len(ranks) > 1)} {', '.join(map(str, ranks[:32]))}"
    return f"making group {name!r}: timed out: {listed} did not come within {round(timeout_s, 1):g} s"


def _broken_off(name: str, error: BaseException, rank: int) -> str:
    return f"making group {name!r} on rank {rank} was interrupted by {type(error).__name__}"


def _stopped(kind: int, why: str) -> DistError:
    return DistTimeoutError(why) if kind == _LATE else GroupAbortedError(why)


def _see_nothing() -> None:
    """Return: the answer counts, whatever else there is."""
