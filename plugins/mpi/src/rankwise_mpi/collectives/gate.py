"""`Gate`: where the ranks of a group on one host meet before a collective, and compare their calls.

MPI's blocking calls know no deadline, and do not tell when the ranks disagree: some ranks get an error or garbage,
others wait for ever. So the ranks meet first. Each has a cell in a page of memory that all share: the number of the
last call that it has come to, a word that stands for this call, and whether it is about to give up. Who finds all
others there with the same word goes on to the call. A rank whose time is over, or that is interrupted, must not leave
when the others are going on at this very moment; so it says that it wavers, lets that become visible, and looks once
more: if all have come by now it goes on with them, if not it is gone for good. Who meets a waverer waits for its
decision.

A rank may come to the next call while others still look at its word for this one, so that there are two places for
words, used in turn. Whoever is beyond a call to which all have come has found all words alike, and need not be
compared with.

A rank that calls asynchronously cannot wait, and makes a nonblocking call, which MPI does not match with a blocking
one. It notes the first and the last of such calls in its cell as it passes by; who comes to one of them makes the
nonblocking call too, without comparing. It may overwrite the note once it has met all others again: by then those who
come to these calls have read it. Who still looks for the call before may see half of a new note, as two words are not
read at once; so the first is written before the last, and read after it: the old last call and a new last call alike
tell that the note is of other calls.
"""

from __future__ import annotations

import platform
from time import sleep

from mpi4py import MPI

from rankwise.backends import Deadline
from rankwise_mpi.collectives.cells import Cells, open_cells
from rankwise_mpi.collectives.marks import WORD_MASK, CallMark
from rankwise_mpi.collectives.shared_page import Keep

__all__ = ["Gate", "open_gate"]

#: How many looks there are to one that keeps MPI going, once a rank has not found the others at once.
_LOOKS_PER_PROBE = 4
#: What memory one rank writes the others must see in that order, which these processors promise.
_ORDERED = ("x86_64", "AMD64")

_HERE, _WAVERING, _GONE = 0, 1, 2
#: A store is visible to all cores long before.
_SETTLE_S = 0.001
#: For how long a rank waits for another's decision, which takes a few times that.
_PATIENCE_S = 2.0


