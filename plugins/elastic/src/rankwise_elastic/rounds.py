"""How processes that come and go agree on who is in which epoch: a protocol without sockets, threads or clocks.

Each epoch has one list of members, and the process that writes it first in the store decides it. To be a member of the
next epoch, a process *arrives* there; one that has arrived and sees everyone there who must be waited for *decides*. A
process that is not in the list goes on to the epoch after it. So there are never two worlds of one epoch, a process
that dies between any two steps is missed by nobody, and one that was away joins again as any newcomer does.

`Seeker` is what one process does. Each of its steps asks or changes the store once, so that the steps of several
processes may be tried in every order (`tests/plugins/elastic/test_rounds.py`).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple, Protocol

__all__ = ["Agreed", "Board", "Seeker", "Seen", "Wishes"]


class Agreed(NamedTuple):
    """An epoch and the processes that are in it, in the order of their ranks."""

    epoch: int
    members: tuple[str, ...]


class Seen(NamedTuple):
    """What the store says of an epoch.

    Attributes:
        decided: Its members, once they are decided.
        arrived: Who wants to be in it, in the order in which they came.
        before: The members of the epoch before.
    """

    decided: tuple[str, ...] | None
    arrived: tuple[str, ...]
    before: tuple[str, ...]


class Board(Protocol):
    """The store, as far as the protocol needs it. Each of these is one step."""

    def look(self, epoch: int) -> Seen:
        """Return what there is of an epoch."""

    def arrive(self, epoch: int, process: str) -> None:
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
        last: The epoch that it was in, 0 if in none; it will not be in that one again.
        wishes: What world it wants.

    Attributes:
        epoch: The epoch that it tries to be in.
    """

    __slots__ = ("choice", "epoch", "has_arrived", "is_to_arrive", "process", "wishes")

    def __init__(self, process: str, last: int, wishes: Wishes) -> None:
        self.process, self.wishes = process, wishes
        self._try(last + 1)

    def _try(self, epoch: int) -> None:
        self.epoch = epoch
        self.is_to_arrive = self.has_arrived = False
        #: What it is about to decide.
        self.choice: tuple[str, ...] = ()

    def step(self, board: Board, is_gone: Callable[[str], bool], is_patient: bool) -> Agreed | None:
        """Take one step; return the epoch that this process is in, once it is.

        Args:
            board: The store.
            is_gone: Tells whether a process has ended, or has been silent for so long that it is taken for that.
            is_patient: Whether members of the epoch before that still live are waited for. A process that was no member
                of it always waits for them, as they may be at work and not know yet that anybody waits.
        """
        if self.choice:
            choice, self.choice = self.choice, ()
            board.decide(self.epoch, choice)
        elif self.is_to_arrive:
            self.is_to_arrive, self.has_arrived = False, True
            board.arrive(self.epoch, self.process)
        else:
            seen = board.look(self.epoch)
            if seen.decided is not None:
                if self.process in seen.decided:
                    return Agreed(self.epoch, seen.decided)
                self._try(self.epoch + 1)
            elif not self.has_arrived:
                self.is_to_arrive = True
            else:
                self.choice = self._choose(seen, is_gone, is_patient)
        return None

    def _choose(self, seen: Seen, is_gone: Callable[[str], bool], is_patient: bool) -> tuple[str, ...]:
        """Return the members that the epoch should have; nothing while somebody is waited for."""
        here = [process for process in seen.arrived if process == self.process or not is_gone(process)]
        awaited = [process for process in seen.before if process not in here and not is_gone(process)]
        if awaited and (is_patient or self.process not in seen.before):
            return ()
        if not seen.before and is_patient and len(here) < self.wishes.first:
            return ()
        survivors = [process for process in seen.before if process in here]
        members = (*survivors, *(process for process in here if process not in seen.before))[: self.wishes.most]
        return members if len(members) >= self.wishes.least and self.process in members else ()
