"""Turns frames into the bytes that go out on a connection, gathered from wherever they lie."""

from __future__ import annotations

from collections import deque
from typing import NamedTuple

from rankwise_gloo_tcp.protocol.frames import Header
from rankwise_gloo_tcp.protocol.guards import Guard, Guards
from rankwise_gloo_tcp.protocol.message import Message

__all__ = ["BAD", "GOOD", "Writer"]

#: The byte behind each payload: it is all there, or was filled up because the group was given up meanwhile.
GOOD, BAD = b"\x01", b"\x00"
_FILLER = memoryview(bytes(1 << 16))
#: How much of a payload is given to the system in one go. While it takes that in it does not hear what the other end
#: confirms, and sends nothing behind what had room there: a MiB in one go takes twice as long.
_TURN_NBYTES = 256 << 10


class _Frame(NamedTuple):
    header: Header
    payload: memoryview | None
    request: Message | None
    prefix: bytes


class Writer:
    """The outgoing half of a connection.

    The channel sends `parts` and tells by `sent` how many bytes have left, as long as `next` finds some.
    """

    def __init__(self, guards: Guards | None) -> None:
        self.guard = Guard(guards.mine) if guards else None
        self._seals = bool(guards and guards.payloads)
        self._queue: deque[_Frame] = deque()
        #: What is to leave next, in this order.
        self.parts: list[bytes | memoryview] = []
        self._request: Message | None = None
        self._has_payload = False
        #: How many more pieces of filler take the place of a payload that was given up.
        self._filler = 0
        self._spoilt = False

    def put(self, header: Header, payload: memoryview | None, request: Message | None, prefix: bytes) -> None:
        """Line a frame up; the request ends when its last byte has left."""
        self._queue.append(_Frame(header, payload, request, prefix))

    def whole(self, head: bytes, data: bytes | memoryview) -> bytes:
        """Return a frame with a little data, whole, as it is to leave now; nothing while others are before it.

        `left` is told what has not left of it.
        """
        if self.parts or self._queue or self._filler or self._spoilt:
            return b""
        if self.guard is not None:
            frame = head + self.guard.tag(head) + data
        else:
            frame = head + data
        if data:
            frame += self._trailer(GOOD, data) if self._seals else GOOD
        return frame

    def left(self, frame: bytes, nbytes: int) -> None:
        """Take what is left of a whole frame of which so many bytes have gone."""
        self._has_payload = False  # none of it is the caller's memory
        self.parts = [memoryview(frame)[nbytes:]]

    def end_with_rest(self, request: Message) -> None:
        """End a request when what is in `parts` has left."""
        self._request = request

    @property
    def idle(self) -> bool:
        """Whether everything has left."""
        return not (self.parts or self._queue or self._filler or self._spoilt)

    def next(self) -> bool:
        """See to it that `parts` holds what is to leave next; false if nothing is."""
        if self.parts:
            return True
        if self._filler:
            self._filler -= 1
            self.parts = [_FILLER]
        elif self._spoilt:
            self._spoilt = False
            self.parts = [self._trailer(BAD)]
        elif self._queue:
            self._begin(*self._queue.popleft())
        else:
            return False
        return True

    def turn(self) -> list[bytes | memoryview]:
        """Return what goes out of `parts` in one go."""
        for index, part in enumerate(self.parts):
            if len(part) > _TURN_NBYTES:
                return [*self.parts[:index], memoryview(part)[:_TURN_NBYTES]]
        return self.parts

    def sent(self, nbytes: int) -> None:
        """Drop so many bytes of `parts`, which have left."""
        parts = self.parts
        while parts and nbytes >= len(parts[0]):
            nbytes -= len(parts.pop(0))
        if nbytes:
            parts[0] = memoryview(parts[0])[nbytes:]
        if not parts and self._request is not None:
            request, self._request = self._request, None
            request.end()

    def abort(self) -> list[Message]:
        """Drop what has not begun, fill up what has; return the requests that were dropped.

        The filler takes the place of the caller's memory, which is the caller's again; the peer learns that what it
        got is of no use.
        """
        dropped = self.drop()
        if len(self.parts) > 1 and self._has_payload:
            *head, pending, _ = self.parts
            self._filler, rest = divmod(len(pending), len(_FILLER))
            self._has_payload, self._spoilt = False, True
            self.parts = [*head, _FILLER[:rest]] if rest else head
        return dropped

    def drop(self) -> list[Message]:
        """Forget the frames that have not begun, and return the requests that have not ended."""
        dropped = [frame.request for frame in self._queue if frame.request is not None]
        if self._request is not None:
            dropped.append(self._request)
        self._queue.clear()
        self._request = None
        return dropped

    def _begin(self, header: Header, payload: memoryview | None, request: Message | None, prefix: bytes) -> None:
        head = header.pack()
        if self.guard is not None:
            head += self.guard.tag(head)
        trailer = self._trailer(GOOD, prefix, payload or b"") if header.payload_nbytes else b""
        self._request = request
        self._has_payload = payload is not None and len(payload) > 0
        if payload is not None and len(payload):
            self.parts = [head + prefix, payload, trailer]
        else:
            self.parts = [head + prefix + trailer]

    def _trailer(self, verdict: bytes, *payload: bytes | memoryview) -> bytes:
        """Return what follows a payload; the seal of a bad one tells of nothing else."""
        if not self._seals:
            return verdict
        assert self.guard is not None
        seal = self.guard.seal()
        for part in payload:
            seal.update(part)
        seal.update(verdict)
        return verdict + seal.digest()