class Gate:
    """The meeting place of one group.

    Args:
        cells: What the members show each other.
        rank: This process's rank in the group.
        comm: The group's communicator, on which MPI makes progress while this rank waits.
        first_looks: How often to look for the others at once.
    """

    def __init__(self, cells: Cells, rank: int, comm: MPI.Intracomm, first_looks: int) -> None:
        self._cells = cells
        self._came, self._states, self._heed = cells.came, cells.states, cells.heed
        self._firsts, self._lasts = cells.firsts, cells.lasts
        self._calls, self._balances = cells.calls, cells.balances
        self._rank = rank
        self._comm = comm
        self._looks = 0
        #: The last call of which this rank has made sure what becomes of it: it goes on to MPI, or it does not.
        self.decided = 0
        others = tuple(other for other in range(len(self._came)) if other != rank)
        #: What `come` looks at, for who cannot afford to call it: the numbers, the words of even and of odd calls, the
        #: word to heed, this rank's place and those of the others among the numbers, and the looks.
        self.view = self._came, self._calls, self._heed, rank, others, range(first_looks)

    def come(self, number: int, mark: CallMark) -> bool:
        """Come to a call; tell whether all are there to make the same, so that this rank may go on.

        Args:
            number: Which of the group's calls it is; all ranks count alike.
            mark: What stands for the call.
        """
        came, calls, heed, mine, others, looks = self.view
        words, word = calls[number & 1], mark.word
        if mark.paired:
            self._balances[number & 1][mine] = mark.balance
        words[mine] = word
        came[mine] = number
        for other in others:  # one after the other, as who has come stays there
            for _ in looks:
                if came[other] >= number:
                    break
            else:
                return False
            if words[other] != word and came[other] == number:
                return False
        return (not heed[0] or self.settled) and (not mark.paired or self.agreed(mark))

    @property
    def settled(self) -> bool:
        """Whether all who have come wait for each other, although there was something to heed."""
        return not any(self._states) and self.alike

    def agreed(self, mark: CallMark) -> bool:
        """Tell whether all ranks, which have come and wait for each other, make the same call."""
        number = self._came[self._rank]
        words, balances = self._calls[number & 1], self._balances[number & 1]
        same = all(word == mark.word for word in words)
        if same and (not mark.paired or sum(balances) & WORD_MASK == 0):
            return True
        # Who is beyond has found all alike, and may have overwritten its word since.
        return any(came > number for came in self._came)

    def pass_by(self, first: int, last: int) -> None:
        """Note that this rank makes some calls asynchronously."""
        mine, noted = self._rank, self._lasts[self._rank]
        # The order of these lines is that in which the others see them.
        if not noted or noted < self._came[mine]:
            self._firsts[mine] = first
        self._lasts[mine] = last
        self._heed[0] = 1
        self._came[mine] = last

    @property
    def alike(self) -> bool:
        """Whether nobody passes by the call that all have come to."""
        number = self._came[self._rank]
        # The last before the first, as the others may be writing; `zip` reads from the left.
        return not any(first <= number <= last for last, first in zip(self._lasts, self._firsts, strict=True))

    def test(self) -> bool:
        """Tell whether all are there and decided; `gone` then says whether one has left."""
        if min(self._came) >= self._came[self._rank] and _WAVERING not in self._states:
            return True
        self._looks += 1
        if not self._looks % _LOOKS_PER_PROBE:
            self._comm.Iprobe(MPI.ANY_SOURCE, 0)  # others may be waiting for what MPI does in our calls only
        return False

    @property
    def gone(self) -> list[int]:
        """The members that have left and will not make the call; who has come to a later one made it, or makes it."""
        left = [rank for rank, state in enumerate(self._states) if state == _GONE]
        return [rank for rank in left if self._came[rank] <= self._came[self._rank]]

    def undecided(self, number: int) -> bool:
        """Whether this rank has come to a call, so that the others count on it, and has not decided."""
        return self.decided < number <= int(self._came[self._rank])

    def leave(self) -> bool:
        """Give up the call that this rank has come to; false if all have come meanwhile, so that it must go on.

        It may be called again if it was interrupted.
        """
        states, mine = self._states, self._rank
        waited_in_vain = False
        while True:
            states[mine] = _WAVERING
            self._heed[0] = 1
            sleep(_SETTLE_S)
            if min(self._came) < self._came[mine]:
                break
            if waited_in_vain and list(states).count(_WAVERING) > 1:
                break  # who wavers that long has stopped for good, and nobody goes on while it does
            states[mine] = _HERE
            patience = Deadline(_PATIENCE_S)  # for the others; how long this rank itself was stopped does not count
            while _WAVERING in states and not patience.expired():
                sleep(_SETTLE_S)
            if self.gone:
                break
            if _WAVERING not in states:
                return False
            waited_in_vain = True
        states[mine] = _GONE
        self.decided = self._came[mine]
        return True

    def close(self) -> None:
        """Give the memory back."""
        self._cells.close()


def open_gate(comm: MPI.Intracomm, deadline: Deadline, first_looks: int, keep: Keep) -> Gate | None:
    """Make the gate of a new group whose members are all on this host; None if they cannot share memory.

    All members call.

    Args:
        comm: The group's communicator.
        deadline: By when all must have called.
        first_looks: How often a rank looks for the others before it waits.
        keep: Keeps a request that was given up, with what MPI may still write to.

    Raises:
        DistTimeoutError: Not all have.
    """
    if platform.machine() not in _ORDERED:
        return None
    cells = open_cells(comm, deadline, keep)
    return Gate(cells, comm.rank, comm, first_looks) if cells is not None else None
