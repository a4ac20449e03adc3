"""What an engine takes over of messages that their callers began themselves, through the pipes, and cannot end."""

from __future__ import annotations

from rankwise.backends import Array, as_bytes
from rankwise_gloo_tcp.engine.engine import Engine
from rankwise_gloo_tcp.engine.request import Request
from rankwise_gloo_tcp.protocol.frames import Header, Kind
from rankwise_gloo_tcp.protocol.matching import Arrival
from rankwise_gloo_tcp.transport.pipe import Pipe

__all__ = ["TakingOver"]


class TakingOver:
    """The help that compiled messages of one engine ask for."""

    def __init__(self, engine: Engine) -> None:
        self._engine, self._lock, self._mail = engine, engine.lock, engine.mail

    # ------------------------------------------------------------------ messages that stand half-way in a pipe

    def go_on_sending(self, array: Array, to: int, tag: int, sent: int) -> Request:
        """Send the rest of a message whose beginning lies in a pipe; the lock is held."""
        request = Request(self._engine, as_bytes(array), to, tag)
        self._pipe(to).go_on_with(request.buffer[sent:], request)
        return request

    def go_on_receiving(self, array: Array, source: int, tag: int, length: int, filled: int) -> Request:
        """Receive the rest of a message whose beginning has come through a pipe; the lock is held."""
        request = Request(self._engine, as_bytes(array), source, tag)
        incoming = self._mail.inbox.take_in(source, Header(Kind.MESSAGE, 0, tag, length), request)
        self._pipe(source).go_on_filling(incoming, filled, length)
        return request

    def taken(self, source: int, nbytes: int) -> None:
        """Hear that messages of so many bytes went from their pipe straight into receives."""
        with self._lock:
            self._mail.inbox.taken_at_once(source, nbytes, in_step=False)

    # ------------------------------------------------------------------ messages that are offered

    def register_offer(self, array: Array, to: int, tag: int) -> tuple[Request, int]:
        """Return the request and the number of a message that its caller offers next; 0 if it has ended already."""
        request = Request(self._engine, as_bytes(array), to, tag, self._mail.dtypes.mark(array.dtype))
        with self._lock:
            if self._engine.refused(request, to):
                return request, 0
            return request, self._mail.outbox.register(request, to)

    def offer(self, request: Request, ident: int, to: int) -> None:
        """Offer a message that could not be offered by its caller."""
        with self._lock:
            if not self._engine.refused(request, to):
                self._mail.outbox.offer(request, ident, to, len(request.buffer))
        self._engine.settle()

    def ask_for(self, array: Array, source: int, tag: int, length: int, ident: int, dtype: int) -> Request:
        """Ask for an offered message that its receiver could not read from the sender's memory."""
        request = Request(self._engine, as_bytes(array), source, tag, dtype)
        with self._lock:
            if not self._engine.refused(request):
                header = Header(Kind.OFFER, 0, tag, length, ident, dtype)
                self._mail.inbox.ask_for(Arrival(source, header), request)
        self._engine.settle()
        return request

    def answer(self, source: int, ident: int) -> None:
        """Tell a peer that what it has offered has been read."""
        with self._lock:
            self._mail.reply(source, Header(Kind.RECEIPT, ident=ident))
        self._engine.settle()

    def _pipe(self, peer: int) -> Pipe:
        pipe = self._engine.peers[peer].connection
        assert isinstance(pipe, Pipe)
        return pipe
