"""Turns the bytes that come in on a connection into frames, whose payloads go straight to where they belong."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from rankwise.errors import ProtocolError
from rankwise_gloo_tcp.protocol.frames import HEADER_NBYTES, TAG_NBYTES, Header, parse
from rankwise_gloo_tcp.protocol.guards import CHANGED, SEAL_NBYTES, Guard, Guards
from rankwise_gloo_tcp.protocol.message import Destination, Message, nothing
from rankwise_gloo_tcp.protocol.writer import BAD, GOOD
from rankwise_gloo_tcp.state import ReaderState
from rankwise_network.secret import same

if TYPE_CHECKING:
    from rankwise.backends import blake2b

_INBOX_NBYTES = 64 << 10
#: From here on the rest of a payload is received in place, not through the inbox.
_DIRECT_NBYTES = 8 << 10
#: What is behind such a payload comes along, but little of it, as it has to be copied.
_BEHIND_NBYTES = 256
_NOWHERE = memoryview(bytearray())


class Reader(ReaderState):
    """The incoming half of a connection.

    The channel puts bytes into `room` and tells by `received` how many came, however they are cut.

    Args:
        frame: Takes a header, and tells where its payload goes.
        guards: The keys of the connection, if it is guarded.

    Attributes:
        inbox: Where the bytes go that do not go straight to where they belong.
        guard: What checks the headers, if they are guarded.
        seals: Whether payloads are sealed.
    """

    def __init__(self, frame: Callable[[Header], Destination], guards: Guards | None) -> None:
        self._frame = frame
        self.guard = Guard(guards.theirs) if guards else None
        self._unit = HEADER_NBYTES + (TAG_NBYTES if guards else 0)
        self.seals = bool(guards and guards.payloads)
        #: How much follows a payload, and what has been made of one that is coming in, if payloads are guarded.
        self._trailer_nbytes = 1 + SEAL_NBYTES * self.seals
        self._seal: blake2b | None = None
        self.inbox = bytearray(_INBOX_NBYTES)
        self._view = memoryview(self.inbox)
        self.start = self.end = 0
        #: What is left of the payload that is coming in, where it goes, and how much of it is passed over.
        self._rest = _NOWHERE
        self._skip = 0
        self.whole: Callable[[], None] | None = None
        self._receiver: Message | None = None
        #: A receive whose payload was filled up: it ends with the notice that follows.
        self._doomed: Message | None = None
        self._trailing = self._direct = False

    @property
    def missing_nbytes(self) -> int:
        """How many bytes of a payload are still to come to where they belong."""
        return len(self._rest)

    def expect(self, nbytes: int) -> int:
        """Return how long a frame with so little payload is, which goes to the beginning of `inbox`.

        It is 0 if the next byte that comes does not begin a frame, or frames are sealed: these come the usual way.
        """
        if self.whole is not None or self.start != self.end or self.seals:
            return 0
        return self._unit + nbytes + (nbytes > 0)

    def expected(self, nbytes: int, head: bytes, room: memoryview) -> bool:
        """Take so many bytes, which now stand at the beginning of `inbox`, as `received` does.

        Args:
            nbytes: How many have come.
            head: The header of the message that is expected.
            room: Where its payload goes, which fills it.

        Returns:
            Whether it was that message, and all of it: then `frame` is not called. Else it has gone the usual way.

        Raises:
            ProtocolError: They make no sense.
        """
        inbox, begin = self.inbox, self._unit
        end = begin + len(room)
        if nbytes == end + (end > begin) and inbox.startswith(head) and (end == begin or inbox[end] == GOOD[0]):
            if self.guard is not None and not same(self.guard.tag(head), self._view[HEADER_NBYTES:begin]):
                raise ProtocolError(CHANGED)
            room[:] = self._view[begin:end]
            return True
        self._direct = False
        self.start, self.end = 0, nbytes
        self._digest()
        return False

    def room(self) -> tuple[memoryview, ...]:
        """Return where the next bytes go, in this order."""
        self._direct = len(self._rest) >= _DIRECT_NBYTES
        if self._direct:  # the inbox is empty
            return self._rest, self._view[:_BEHIND_NBYTES]
        if self.start == self.end:
            self.start = self.end = 0
        elif len(self.inbox) - self.end < _DIRECT_NBYTES:
            rest = bytes(self._view[self.start : self.end])
            self._view[: len(rest)] = rest
            self.start, self.end = 0, len(rest)
        return (self._view[self.end :],)

    def received(self, nbytes: int) -> None:
        """Take so many bytes, which now stand in what `room` has returned last.

        Raises:
            ProtocolError: They make no sense.
        """
        if self._direct:
            rest = self._rest
            if self._seal is not None:
                self._seal.update(rest[:nbytes])
            self._rest = rest[nbytes:]
            self.start, self.end = 0, max(0, nbytes - len(rest))
            self._settle()
        else:
            self.end += nbytes
        self._digest()

    def divert(self) -> None:
        """Write no more into anybody's memory."""
        if self.whole is not None:
            self._skip += len(self._rest)
            self._rest, self.whole, self._receiver = _NOWHERE, nothing, None
            if not self._trailing:
                self._settle()

    def drop(self) -> list[Message]:
        """Forget the requests that something is coming in for, and return them."""
        dropped = [request for request in (self._receiver, self._doomed) if request is not None]
        self._receiver = self._doomed = None
        return dropped

    # ------------------------------------------------------------------ taking apart

    def _digest(self) -> None:
        """Take what the inbox holds."""
        while True:
            held = self.end - self.start
            if self.whole is None:
                if held < self._unit:
                    return
                self._begin()
            elif self._trailing:
                if held < self._trailer_nbytes:
                    return
                self._take_trailer()
            elif held:
                self._copy()
            else:
                return

    def _begin(self) -> None:
        header = parse(self.inbox, self.start)
        if self.guard is not None:
            at = self.start + HEADER_NBYTES
            self.guard.check(bytes(self._view[self.start : at]), self._view[at : at + TAG_NBYTES])
        self.start += self._unit
        incoming = self._frame(header)
        length = header.payload_nbytes
        if incoming.target is None:
            self._skip = length
        else:
            self._rest = incoming.target
        self.whole, self._receiver = incoming.whole, incoming.request
        if not length:
            self._finish()
        elif self.seals:
            assert self.guard is not None
            self._seal = self.guard.seal()

    def _copy(self) -> None:
        """Move bytes of the payload from the inbox to where they belong."""
        count = min(self._skip or len(self._rest), self.end - self.start)
        piece = self._view[self.start : self.start + count]
        if self._skip:
            self._skip -= count
        else:
            self._rest[:count] = piece
            self._rest = self._rest[count:]
        if self._seal is not None:
            self._seal.update(piece)
        self.start += count
        self._settle()

    def _settle(self) -> None:
        """If the payload is whole, wait for the byte behind it."""
        if not self._skip and not len(self._rest) and self.whole is not None:
            self._trailing = True

    def _take_trailer(self) -> None:
        self._trailing = False
        verdict, at = self.inbox[self.start], self.start + 1
        self.start += self._trailer_nbytes
        if verdict not in GOOD + BAD:
            raise ProtocolError("what follows a frame's data makes no sense")
        good = verdict == GOOD[0]
        if self._seal is not None:
            self._check_seal(GOOD if good else BAD, self._view[at : self.start])
        if not good:
            self._doomed, self.whole = self._receiver, nothing
        self._finish()

    def _check_seal(self, verdict: bytes, said: memoryview) -> None:
        assert self.guard is not None
        seal, self._seal = self._seal if verdict == GOOD else self.guard.seal(), None
        assert seal is not None
        seal.update(verdict)
        if not same(seal.digest(), said):
            raise ProtocolError("a frame's data was changed on its way")

    def _finish(self) -> None:
        whole, self.whole, self._rest, self._receiver = self.whole, None, _NOWHERE, None
        if whole is not None:
            whole()
