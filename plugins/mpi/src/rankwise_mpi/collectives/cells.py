"""`Cells`: what the ranks at an entry barrier show each other in shared memory, each in a cache line of its own."""

from __future__ import annotations

import mmap
from typing import Any

from mpi4py import MPI

from rankwise.backends import Deadline
from rankwise_mpi.collectives.shared_page import MARK_NBYTES, Keep, open_page

#: A cell is a cache line of 8 words; in front of the cells is a line for all.
_WORDS, _WORD_NBYTES = 8, 8
_CAME, _STATE, _FIRST, _LAST, _CALLS, _BALANCES = 0, 1, 2, 3, (4, 5), (6, 7)
_ATTENTION = MARK_NBYTES // _WORD_NBYTES


class Cells:
    """The cells of one group, as columns: one word of each rank.

    Args:
        page: The memory that all members share.

    Attributes:
        came: The last call that each rank has come to.
        states: Whether it is about to leave, or has destroyed the group.
        firsts: The first of the calls that it has passed by last.
        lasts: The last of them.
        calls: The words for its calls, even and odd ones.
        balances: Likewise what it sends less what it receives.
        attention: One word for all: not zero once any rank has begun to withdraw, or called asynchronously; mostly one
            look at it tells that all is well.
    """

    def __init__(self, page: mmap.mmap) -> None:
        words = memoryview(page).cast("Q")

        def column(word: int) -> Any:
            return words[_WORDS + word :: _WORDS]

        self._page = page
        self.attention: Any = words[_ATTENTION : _ATTENTION + 1]
        self.came, self.states, self.firsts, self.lasts = map(column, (_CAME, _STATE, _FIRST, _LAST))
        self.calls = column(_CALLS[0]), column(_CALLS[1])
        self.balances = column(_BALANCES[0]), column(_BALANCES[1])

    def close(self) -> None:
        """Give the memory back."""
        for column in (self.attention, self.came, self.states, self.firsts, self.lasts, *self.calls, *self.balances):
            column.release()
        self._page.close()


def open_cells(comm: MPI.Intracomm, deadline: Deadline, keep: Keep) -> Cells | None:
    """Return new cells for the members of a communicator; None if they cannot share memory. All members call.

    Raises:
        DistTimeoutError: Not all members have come.
    """
    page = open_page(comm, _WORDS * _WORD_NBYTES * (comm.size + 1), deadline, keep)
    return Cells(page) if page is not None else None
