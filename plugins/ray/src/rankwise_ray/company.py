"""Companies: the processes of a group, as long as they have one, with what all their groups share.

That is the store in which they meet, the thread that watches them, and the connections of both. A group of the same
processes in the same order is made in the company that there is.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from contextlib import suppress

import rankwise as dist
from rankwise.backends import start_thread

_PAUSE_S = 0.05
#: How long rank 0 keeps the store for others that have not left yet.
_STAY_S = 30.0

_lock = threading.Lock()
_all: list[Company] = []


class Company:
    """This process's membership.

    Args:
        mark: What tells the company from others.
        root: A group of its processes, which their other groups are made from.
        store: The store that the root was made in, which is the company's now.
    """

    def __init__(self, mark: str, root: dist.ProcessGroup, store: dist.TCPStore) -> None:
        self.mark, self.root, self._store = mark, root, store
        #: How many groups there are in it, or are being made.
        self.groups = 0
        #: Whether further groups can be made in it.
        self.is_sound = True

    def make(self, create: Callable[[dist.ProcessGroup], dist.ProcessGroup]) -> dist.ProcessGroup:
        """Return a group in the company, which `leave` is called for once it has ended."""
        with _lock:
            self.groups += 1
        try:
            group = create(self.root)
        except BaseException:
            leave(self)
            raise
        group.on_failure(self._failed)
        return group

    def _failed(self, error: dist.DistError) -> None:
        if isinstance(error, (dist.PeerDiedError, dist.DistNetworkError)):
            self.is_sound = False

    def end(self) -> None:
        """Leave; the rank that serves the store stays until all have left, or for half a minute."""
        try:
            with suppress(dist.DistError):  # a process may have died, which the calls have raised
                dist.destroy_process_group(self.root)
        finally:
            self._close()

    def _close(self) -> None:
        store = self._store
        try:
            left = store.add("left", 1)
            until = time.monotonic() + _STAY_S
            while store.is_master and left < self.root.size() and time.monotonic() < until:
                time.sleep(_PAUSE_S)
                left = store.add("left", 0)
        except dist.DistError:
            pass  # rank 0 is gone, and the store with it
        finally:
            store.close()


def offered(rank: int, size: int) -> dict[str, Company]:
    """Return the companies in which this process has a rank of so many, by their marks; it is to leave each again."""
    with _lock:
        fit = [each for each in _all if each.is_sound and (each.root.rank(), each.root.size()) == (rank, size)]
        for company in fit:
            company.groups += 1
    return {company.mark: company for company in fit}


def enter(company: Company) -> None:
    """Be in a company that has been made."""
    with _lock:
        company.groups += 1
        _all.append(company)


def leave(company: Company) -> None:
    """Have a group less in a company, which this process leaves after the last, on a thread of its own."""
    with _lock:
        company.groups -= 1
        is_last = company.groups == 0
        if is_last:
            _all.remove(company)
    if is_last:
        start_thread(threading.Thread(target=company.end, name="rankwise-ray company end", daemon=True))
