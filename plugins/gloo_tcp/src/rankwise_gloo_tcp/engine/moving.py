"""What there is to move for whoever has an engine's seat, and what is told when nobody holds the lock."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

from rankwise_gloo_tcp.engine.fate import Fate
from rankwise_gloo_tcp.engine.fetching import Fetching
from rankwise_gloo_tcp.engine.mail import Mail
from rankwise_gloo_tcp.engine.peers import Peers
from rankwise_gloo_tcp.engine.request import Request
from rankwise_gloo_tcp.engine.setting import Setting
from rankwise_gloo_tcp.protocol.frames import read_notice

__all__ = ["Moving", "Quitters"]

#: Those who have given a group up, and the notice of the first.
Quitters = tuple[list[int], bytes] | None


class Moving:
    """The `Mover` of one engine.

    Attributes:
        settled: Requests that have ended and whose futures are to be told.
        given_up: Returns who has given the group up, and the notice of the first, where memory tells of it.
        deferred: What is to be done as soon as the lock is free, by whoever has held it.
    """

    def __init__(self, setting: Setting, peers: Peers, mail: Mail, fetching: Fetching, fate: Fate) -> None:
        self.settled: deque[Request] = deque()
        self.given_up: Callable[[], Quitters] = _nothing
        self.deferred: deque[Callable[[], object]] = deque()
        self._names, self._peers, self._mail, self._fetching, self._fate = setting.names, peers, mail, fetching, fate
        # Bound once: these are asked again and again while a wait looks for news.
        self.may_have_news, self.look_at = peers.may_have_news, peers.look_at

    def moves_by_looking(self) -> bool:
        """Tell whether there is news whenever `may_have_news` says so, as a look at memory can tell."""
        return self._peers.all_in_memory

    def before_sleep(self, timeout_s: float) -> float:
        """Do what needs no lock, and return for how long the loop may sleep at the most."""
        if self._fetching:
            self.without_lock()
            timeout_s = 0.0
        return self._peers.before_sleep(timeout_s)

    def after_sleep(self) -> None:
        """Do what is to be done from time to time. The lock is held."""
        self._peers.after_sleep()
        if self._peers.dying:
            self._mail.bury_the_dying()
        said = self.given_up()
        if said is not None:
            for peer in said[0]:
                self._mail.peer_gave_up(peer, read_notice(said[1]), self._mail.peer_is_dying)

    def without_lock(self) -> None:
        """Copy offered messages from their senders' memory. Only whoever has the seat calls, without the lock."""
        if self._fetching:
            self._fetching.run(self._mail.inbox.fetched)

    def reach(self, rank: int | None) -> None:
        """Connect to whom a receive is waiting for, so that its death is noticed."""
        self._peers.reach(rank)

    def has_news(self) -> bool:
        """Tell whether somebody is to be told something without the lock."""
        return bool(self.settled or self.deferred) or self._fate.has_news

    def settle(self) -> None:
        """Tell futures, and the communicator of a failure."""
        while self.deferred:
            self._do_next()
        while self.settled:
            try:
                request = self.settled.popleft()
            except IndexError:
                break
            request.settle()
        self._fate.tell()

    def _do_next(self) -> None:
        try:
            deed = self.deferred.popleft()
        except IndexError:
            return
        deed()

    def describe(self, rank: int | None) -> str:
        """Return what a rank is called."""
        return "any rank" if rank is None else f"rank {self._names[rank]}"


def _nothing() -> None:
    """Say that no rank has given the group up."""
