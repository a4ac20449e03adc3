"""Flow control: what may travel unasked, and how the receiver says that it has taken it.

A message travels with its payload while the bytes that the peer has not taken yet leave room for it in the window.
Otherwise it is only offered, by a frame without payload, and its bytes follow when the receiver asks for them. From
this follow the invariants that the tests hold:

1. *No message waits for another.* Whatever is sent is announced immediately, with its bytes or without. So a receive
   that is waited for always meets its message, whatever other messages, tags, sizes and orders there are.
2. *Unexpected data is bounded.* A rank keeps at most one window of data from each peer that no receive has met. Only a
   peer that leaves hands over everything, so that it need not wait for receives.
3. *Connections are always read.* Each frame that comes has a place to go: a receive, the window, or a few words.
4. *Credit cannot be missed.* Nobody waits for credit. Without it messages take the longer way, by offer and request.
5. *Credit does no harm.* For what belongs to a collective it goes right before a frame that the peer has to read, or
   when the collective has ended here. A rank that has done its part of one may end without reading more; a socket that
   is closed with something unread is reset, which discards what is still on its way from there.
"""

from __future__ import annotations

from rankwise.errors import ProtocolError
from rankwise_gloo_tcp.state import WindowState

WINDOW_NBYTES = 4 << 20
#: What a message counts for besides its bytes, as keeping it takes more than these.
MESSAGE_NBYTES = 256
#: How much the receiver takes before it gives credit: a frame for each message would cost more than a small message.
_STEP_NBYTES = WINDOW_NBYTES // 4


class Window(WindowState):
    """How much of what was sent to one peer it has not taken yet."""

    __slots__ = ()

    def __init__(self) -> None:
        self.unconfirmed = 0

    def fits(self, nbytes: int) -> bool:
        """Tell whether a message of so many bytes may travel with its payload."""
        return self.unconfirmed + nbytes + MESSAGE_NBYTES <= WINDOW_NBYTES

    def spend(self, nbytes: int) -> None:
        """Count a message that goes out with its payload."""
        self.unconfirmed += nbytes + MESSAGE_NBYTES

    def claim(self, nbytes: int) -> bool:
        """Count a message that goes out with its payload, if it may."""
        unconfirmed = self.unconfirmed + nbytes + MESSAGE_NBYTES
        if unconfirmed > WINDOW_NBYTES:
            return False
        self.unconfirmed = unconfirmed
        return True

    def forget(self, nbytes: int) -> None:
        """Count a message no more that has not gone out after all."""
        self.unconfirmed -= nbytes + MESSAGE_NBYTES

    def credit(self, nbytes: int) -> None:
        """Count what the peer says it has taken.

        Raises:
            ProtocolError: So much was not sent.
        """
        if nbytes > self.unconfirmed:
            raise ProtocolError(f"credit for {nbytes} bytes, where only {self.unconfirmed} are under way")
        self.unconfirmed -= nbytes


class Ledger:
    """What has come from one peer with its payload: how much of it is kept here, and how much credit is due."""

    __slots__ = ("_due", "_kept")

    def __init__(self) -> None:
        self._kept = self._due = 0

    def keep(self, nbytes: int) -> None:
        """Count a message that no receive has met yet.

        Raises:
            ProtocolError: The peer has sent more than its window allows.
        """
        self._kept += nbytes + MESSAGE_NBYTES
        if self._kept > WINDOW_NBYTES:
            raise ProtocolError(f"{self._kept} bytes of messages came unasked, where {WINDOW_NBYTES} are allowed")

    def release(self, nbytes: int) -> int:
        """Count a kept message that is kept no more, and return how much credit to give now."""
        self._kept -= nbytes + MESSAGE_NBYTES
        return self.take(nbytes)

    def take(self, nbytes: int) -> int:
        """Count a message that a receive has taken, and return how much credit to give now."""
        self._due += nbytes + MESSAGE_NBYTES
        if self._due < _STEP_NBYTES:
            return 0
        due, self._due = self._due, 0
        return due
