"""The private communicators of one group, and where on them each tag lies.

MPI guarantees tags up to 32,767 only; MPICH has 29 bits, Open MPI 31. What does not fit on one communicator goes on
the next: pages of tags. The core's own tags have a page of their own where the first does not reach them.
"""

from __future__ import annotations

from collections.abc import Callable

from mpi4py import MPI

from rankwise.backends import COLLECTIVE_TAG, MAX_TAG

#: The tag of the notices by which ranks tell each other that they have given the group up.
NOTICE_TAG = COLLECTIVE_TAG + 1

#: What MPI guarantees.
_LEAST_BOUND = 32_767

#: More pages than this are not made for the sake of tags that hardly anyone uses.
_MOST_PAGES = 2


class Pages:
    """The communicators of one group.

    Args:
        first: A communicator that nobody else uses; the group's collectives run on it.
        duplicate: Makes a duplicate of it, as all members do.
    """

    def __init__(self, first: MPI.Intracomm, duplicate: Callable[[MPI.Intracomm], MPI.Intracomm]) -> None:
        bound = int(first.Get_attr(MPI.TAG_UB) or _LEAST_BOUND)
        self.first = first
        self._length = bound + 1
        #: Up to this one, tags lie as they are on the first communicator.
        self.last_tag = min(bound, MAX_TAG)
        self._users = [first]
        self._core = first
        self._core_start = 0
        if bound < NOTICE_TAG:
            needed = MAX_TAG // self._length + 1
            self._users += [duplicate(first) for _ in range(min(needed, _MOST_PAGES) - 1)]
            self._core = duplicate(first)
            self._core_start = MAX_TAG + 1

    def place(self, tag: int) -> tuple[MPI.Intracomm, int]:
        """Return the communicator and the tag on it that stand for `tag`.

        Raises:
            ValueError: The library does not have that many tags.
        """
        if tag <= self.last_tag:
            return self.first, tag
        if tag > MAX_TAG:
            return self._core, tag - self._core_start
        page, place = divmod(tag, self._length)
        if page >= len(self._users):
            most = len(self._users) * self._length - 1
            raise ValueError(f"tag {tag} is too large for this MPI library, which has tags up to {most} here")
        return self._users[page], place

    def each(self) -> list[MPI.Intracomm]:
        """Return all communicators, each once, the first one last."""
        others = self._users[1:] if self._core is self.first else [*self._users[1:], self._core]
        return [*others, self.first]

    def free(self) -> None:
        """Give all communicators back."""
        for comm in self.each():
            comm.Free()
