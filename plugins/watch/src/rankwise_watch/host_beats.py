"""This rank's part in telling of its host: as the teller it makes the page, else it finds the one that is there."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from functools import partial

from rankwise_watch.heartbeat import told_key
from rankwise_watch.telling import MARK_NBYTES, Entry, Member, Page, Teller

#: On how many ranks of a host one tells of all: of fewer, each may as well tell of itself.
FEWEST = 4
_NAME = "rankwise-watch"


class HostBeats:
    """The ranks of this host and their page.

    The page is memory that has no name. Others find its descriptor in the teller's process, into which the system lets
    only the same user look; that it is the page is known by a mark, which the teller writes into the store.

    Args:
        rank: This rank.
        ranks: All ranks of the host.
        pid_of: Tells the process of a rank.
        prefix: What keys begin with.
    """

    def __init__(self, rank: int, ranks: Iterable[int], pid_of: Callable[[int], int], prefix: str = "") -> None:
        self._rank, self._ranks, self._pid_of, self._prefix = rank, sorted(ranks), pid_of, prefix
        self._place_of = {each: place for place, each in enumerate(self._ranks)}
        self._page: Page | None = None
        self._member: Member | None = None
        self._teller: Teller | None = None
        self._descriptor, self._mark = -1, b""
        self._taken: dict[int, Entry] = {}
        self._is_settled = False
        if rank == self._ranks[0]:
            self._make()

    def hand_over(self, number: int, text: bytes) -> int | None:
        """Have the teller tell the store of a heartbeat.

        Returns:
            How many verdicts have been heard; None if this rank is to send the heartbeat itself.
        """
        return None if self._member is None else self._member.hand_over(Entry(number, text))

    def falls_between(self) -> bool:
        """Tell whether this rank's heartbeats come while the teller waits for the store, so that it misses them."""
        return self._member is not None and self._member.has_just_missed

    def to_tell(self) -> dict[str, bytes]:
        """Return what this rank has to tell beside its own heartbeat, by keys of the store."""
        if self._teller is None:
            return {}
        self._taken = self._teller.collect()
        values = {told_key(self._prefix, self._ranks[place]): entry.text for place, entry in self._taken.items()}
        return values | {self._page_key: b"%d " % self._descriptor + self._mark.hex().encode()}

    def to_ask(self) -> list[str]:
        """Return the keys whose values this rank needs."""
        return [] if self._is_settled else [self._page_key]

    def has_told(self, answers: Sequence[bytes | None], heard: int) -> None:
        """Learn that the store has got all, what it has answered, and how many verdicts have been heard."""
        if self._teller is not None:
            self._teller.has_told(self._taken, heard)
        for answer in answers:
            if answer is not None:
                self._open(answer)

    def at_hand(self, ranks: Iterable[int]) -> Mapping[int, bytes]:
        """Return the heartbeats of those ranks that have written some here; others' may be newer in the store."""
        if self._page is None:
            return {}
        found = {rank: self._page.get(self._place_of[rank]) for rank in ranks if rank in self._place_of}
        return {rank: entry.text for rank, entry in found.items() if entry is not None}

    def close(self) -> None:
        """Give the descriptor back."""
        self._page = self._member = self._teller = None
        self._is_settled = True
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1

    @property
    def _page_key(self) -> str:
        return f"{self._prefix}page/{self._ranks[0]}"

    def _make(self) -> None:
        self._is_settled = True
        if not hasattr(os, "memfd_create"):  # then nobody finds a page
            return
        with suppress(OSError):
            # opens: the page of heartbeats of a host
            # reached by: processes of this user, and root, through /proc
            # guarded by: its name and a random mark that stands in the store are compared
            # proved by: tests/plugins/watch/test_telling.py
            self._descriptor = os.memfd_create(_NAME, os.MFD_CLOEXEC)
            page = self._on_descriptor()
            os.truncate(self._descriptor, page.nbytes)
            self._mark = os.urandom(MARK_NBYTES)
            page.sign(self._mark)
            self._page, self._teller = page, Teller(page, len(self._ranks))

    def _open(self, answer: bytes) -> None:
        self._is_settled = True  # what cannot be opened now cannot be opened later
        with suppress(OSError, ValueError):
            number, mark = answer.split()
            path = f"/proc/{self._pid_of(self._ranks[0])}/fd/{int(number)}"
            # opens: the page of heartbeats of a host
            self._descriptor = os.open(path, os.O_RDWR | os.O_CLOEXEC | os.O_NONBLOCK)
            page = self._on_descriptor()
            is_page = os.readlink(f"/proc/self/fd/{self._descriptor}").startswith(f"/memfd:{_NAME}")
            if is_page and page.is_signed(bytes.fromhex(mark.decode())):
                self._page, self._member = page, Member(page, self._place_of[self._rank])
                return
        self.close()

    def _on_descriptor(self) -> Page:
        return Page(partial(os.pread, self._descriptor), partial(os.pwrite, self._descriptor), len(self._ranks))
