"""What inbox and outbox need of a message that is being sent or received, and of whatever carries frames."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple, Protocol

from rankwise_gloo_tcp.protocol.frames import Header
from rankwise_gloo_tcp.protocol.matching import Arrival


class Message(Protocol):
    """A send or a receive.

    Attributes:
        buffer: The caller's memory.
        peer: The other's group rank; None for a receive from anyone.
        tag: The tag.
        dtype: The mark of the dtype; 0 where any will do.
        nbytes: How many bytes a receive has got.
    """

    buffer: memoryview
    peer: int | None
    tag: int
    dtype: int
    nbytes: int

    @property
    def done(self) -> bool:
        """Whether it has ended."""

    def end(self, error: BaseException | None = None, source: int | None = None) -> None:
        """End it; only the first ending counts."""


class Destination(NamedTuple):
    """What to do with the payload of a frame: where it goes (None: nowhere), what happens when it is there, and whose
    it is."""

    target: memoryview | None
    whole: Callable[[], None]
    request: Message | None = None


class FrameSender(Protocol):
    """What carries frames to the peers, and knows what is special about the way to each."""

    def emit(
        self,
        to: int,
        header: Header,
        payload: memoryview | None = None,
        request: Message | None = None,
        prefix: bytes = b"",
    ) -> bool:
        """Send a frame, behind those before it; end the request when its last byte has left.

        The prefix goes before the payload, as part of it. Where the peer is gone, end the request, and return false.
        """

    def reply(self, to: int, header: Header) -> bool:
        """Send a frame about something that has come from a peer; false if the peer is gone."""

    def give_credit(self, to: int, nbytes: int, in_step: bool) -> None:
        """Tell a peer that receives have taken so much; `in_step` if the last of it belonged to a collective."""

    def refresh(self, to: int) -> None:
        """Take in what has come from a peer, as there may be credit among it."""

    def unasked_nbytes(self, to: int, in_step: bool) -> int:
        """Return the length up to which a message travels unasked; `in_step` if it belongs to a collective."""

    def address(self, to: int, request: Message) -> int:
        """Return where the peer can read a message in this process's memory, or 0."""

    def fetch(self, arrival: Arrival[Message], receive: Message) -> bool:
        """Begin to copy an offered message from its sender's memory; false where that cannot be done."""

    def fail_request(self, request: Message, source: int) -> None:
        """End a request that needs a peer which is gone."""


def nothing() -> None:
    """Do nothing."""
