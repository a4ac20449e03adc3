"""What there is to move for the owner of an engine's progress lock, and what is told when no thread holds the lock."""

from __future__ import annotations

import threading
from collections.abc import Callable
from time import sleep

from rankwise.errors import DistBackendError
from rankwise_gloo_tcp.engine.config import EngineConfig
from rankwise_gloo_tcp.engine.dispatcher import Dispatcher
from rankwise_gloo_tcp.engine.failure import FailureState
from rankwise_gloo_tcp.engine.peers import Fetching, Peers
from rankwise_gloo_tcp.engine.request import Request
from rankwise_gloo_tcp.protocol.frames import read_notice
from rankwise_gloo_tcp.protocol.matching import Arrival
from rankwise_gloo_tcp.protocol.message import Message

#: How long a thread that was interrupted may take to give the group up.
_GIVING_UP_S = 0.25

#: The ranks that have given a group up, and the notice of one of them.
Quitters = tuple[list[int], bytes] | None


class Moving:
    """The `Mover` of one engine.

    Attributes:
        settled: Requests that have ended and whose futures are to be told.
        given_up: Returns which ranks have given the group up, and the notice of one of them, where memory tells of it.
        deferred: What is to be done as soon as the lock is free, by the thread that has held it.
    """

    __slots__ = (
        *("_dispatcher", "_failure_state", "_fetching", "_names", "_peers", "deferred", "given_up", "look_at"),
        *("may_have_news", "settled"),
    )

    def __init__(
        self,
        config: EngineConfig,
        peers: Peers,
        dispatcher: Dispatcher,
        fetching: Fetching,
        failure_state: FailureState,
    ) -> None:
        self.settled: list[Request] = []
        self.given_up: Callable[[], Quitters] = _nothing
        self.deferred: list[Callable[[], object]] = []
        self._names, self._peers, self._dispatcher = config.names, peers, dispatcher
        self._fetching, self._failure_state = fetching, failure_state
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
            self._dispatcher.mark_silent_dead()
        self._dispatcher.give_up_silent()
        said = self.given_up()
        if said is not None:
            for peer in said[0]:
                self._dispatcher.peer_gave_up(peer, read_notice(said[1]), self._dispatcher.peer_is_dying)

    def without_lock(self) -> None:
        """Copy offered messages from their senders' memory. The owner of the progress lock calls, without the lock."""
        if self._fetching:
            self._fetching.run(self._fetched)

    def _fetched(self, arrival: Arrival[Message], receive: Message, copied: bool) -> None:
        """Learn that a message has been copied, which is none if its sender has given up meanwhile. The lock is held.

        A sender that times out may write to its array immediately; it has said before that it gives the group up.
        """
        source, inbox = arrival.source, self._dispatcher.inbox
        connection = self._peers[source].connection
        if copied and connection is not None and not connection.in_memory:
            connection.receive()
        said = self.given_up() if copied else None
        if said is not None and source in said[0]:
            error = read_notice(said[1])
            self._dispatcher.peer_gave_up(source, error, self._dispatcher.peer_died)
            self._failure_state.fail_request(receive, error)
        elif copied and self._failure_state.failing:
            self._failure_state.strand(receive)
        else:
            inbox.fetched(arrival, receive, copied)

    def reach(self, rank: int | None) -> None:
        """Connect to the peer that a receive is waiting for, so that its death is noticed."""
        self._peers.reach(rank)

    def has_news(self) -> bool:
        """Tell whether futures or the communicator are to be told something without the lock."""
        return bool(self.settled or self.deferred) or self._failure_state.has_news

    def settle(self) -> None:
        """Tell futures, and the communicator of a failure."""
        while self.deferred:
            self._do_next()
        while self.settled:
            try:
                request = self.settled.pop(0)
            except IndexError:
                break
            request.settle()
        self._failure_state.tell()

    def broken(self, lock: threading.Lock, error: BaseException) -> None:
        """End the group after an error that belongs to no operation, which a thread that works for others has met.

        An interrupt has left things half-changed. The thread that was interrupted gives the group up, and says why, as
        soon as it has left the call; only if it does not, this does.
        """
        if not self._failure_state.closed:
            sleep(_GIVING_UP_S)
        with lock:
            self._failure_state.fail(DistBackendError(f"messages cannot be moved any more: {error!r}"))
        self.settle()

    def _do_next(self) -> None:
        try:
            deed = self.deferred.pop(0)
        except IndexError:
            return
        deed()

    def describe(self, rank: int | None) -> str:
        """Return what a rank is called."""
        return "any rank" if rank is None else f"rank {self._names[rank]}"


def _nothing() -> None:
    """Say that no rank has given the group up."""
