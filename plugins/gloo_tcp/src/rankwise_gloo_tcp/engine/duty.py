"""What is to be moved although nobody waits for it."""

from __future__ import annotations

from time import monotonic

from rankwise_gloo_tcp.engine.peers import Peers
from rankwise_gloo_tcp.protocol.inbox import Inbox

__all__ = ["Duty"]


class Duty:
    """The open duties of one engine. All is called with the engine's lock held.

    Attributes:
        pending: How many requests there are that their callers have left alone.
        linger_until: Until when a rank that has failed stays to tell its peers.
    """

    def __init__(self, peers: Peers, inbox: Inbox) -> None:
        self.pending = 0
        self.linger_until = 0.0
        self._peers, self._inbox = peers, inbox

    def calls(self) -> bool:
        """Tell whether there is something to do."""
        if self.pending > 0 or self._inbox.adopting > 0:
            return True
        if self._peers.held_up:
            self._peers.held_up = not self._peers.all_sent
            return self._peers.held_up
        return self.linger_until > monotonic() and not self._peers.all_sent

    def is_unheard_of(self) -> bool:
        """Tell whether there may be something to do that no request has announced."""
        return self._peers.held_up or self._inbox.adopting > 0
