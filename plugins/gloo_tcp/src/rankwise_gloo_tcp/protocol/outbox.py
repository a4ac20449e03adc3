"""What one rank sends: with its payload while the window has room, else by an offer that the receiver asks for."""

from __future__ import annotations

from itertools import count

from rankwise.backends import MAX_TAG, too_long
from rankwise.errors import DistError, ProtocolError
from rankwise_gloo_tcp.protocol.dtypes import Dtypes
from rankwise_gloo_tcp.protocol.flow import Window
from rankwise_gloo_tcp.protocol.frames import READABLE, UNWANTED, Header, Kind
from rankwise_gloo_tcp.protocol.message import FrameSender, Message

_IDENTS = 1 << 32


class Outbox:
    """All that one rank of one group sends to others.

    Args:
        rank: This rank.
        names: The global rank of each rank.
        sender: What carries the frames.
        dtypes: The group's dtypes.
    """

    __slots__ = ("_dtypes", "_given_up", "_idents", "_names", "_rank", "_sender", "offered", "windows")

    def __init__(self, rank: int, names: tuple[int, ...], sender: FrameSender, dtypes: Dtypes) -> None:
        self._rank, self._names, self._sender, self._dtypes = rank, names, sender, dtypes
        self.windows = [Window() for _ in names]
        self._idents = count(1)
        #: The sends whose end the receiver has to tell, by receiver and number.
        self.offered: dict[tuple[int, int], Message] = {}
        #: Whether the group has been given up: peers that do not know it yet may still ask for messages.
        self._given_up = False

    def send(self, request: Message, to: int, prefix: bytes = b"") -> None:
        """Begin to send a message, with something in front of it where it belongs to a collective."""
        nbytes = len(request.buffer) + len(prefix)
        if self._dtypes.unusual:
            self._introduce(to, request.dtype)
        if nbytes <= self._sender.unasked_nbytes(to, request.tag > MAX_TAG) and self._has_room(to, nbytes):
            self.windows[to].spend(nbytes)
            header = Header(Kind.MESSAGE, 0, request.tag, nbytes, 0, request.dtype)
            self._sender.emit(to, header, request.buffer, request, prefix)
            return
        if prefix:
            request.buffer = memoryview(prefix + bytes(request.buffer))
        self.offer(request, self.register(request, to), to, nbytes)

    def outstanding(self) -> list[Message]:
        """Return the sends that have been offered and have not ended."""
        return list(self.offered.values())

    def offered_to(self) -> set[int]:
        """Return the ranks that have not taken all that was offered to them."""
        return {to for to, _ in self.offered}

    # ------------------------------------------------------------------ what the receiver tells

    def requested(self, source: int, header: Header) -> None:
        """Send the bytes of an offered message.

        Raises:
            ProtocolError: It was not offered.
        """
        if self._given_up:
            return
        request = self.offered.get((source, header.ident))
        if request is None or len(request.buffer) != header.length:
            raise ProtocolError("a message was asked for that was not offered")
        del self.offered[source, header.ident]
        answer = Header(Kind.PAYLOAD, 0, 0, header.length, header.ident)
        self._sender.emit(source, answer, request.buffer, request)

    def received(self, source: int, header: Header) -> None:
        """End the send of an offered message that was read from this process's memory."""
        self._end(source, header, None)

    def refused(self, source: int, header: Header) -> None:
        """End the send of an offered message that does not fit its receive, or that no rank will receive."""
        request = self.offered.get((source, header.ident))
        if request is None:
            return  # given up meanwhile
        error: DistError | None = None
        if not header.flags & UNWANTED:
            me = self._names[self._rank]
            error = too_long(len(request.buffer), me, request.tag, header.length)
        self._end(source, header, error)

    def credited(self, source: int, header: Header) -> None:
        """Widen a window, as receives have taken so much.

        Raises:
            ProtocolError: So much was not sent.
        """
        self.windows[source].credit(header.length)

    # ------------------------------------------------------------------ ends

    def needs(self, peer: int) -> bool:
        """Tell whether a send waits for a peer."""
        return any(to == peer for to, _ in self.offered)

    def left(self, peer: int, gone: DistError) -> None:
        """End sends to a peer that has left, and receives nothing any more."""
        for key in [key for key in self.offered if key[0] == peer]:
            self.offered.pop(key).end(gone)

    def clear(self) -> list[Message]:
        """Give the group up: forget everything, and return the sends that have not ended."""
        requests = self.outstanding()
        self.offered.clear()
        self._given_up = True
        return requests

    # ------------------------------------------------------------------ offers

    def _has_room(self, to: int, nbytes: int) -> bool:
        if self.windows[to].fits(nbytes):
            return True
        self._sender.refresh(to)
        return self.windows[to].fits(nbytes)

    def register(self, request: Message, to: int) -> int:
        """Count a message among those whose end the receiver has to tell, and return its number, which is never 0."""
        ident = next(self._idents) % _IDENTS or next(self._idents) % _IDENTS
        self.offered[to, ident] = request
        return ident

    def offer(self, request: Message, ident: int, to: int, nbytes: int) -> None:
        """Announce a message that is registered."""
        address = self._sender.address(to, request)
        flags = READABLE if address else 0
        offer = Header(Kind.OFFER, flags, request.tag, nbytes, ident, request.dtype, address)
        if not self._sender.emit(to, offer):  # the peer's good-bye was among what has come
            del self.offered[to, ident]
            self._sender.fail_request(request, to)

    def _introduce(self, to: int, mark: int) -> None:
        name = self._dtypes.introduction(to, mark)
        if name:
            self._sender.emit(to, Header(Kind.DTYPE, length=len(name), dtype=mark), memoryview(name))

    def _end(self, source: int, header: Header, error: DistError | None) -> None:
        request = self.offered.pop((source, header.ident), None)
        if request is not None:
            request.end(error)
