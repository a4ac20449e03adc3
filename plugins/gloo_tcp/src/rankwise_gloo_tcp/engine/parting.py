"""How a rank leaves a group in good order: what it has sent reaches its peers first.

When `deliver` and `flush` have returned, every message that was issued has reached its receiver's process or machine,
and is there for a receive that comes later.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from time import monotonic

from rankwise.errors import DistTimeoutError
from rankwise_gloo_tcp.engine.fate import Fate
from rankwise_gloo_tcp.engine.mail import Mail
from rankwise_gloo_tcp.engine.peers import Peers
from rankwise_gloo_tcp.engine.seat import TICK_S, Seat
from rankwise_gloo_tcp.engine.setting import Setting
from rankwise_gloo_tcp.protocol.frames import Header, Kind

__all__ = ["Parting"]

#: How long a rank that leaves waits until its peers' machines have what it has sent, and how often it checks.
_CONFIRM_S, _GLANCE_S = 1.0, 0.001
#: How many messages the warning describes.
_SHOWN = 4


class Parting:
    """The last steps of one engine; whoever takes them has the seat."""

    def __init__(self, setting: Setting, seat: Seat, peers: Peers, mail: Mail, fate: Fate) -> None:
        self._names, self._rank = setting.names, setting.rank
        self._seat, self._peers, self._mail, self._fate = seat, peers, mail, fate

    def deliver(self, until: float, settle: Callable[[], object]) -> None:
        """Have the peers fetch what was offered to them.

        Raises:
            DistTimeoutError: Some have not in time; it says what was left.
        """
        outbox = self._mail.outbox
        with self._seat.lock:
            self._mail.inbox.closing = True
            for to in outbox.offered_to():
                self._mail.emit(to, Header(Kind.LEAVING))
        self._until(lambda: not outbox.outstanding(), until, settle)

    def flush(self, until: float, settle: Callable[[], object]) -> None:
        """Say good-bye, and wait until everything has left.

        Raises:
            DistTimeoutError: It has not in time; it says what was left.
        """
        if self._fate.failure is None:
            with self._seat.lock:
                for peer in self._peers.all:
                    if peer.connection is not None:
                        peer.connection.send(Header(Kind.GOODBYE))
        self._until(lambda: self._peers.all_sent and not any(peer.frames for peer in self._peers.all), until, settle)
        # A connection that is closed resets the peer's when that writes, and what is still on its way is lost.
        until = min(until, monotonic() + _CONFIRM_S)
        while self._fate.failure is None and self._peers.unconfirmed and monotonic() < until:
            self._seat.progress(_GLANCE_S)
            settle()

    def mention_unreceived(self) -> None:
        """Say which messages nobody has received."""
        with self._seat.lock:
            self._peers.take_in()  # some may have come that no wait has looked at
            left = self._mail.inbox.unreceived()
        if left and self._fate.failure is None:
            more = f" and {len(left) - _SHOWN} more" if len(left) > _SHOWN else ""
            told = ", ".join(left[:_SHOWN])
            me = self._names[self._rank]
            import logging  # only now: well-behaved programs leave nothing behind

            logging.getLogger("rankwise").warning(
                "rank %s has destroyed a group without having received %s%s", me, told, more
            )

    def _until(self, done: Callable[[], bool], until: float, settle: Callable[[], object]) -> None:
        while not done():
            if self._fate.failure is not None and monotonic() >= until:
                return
            left = until - monotonic()
            if left <= 0:
                raise DistTimeoutError(
                    f"timed out: the group was closed before all that was sent had left: {self._left()}"
                )
            self._seat.progress(min(left, TICK_S))
            settle()

    def _left(self) -> str:
        """Describe what has not reached its receivers."""
        waiting = Counter(
            self._names[request.peer] for request in self._mail.outbox.outstanding() if request.peer is not None
        )
        for peer in self._peers.all:
            if peer.frames or (peer.connection is not None and not peer.connection.idle):
                waiting[self._names[peer.rank]] += 1
        told = [f"{count} message{'s' * (count > 1)} to rank {name}" for name, count in sorted(waiting.items())]
        return ", ".join(told) or "nothing more"
