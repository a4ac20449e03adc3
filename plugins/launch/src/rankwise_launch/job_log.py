"""The log of a job, in the store of its launchers; or in this process, if the job has one node.

Entry number n is the key `log/n`, which the first that writes it has. Who finds another's entry there applies that, and
tries the next number: so each entry is applied by all launchers, once and in the same order.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from contextlib import suppress
from time import monotonic
from typing import TYPE_CHECKING, Any

from rankwise.errors import DistError, DistTimeoutError
from rankwise_launch.roster import NodeJoined, NodeLost, Roster, Terms

if TYPE_CHECKING:
    from rankwise.stores import Store

#: How often who follows the log looks whether it is to end.
_LOOK_S = 0.5


class JobLog:
    """The log, and the roster that it amounts to so far.

    Once the store is gone so is node 0, which ends the job: until then a launcher counts for itself.

    Args:
        launcher: What tells this launcher from all others.
        roster: Of a job that has no entries yet.
        store: Where the launchers meet; None if there is one only.
        passing: What the store raises while it is out of reach for a while.

    Attributes:
        launcher: As above.
        roster: As above; to be read within `changed`, or where nobody else writes.
        changed: Is notified of each entry.
        listener: Is called at each entry.
        is_handled: Whether what was taken of the news has been acted upon.
    """

    def __init__(
        self,
        launcher: str,
        roster: Roster,
        store: Store | None = None,
        passing: tuple[type[DistError], ...] = (DistTimeoutError,),
    ) -> None:
        self.launcher, self.roster, self._store, self._passing = launcher, roster, store, passing
        self.changed = threading.Condition(threading.RLock())
        self.listener: Callable[[], None] | None = None
        self.is_handled = True
        self._next = 0

    @classmethod
    def of_one_node(cls, size: int, terms: Terms) -> JobLog:
        """Return the log of a job that has one node."""
        log = cls("here", Roster(terms))
        log.write("enrol", 0, "here", "", size)
        log.write("begin", 0)
        return log

    def write(self, kind: str, *rest: Any) -> bool:
        """Write an entry; return whether it has changed anything, by when it comes."""
        entry = [kind, self.launcher, *rest]
        with self.changed:
            if self._store is None:
                return self._apply(entry)
            mine = json.dumps(entry).encode()
            with suppress(DistError, OSError):
                while (found := self._offer(mine)) != mine:
                    self._apply(json.loads(found))
            return self._apply(entry)

    def _offer(self, entry: bytes) -> bytes:
        """Offer an entry as the next one; return which that is. An outage of the network is waited out."""
        assert self._store is not None
        while True:
            with suppress(*self._passing):
                return self._store.compare_set(f"log/{self._next}", b"", entry)

    def read(self, wait_s: float = _LOOK_S, count: int = 1) -> bool:
        """Wait for the next entries, of any launcher; return whether there were so many.

        Raises:
            DistError: The store is gone, or out of reach.
        """
        assert self._store is not None
        numbers = range(self._next, self._next + count)
        with suppress(*self._passing):
            found = self._store.multi_get([f"log/{number}" for number in numbers], wait_s)
            with self.changed:
                for number, entry in zip(numbers, found, strict=True):
                    if number == self._next:  # else this launcher has seen it as it wrote one of its own
                        self._apply(json.loads(entry))
            return True
        return False

    def wait_for(self, answer: Callable[[Roster], Any], until: float, is_over: Callable[[], object]) -> Any:
        """Return what the roster answers once it does; None when the time is up, or something else has ended that."""
        with self.changed:
            while (found := answer(self.roster)) is None and monotonic() < until and not is_over():
                self.changed.wait(_LOOK_S)
            return found

    def take_news(self) -> list[NodeLost | NodeJoined]:
        """Return what is new of nodes."""
        with self.changed:
            news, self.roster.news = self.roster.news, []
            return news

    def wake(self) -> None:
        """Have everybody look who waits for an entry."""
        with self.changed:
            self.changed.notify_all()
            if self.listener is not None:
                self.listener()

    def _apply(self, entry: list[Any]) -> bool:
        changed = self.roster.apply(entry)
        self._next += 1
        if self.roster.news:
            self.is_handled = False
        self.wake()
        return changed
