"""How processes that come and go agree on who is in which epoch: a protocol without sockets, threads or clocks.

Each epoch has one list of members, and the process that writes it first in the store decides it. To be a member of the
next epoch, a process *arrives* there; one that has arrived and sees everyone there who must be waited for *decides*. A
process that is not in the list goes on to the epoch after it. So there are never two worlds of one epoch, a process
that dies between any two steps is missed by nobody, and one that was away joins again as any newcomer does.

Processes that reach the store need not reach each other. Each that arrives says whom it has not heard when the members
of the epoch before tried their network. Who decides keeps `together` those that have all heard each other; the others
hold back until they are heard.

A world in which nobody has what the job has done would begin it from nothing. So no process decides one while another
may live that has more, though that one is silent or does not come: see `Seeker`.

`Seeker` is what one process does. Each of its steps asks or changes the store once, so that the steps of several
processes may be tried in every order (`tests/plugins/elastic/test_rounds.py`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple, Protocol

_NOBODY: frozenset[str] = frozenset()


class Agreed(NamedTuple):
    """An epoch and the processes that are in it.

    Attributes:
        epoch: Its number.
        members: The processes, in the order of their ranks.
        doubters: Those of them that doubt the network, so that it is tried before the epoch begins.
    """

    epoch: int
    members: tuple[str, ...]
    doubters: frozenset[str] = _NOBODY


class Arrival(NamedTuple):
    """A process that wants to be in an epoch, and what it says of itself.

    Attributes:
        process: Its handle.
        stood: The last epoch that began with it; 0 if none did.
        doubts: Whether it doubts that the others reach it, as a call has failed or as it comes to a job that runs.
        missed: The members of the epoch before that it has not heard when they tried their network.
    """

    process: str
    stood: int = 0
    doubts: bool = False
    missed: frozenset[str] = _NOBODY


class Seen(NamedTuple):
    """What the store says of an epoch.

    Attributes:
        decided: Its members, once they are decided.
        arrived: Who wants to be in it, in the order in which they came; each is there once.
        before: The members of the epoch before.
    """

    decided: tuple[str, ...] | None
    arrived: tuple[Arrival, ...]
    before: tuple[str, ...]


class Board(Protocol):
    """The store, as far as the protocol needs it. Each of these is one step."""

    def look(self, epoch: int) -> Seen:
        """Return what there is of an epoch."""

    def arrive(self, epoch: int, arrival: Arrival) -> None:
        """Enter a process among those that want to be in an epoch."""

    def decide(self, epoch: int, members: tuple[str, ...]) -> None:
        """Write the members of an epoch, unless they are written already."""


class Wishes(NamedTuple):
    """What a process says of the world that it wants to be in; all processes of a job should say the same.

    Attributes:
        least: How many members it must have.
        most: How many it may have; None for any number.
        first: For how many the first epoch waits.
    """

    least: int = 1
    most: int | None = None
    first: int = 1


class Seeker:
    """One process on its way into the next epoch.

    Args:
        process: Its handle.
        last: The epoch that it was in or tried to make, 0 if there is none; it will not be in that one again.
        wishes: What world it wants.
        stood: As in `Arrival`.
        doubts: As in `Arrival`.
        missed: As in `Arrival`, if it tried to make the epoch `last`.

    Attributes:
        epoch: The epoch that it tries to be in.
        apart_from: The members of the last epoch that was decided without this process, as it and they did not hear
            each other. Until they do it should hold back.
    """

    __slots__ = (
        *("ahead", "apart_from", "choice", "doubts", "epoch", "has_arrived", "is_to_arrive"),
        *("missed", "process", "stood", "wishes"),
    )

    def __init__(
        self,
        process: str,
        last: int,
        wishes: Wishes,
        stood: int = 0,
        doubts: bool = False,
        missed: frozenset[str] = _NOBODY,
    ) -> None:
        self.process, self.wishes = process, wishes
        self.stood, self.doubts = stood, doubts
        self.apart_from = self.ahead = _NOBODY
        self._try(last + 1, missed)

    def _try(self, epoch: int, missed: frozenset[str] = _NOBODY) -> None:
        self.epoch, self.missed = epoch, missed
        self.is_to_arrive = self.has_arrived = False
        #: What it is about to decide.
        self.choice: tuple[str, ...] = ()

    def step(
        self,
        board: Board,
        is_gone: Callable[[str], bool],
        is_lost: Callable[[str], bool],
        is_patient: bool,
        holds_back: bool = False,
    ) -> Agreed | None:
        """Take one step; return the epoch that this process is in, once it is.

        Args:
            board: The store.
            is_gone: Tells whether a process has ended, or has been silent for so long that it is taken for that.
            is_lost: Tells whether a process has ended for certain, so that nobody waits for what it has done.
            is_patient: Whether members of the epoch before that still live are waited for. A process that was no member
                of it always waits for them, as they may be at work and not know yet that anybody waits.
            holds_back: Whether it does not arrive for now, as the others would have to try the network again.
        """
        if self.choice:
            choice, self.choice = self.choice, ()
            board.decide(self.epoch, choice)
        elif self.is_to_arrive:
            self.is_to_arrive, self.has_arrived = False, True
            board.arrive(self.epoch, Arrival(self.process, self.stood, self.doubts, self.missed))
        else:
            seen = board.look(self.epoch)
            if seen.decided is not None:
                if self.process in seen.decided:
                    return Agreed(self.epoch, seen.decided, _doubters(seen))
                self._is_left_out(seen)
            elif not self.has_arrived:
                self.is_to_arrive = not holds_back
            else:
                choice = self._choose(seen, is_gone, is_patient)
                self.ahead = self._ahead(choice, seen, board, is_lost) if choice else _NOBODY
                self.choice = () if self.ahead else choice
        return None

    def _is_left_out(self, seen: Seen) -> None:
        """Try the next epoch, as this one is decided without this process."""
        if self.has_arrived:
            self.apart_from = frozenset(_apart(seen.arrived).get(self.process, _NOBODY))
        self.apart_from &= frozenset(seen.decided or ())
        self.doubts = True
        self._try(self.epoch + 1)

    def _choose(self, seen: Seen, is_gone: Callable[[str], bool], is_patient: bool) -> tuple[str, ...]:
        """Return the members that the epoch should have; nothing while somebody is waited for."""
        arrived = [each for each in seen.arrived if each.process == self.process or not is_gone(each.process)]
        here = [each.process for each in arrived]
        awaited = [process for process in seen.before if process not in here and not is_gone(process)]
        if awaited and (is_patient or self.process not in seen.before):
            return ()
        if not seen.before and is_patient and len(here) < self.wishes.first:
            return ()
        survivors = [process for process in seen.before if process in here]
        all_here = *survivors, *(process for process in here if process not in seen.before)
        members = together(all_here, arrived)
        if len(members) < self.wishes.least and not is_patient:
            members = all_here  # the network may be whole by now, which only another attempt can show
        members = _first(self.wishes.most, members, arrived)
        return members if len(members) >= self.wishes.least and self.process in members else ()

    def _ahead(
        self, members: tuple[str, ...], seen: Seen, board: Board, is_lost: Callable[[str], bool]
    ) -> frozenset[str]:
        """Return who may have more of what the job has done than any of these.

        Nothing has been done in an epoch in which one of its members has not stood, as that takes all of them.
        """
        newest = max(each.stood for each in seen.arrived if each.process in members)
        told = list(seen.arrived)
        for epoch in range(self.epoch - 1, newest, -1):
            then = board.look(epoch)  # what there is of it only grows, so that this may be later than `seen`
            its_members = then.decided or ()
            was_idle = any(each.process in its_members and each.stood < epoch for each in told)
            living = frozenset() if was_idle else frozenset(each for each in its_members if not is_lost(each))
            if living:
                return living
            told += then.arrived
        return _NOBODY


def together(processes: Sequence[str], arrived: Iterable[Arrival]) -> tuple[str, ...]:
    """Return those of the processes that stay together: each two of them have heard each other, as far as is known.

    From each process that is in no part so far, a part is made: all others are added in their order that have heard,
    and were heard by, everyone who is in it already. Most counts how many of a part were in the last epoch that began,
    for they have what the job has done; then how many there are; then how low its first stands.

    Args:
        processes: Who is there, in the order of their ranks.
        arrived: What they have said.
    """
    arrived = [each for each in arrived if each.process in processes]
    apart = _apart(arrived)
    latest = max((each.stood for each in arrived), default=0)
    veterans = {each.process for each in arrived if each.stood == latest}
    best: set[str] = set()
    placed: set[str] = set()
    for first in processes:
        if first in placed:
            continue
        part = {first}
        for process in processes:
            if apart.get(process, _NOBODY).isdisjoint(part):
                part.add(process)
        placed |= part
        best = max(best, part, key=lambda part: (len(part & veterans), len(part)))
    return tuple(process for process in processes if process in best)


def _first(most: int | None, members: tuple[str, ...], arrived: Iterable[Arrival]) -> tuple[str, ...]:
    """Return as many members as there may be, above all those that have what the job has done."""
    stood = {each.process: each.stood for each in arrived if each.process in members}
    newest = max(stood.values(), default=0)
    kept = sorted(members, key=lambda process: stood[process] < newest)[:most]
    return tuple(process for process in members if process in kept)


def _apart(arrived: Iterable[Arrival]) -> dict[str, set[str]]:
    """Return for each process that misses another, or is missed, who these are."""
    apart: dict[str, set[str]] = {}
    for each in arrived:
        for missed in each.missed:
            apart.setdefault(each.process, set()).add(missed)
            apart.setdefault(missed, set()).add(each.process)
    return apart


def _doubters(seen: Seen) -> frozenset[str]:
    """Return the members that doubt; all find the same, as each has arrived before it became a member."""
    return frozenset(each.process for each in seen.arrived if each.doubts).intersection(seen.decided or ())
