"""`EntryBarrier`: where the ranks of a group on one host wait for each other before a collective, and compare calls.

MPI's blocking calls know no deadline, and do not tell when the ranks disagree: some ranks get an error or garbage,
others wait for ever. So the ranks meet first. Each has a cell in a page of memory that all share: the number of the
last call at which it has arrived, a word that stands for this call, and its state. A rank that finds all others there
with the same word goes on to the call. A rank whose deadline has passed, or that is interrupted, must not leave while
the others are going on at this very moment. So it publishes WITHDRAWING, waits until the store is visible, and checks
again: if all ranks have arrived by now it goes on with them, if not it is gone for good. A rank that finds another
withdrawing waits for its decision. A rank that destroys the group says how many calls it has made, and does not come to
those after them; a rank that finds this knows that none of these can be made.

A rank may arrive at the next call while others still read its word for this one, so there are two places for words,
used in turn. A rank beyond a call at which all arrived has found all words alike, and need not be compared with.

A rank that calls asynchronously cannot wait, and makes a nonblocking call, which MPI does not match with a blocking
one. It bypasses the barrier: it notes the first and the last of such calls in its cell, and a rank that arrives at one
of them makes the nonblocking call too, without comparing. The note may be overwritten once all ranks have met again,
since the ranks that arrive at these calls have read it by then. A rank still at the previous call may see only one of
the two words change. Writers store `first` before `last`, and readers load them in the opposite order, so any mix of
old and new excludes the reader's call.
"""

from __future__ import annotations

import platform
from time import sleep

from mpi4py import MPI

from rankwise.backends import Deadline
from rankwise_mpi.collectives.cells import Cells, open_cells
from rankwise_mpi.collectives.marks import WORD_MASK, CallMark
from rankwise_mpi.collectives.shared_page import Keep

#: How many looks there are to one that keeps MPI going, once a rank has not found the others at once.
_LOOKS_PER_PROBE = 4
#: What memory one rank writes the others must see in that order, which these processors promise.
_ORDERED = ("x86_64", "AMD64")

#: From the last on: how many calls a rank has made that has destroyed the group.
_HERE, _WITHDRAWING, _GONE, _DESTROYED = 0, 1, 2, 3
#: A store is visible to all cores long before.
_SETTLE_S = 0.001
#: For how long a rank waits for another's decision, which takes a few times that.
_PATIENCE_S = 2.0


class EntryBarrier:
    """The meeting place of one group.

    Args:
        cells: What the members show each other.
        rank: This process's rank in the group.
        comm: The group's communicator, on which MPI makes progress while this rank waits.
        first_looks: How often to look for the others without a pause.
    """

    def __init__(self, cells: Cells, rank: int, comm: MPI.Intracomm, first_looks: int) -> None:
        self._cells = cells
        self._came, self._states, self._attention = cells.came, cells.states, cells.attention
        self._firsts, self._lasts = cells.firsts, cells.lasts
        self._calls, self._balances = cells.calls, cells.balances
        self._rank = rank
        self._comm = comm
        self._looks = 0
        #: The last call of which this rank has made sure what becomes of it: it goes on to MPI, or it does not.
        self.decided = 0
        others = tuple(other for other in range(len(self._came)) if other != rank)
        #: What `arrive` looks at, for code that cannot afford to call it: the numbers, the words of even and odd calls,
        #: the word that asks for attention, this rank's place and those of the others among the numbers, and the looks.
        self.view = self._came, self._calls, self._attention, rank, others, range(first_looks)

    def arrive(self, number: int, mark: CallMark) -> bool:
        """Arrive at a call; tell whether all ranks are there to make the same, so that this one may go on.

        Args:
            number: Which of the group's calls it is; all ranks count alike.
            mark: What stands for the call.
        """
        came, calls, attention, mine, others, looks = self.view
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
        return (not attention[0] or self.settled) and (not mark.paired or self.agreed(mark))

    @property
    def settled(self) -> bool:
        """Whether all who have come wait for each other, although something asks for attention."""
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

    def bypass(self, first: int, last: int) -> None:
        """Note that this rank makes some calls asynchronously, and does not wait for the others."""
        mine, noted = self._rank, self._lasts[self._rank]
        # The order of these lines is that in which the others see them.
        if not noted or noted < self._came[mine]:
            self._firsts[mine] = first
        self._lasts[mine] = last
        self._attention[0] = 1
        self._came[mine] = last

    @property
    def alike(self) -> bool:
        """Whether no rank bypasses the call at which all have arrived."""
        number = self._came[self._rank]
        # The last before the first, as the others may be writing; `zip` reads from the left.
        return not any(first <= number <= last for last, first in zip(self._lasts, self._firsts, strict=True))

    def test(self) -> bool:
        """Tell whether all are there and decided; `gone` then says whether one has left."""
        mine = self._came[self._rank]
        if (min(self._came) >= mine and _WITHDRAWING not in self._states) or self.destroyed_by(mine):
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

    def destroyed_by(self, number: int) -> list[int]:
        """Return the members that have destroyed the group, and have not made a call."""
        states = self._states
        if max(states) < _DESTROYED:
            return []
        return [rank for rank, state in enumerate(states) if _DESTROYED <= state < _DESTROYED + number]

    def destroy(self, made: int) -> None:
        """Tell the others that this rank, which has made so many calls, makes no more of them."""
        self._states[self._rank] = _DESTROYED + made

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
            states[mine] = _WITHDRAWING
            self._attention[0] = 1
            sleep(_SETTLE_S)
            if min(self._came) < self._came[mine]:
                break
            if waited_in_vain and list(states).count(_WITHDRAWING) > 1:
                break  # a rank that withdraws for that long has stopped for good, and none goes on meanwhile
            states[mine] = _HERE
            patience = Deadline(_PATIENCE_S)  # for the others; how long this rank itself was stopped does not count
            while _WITHDRAWING in states and not patience.expired():
                sleep(_SETTLE_S)
            if self.gone:
                break
            if _WITHDRAWING not in states:
                return False
            waited_in_vain = True
        states[mine] = _GONE
        self.decided = self._came[mine]
        return True

    def close(self) -> None:
        """Give the memory back."""
        self._cells.close()


def open_entry_barrier(comm: MPI.Intracomm, deadline: Deadline, first_looks: int, keep: Keep) -> EntryBarrier | None:
    """Make the entry barrier of a new group whose members are all on this host; None if they cannot share memory.

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
    return EntryBarrier(cells, comm.rank, comm, first_looks) if cells is not None else None
