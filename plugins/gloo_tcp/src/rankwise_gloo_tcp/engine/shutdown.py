"""How a group ends on one rank in good order.

When `deliver` and `flush` of a `Shutdown` have returned, every message that was issued has reached its receiver's
process or machine, and is there for a receive that comes later.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from time import monotonic
from typing import TYPE_CHECKING

from rankwise.backends import heed
from rankwise.errors import DistTimeoutError
from rankwise_gloo_tcp.engine.config import EngineConfig
from rankwise_gloo_tcp.engine.dispatcher import Dispatcher
from rankwise_gloo_tcp.engine.failure import FailureState
from rankwise_gloo_tcp.engine.peers import Peers
from rankwise_gloo_tcp.engine.progress import TICK_S, ProgressLock
from rankwise_gloo_tcp.protocol.frames import Header, Kind

if TYPE_CHECKING:
    from rankwise_gloo_tcp.transport.channel import Channel

#: How long a rank that leaves waits until its peers' machines have what it has sent, and how often it checks.
_CONFIRM_S, _GLANCE_S = 1.0, 0.001
#: How many messages the warning describes.
_SHOWN = 4


class Shutdown:
    """The last steps of one engine, taken by the owner of its progress lock."""

    __slots__ = ("_dispatcher", "_failure_state", "_names", "_peers", "_progress_lock", "_rank")

    def __init__(
        self,
        config: EngineConfig,
        progress_lock: ProgressLock,
        peers: Peers,
        dispatcher: Dispatcher,
        failure_state: FailureState,
    ) -> None:
        self._names, self._rank = config.names, config.rank
        self._progress_lock, self._peers = progress_lock, peers
        self._dispatcher, self._failure_state = dispatcher, failure_state

    def deliver(self, until: float, settle: Callable[[], object]) -> None:
        """Have the peers fetch what was offered to them.

        Raises:
            DistTimeoutError: Some have not in time; it says what was left.
        """
        outbox = self._dispatcher.outbox
        with self._progress_lock.lock:
            self._dispatcher.inbox.closing = True
            for to in outbox.offered_to():
                self._dispatcher.emit(to, Header(Kind.LEAVING))
        self._until(lambda: not outbox.outstanding(), until, settle)

    def flush(self, until: float, settle: Callable[[], object]) -> None:
        """Send `GOODBYE`, and wait until everything has left.

        Raises:
            DistTimeoutError: It has not in time; it says what was left.
        """
        if self._failure_state.failure is None:
            with self._progress_lock.lock:
                for peer in self._peers.all:
                    if peer.connection is not None:
                        self._say_goodbye(peer.connection)
        self._until(lambda: self._peers.all_sent and not any(peer.frames for peer in self._peers.all), until, settle)
        # A connection that is closed resets the peer's when that writes, and what is still on its way is lost.
        until = min(until, monotonic() + _CONFIRM_S)
        while self._failure_state.failure is None and self._peers.unconfirmed and monotonic() < until:
            self._progress_lock.progress(_GLANCE_S)
            settle()

    def _say_goodbye(self, connection: Channel) -> None:
        words = self._dispatcher.last_words.encode()
        if words:
            connection.send(Header(Kind.LAST_WORDS, length=len(words)), memoryview(words))
        connection.send(Header(Kind.GOODBYE, int(self._dispatcher.process_ends)))

    def mention_unreceived(self) -> None:
        """Say which messages nobody has received."""
        with self._progress_lock.lock:
            self._peers.take_in()  # some may have come that no wait has looked at
            left = self._dispatcher.inbox.unreceived()
        if left and self._failure_state.failure is None:
            more = f" and {len(left) - _SHOWN} more" if len(left) > _SHOWN else ""
            told = ", ".join(left[:_SHOWN])
            me = self._names[self._rank]
            import logging  # only now: well-behaved programs leave nothing behind

            logging.getLogger("rankwise").warning(
                "rank %s has destroyed a group without having received %s%s", me, told, more
            )

    def _until(self, done: Callable[[], bool], until: float, settle: Callable[[], object]) -> None:
        while not done():
            heed()
            if self._failure_state.failure is not None and monotonic() >= until:
                return
            left = until - monotonic()
            if left <= 0:
                raise DistTimeoutError(
                    f"timed out: the group was closed before all that was sent had left: {self._left()}"
                )
            self._progress_lock.progress(min(left, TICK_S))
            settle()

    def _left(self) -> str:
        """Describe what has not reached its receivers."""
        waiting = Counter(
            self._names[request.peer] for request in self._dispatcher.outbox.outstanding() if request.peer is not None
        )
        for peer in self._peers.all:
            if peer.frames or (peer.connection is not None and not peer.connection.idle):
                waiting[self._names[peer.rank]] += 1
        told = [f"{count} message{'s' * (count > 1)} to rank {name}" for name, count in sorted(waiting.items())]
        return ", ".join(told) or "nothing more"
