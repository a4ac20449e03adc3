"""`Channel`: what the engine asks of that which carries frames to one peer and back, whatever it is made of."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

from rankwise.errors import ProtocolError
from rankwise_gloo_tcp.protocol.frames import Header
from rankwise_gloo_tcp.protocol.message import Destination, Message

if TYPE_CHECKING:
    from rankwise_gloo_tcp.transport.rings import Rings


class Channel(Protocol):
    """One end of a way to a peer. All methods but `has_news` and `has_room` are called with the engine's lock held.

    Attributes:
        peer: The peer's group rank.
        way: What it is called where somebody counts bytes: "pipe", "tcp".
        closed: Whether nothing more is sent or received.
        left: Whether the peer has sent `GOODBYE`.
        guarded: Whether each header bears a tag.
        in_memory: Whether nothing wakes this rank's poller for it: who waits asks `has_news` and `has_room`.
        ends_with_peer: Whether it brings the end of the peer's process, behind all that the peer has sent.
        credit_waits: Whether credit for a collective waits for another frame, as a frame alone costs much.
        eager_nbytes: Up to which length a message goes out unasked.
        small_nbytes: Up to which length `post` and `take` carry one.
    """

    peer: int
    way: str
    closed: bool
    left: bool
    guarded: bool
    in_memory: bool
    ends_with_peer: bool
    credit_waits: bool
    eager_nbytes: int
    small_nbytes: int

    @property
    def rings(self) -> Rings | None:
        """The memory that compiled messages read and write by themselves."""

    @property
    def came_nbytes(self) -> int:
        """How much has come."""

    @property
    def moved_nbytes(self) -> int:
        """How much has gone and come."""

    # ------------------------------------------------------------------ out

    def send(
        self, header: Header, payload: memoryview | None = None, request: Message | None = None, prefix: bytes = b""
    ) -> None:
        """Send a frame behind those that are waiting; end `request` when its last byte has left."""

    def post(self, head: bytes, data: bytes | memoryview) -> bool:
        """Send a small message without a request; false if it cannot be done now.

        Where not all of it has left, this end is not `idle`, and `end_with_rest` tells when it has.
        """

    def end_with_rest(self, request: Message) -> None:
        """End a request when what is leaving has left."""

    @property
    def idle(self) -> bool:
        """Whether everything has left."""

    @property
    def is_halfway(self) -> bool:
        """Whether something is leaving or coming of which a part has yet to."""

    def silent_s(self) -> float:
        """Return for how long the peer's machine has answered nothing; 0 if it has, or is this one."""

    def ends(self) -> tuple[tuple[str, int], tuple[str, int]]:
        """Return the address and the port of this end, and of the other, of a channel that may be silent."""

    @property
    def unconfirmed(self) -> bool:
        """Whether some of what has left may still be lost if this process ends."""

    def flush(self) -> None:
        """Send what there is room for."""

    def push(self) -> None:
        """Go on with what waits for room, without being told that there is some."""

    def has_room(self) -> bool:
        """Tell whether there is room that this end has waited for. Needs no lock."""

    # ------------------------------------------------------------------ in

    def has_news(self) -> bool:
        """Tell whether something may have come. Needs no lock."""

    def receive(self) -> None:
        """Take in what has come."""

    def take(self, head: bytes, room: memoryview) -> int | None:
        """Receive the next frame if it is a small message.

        Args:
            head: The header that it must have.
            room: Where its payload goes.

        Returns:
            The length of the payload if it was, and None if nothing has come. -1 if something else has, or if this is
            no time for it: then the message comes, or has come, the usual way.
        """

    # ------------------------------------------------------------------ the end

    def abort(self, header: Header, payload: bytes) -> list[Message]:
        """Drop what has not begun, and tell the peer; return the requests that were dropped."""

    def drop(self) -> list[Message]:
        """Forget the requests that use this channel, and return them."""

    def close(self) -> None:
        """Give everything back."""

    def after_fork(self) -> None:
        """Close what the child of a fork has of it."""


class FrameHandler(Protocol):
    """What a channel hands its frames to; all of it is called with the engine's lock held."""

    def frame(self, channel: Any, header: Header) -> Destination:
        """Take a frame."""

    def lost(self, channel: Any) -> None:
        """Note that a channel has ended."""

    def garbled(self, channel: Any, error: ProtocolError) -> None:
        """Note that what a channel brings makes no sense; nothing more is read from it."""

    def held_up(self) -> None:
        """Note that something waits for room, and is to be sent whether or not anybody waits for it."""
