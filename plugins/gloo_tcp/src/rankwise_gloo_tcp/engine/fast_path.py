"""Small messages that the caller's own thread sends or receives without a request, and what compiled code asks for.

Each method tries, and where anything is unusual says that it has done nothing: then the message takes the slow path,
and both are the same bytes.
"""

from __future__ import annotations

import threading
from time import monotonic
from typing import TYPE_CHECKING, cast

from rankwise.backends import MAX_TAG, RAW, Array, as_bytes, only_waited
from rankwise_gloo_tcp.engine.engine import Engine
from rankwise_gloo_tcp.engine.request import Request
from rankwise_gloo_tcp.protocol.flow import MESSAGE_NBYTES, WINDOW_NBYTES
from rankwise_gloo_tcp.protocol.frames import Header, Kind, message_head
from rankwise_gloo_tcp.protocol.matching import Arrival
from rankwise_gloo_tcp.transport.pipe import Pipe

if TYPE_CHECKING:
    from rankwise_gloo_tcp.transport.channel import Channel
    from rankwise_gloo_tcp.transport.connection import Connection

#: A look at memory costs less than to ask for the time.
_LOOKS = 20


class FastPath:
    """The fast path of one engine's messages."""

    __slots__ = (
        *("_dispatcher", "_dtypes", "_engine", "_failure_state", "_inbox", "_is_clear", "_lock", "_moving"),
        *("_peers", "_progress_lock", "_progress_thread", "_rank", "_windows"),
    )

    def __init__(self, engine: Engine) -> None:
        self._engine, self._rank = engine, engine.rank
        self._lock, self._failure_state, self._progress_lock, self._moving = (
            engine.lock,
            engine.failure_state,
            engine.progress_lock,
            engine.moving,
        )
        self._peers, self._dispatcher, self._progress_thread = engine.peers, engine.dispatcher, engine.progress_thread
        self._inbox, self._dtypes = engine.dispatcher.inbox, engine.dispatcher.dtypes
        self._windows, self._is_clear = engine.dispatcher.outbox.windows, engine.dispatcher.inbox.matching.is_clear

    def send(self, array: Array, to: int, tag: int) -> Request | bool:
        """Send a small message; false if it must take the slow path, or a request if not all of it has left."""
        if to == self._rank:
            return False
        dtype = self._dtypes.mark(array.dtype)
        if self._dtypes.unusual:
            return False
        return self.post(message_head(tag, array.nbytes, dtype), as_bytes(array), to, tag)

    def receive(self, array: Array, source: int, tag: int) -> bool:
        """Receive a small message that is there, or comes while this looks for it; else it must take the slow path."""
        if source == self._rank:
            return False
        return self.take(message_head(tag, array.nbytes, self._dtypes.mark(array.dtype)), as_bytes(array), source, tag)

    def post(self, head: bytes, data: bytes | memoryview, to: int, tag: int) -> Request | bool:
        """Send a small message.

        Returns:
            True if everything was sent. If only part was, a request to wait for, because the process may exit as soon
            as the call returns. False if it must take the slow path.
        """
        rest = None
        nbytes, window, peer = len(data), self._windows[to], self._peers.all[to]
        with self._lock:
            connection = peer.connection
            state = self._failure_state
            if connection is None or nbytes > connection.small_nbytes or peer.gone is not None:
                return False
            if state.failing or state.failure is not None or self._engine.leaving or not window.claim(nbytes):
                return False
            if peer.owed_nbytes:
                self._dispatcher.pay(peer)
            if not connection.post(head, data):
                window.forget(nbytes)
                return False
            if self._peers.held_up and not connection.idle:
                rest = Request(self._engine, memoryview(data), to, tag)
                connection.end_with_rest(rest)
        if self._moving.deferred:
            self._engine.settle()
        return rest or True

    def take(self, head: bytes, room: memoryview, source: int, tag: int) -> bool:
        """Receive a message of just this header that is there, or comes while this looks for it.

        Where it returns false, nothing is lost: the message takes the slow path.

        Args:
            head: The header.
            room: Where the message goes, which fills it.
            source: The sender.
            tag: The tag.
        """
        connection, progress_lock = self._peers.all[source].connection, self._progress_lock
        if connection is None or len(room) > connection.small_nbytes or not progress_lock.spin_policy.spin_s:
            return False
        with self._lock:
            state = self._failure_state
            if progress_lock.owner or state.failing or state.failure is not None or self._engine.leaving:
                return False
            taken = self._take_from(connection, head, room, tag)
            if taken is None:
                progress_lock.acquire_free()
        if taken is None:
            try:
                taken = self._look_at(connection, head, room, tag)
            finally:
                progress_lock.release()
        if self._moving.settled or self._moving.deferred:
            self._engine.settle()
        return taken

    def _look_at(self, connection: Channel, head: bytes, room: memoryview, tag: int) -> bool:
        """Look for a message for as long as a wait spins before it sleeps."""
        lock, spin_policy, has_news = self._lock, self._progress_lock.spin_policy, connection.has_news
        began, taken = monotonic(), None
        until = began + spin_policy.first_s
        while taken is None and (now := monotonic()) < until:
            for _ in range(_LOOKS):
                if has_news():
                    with lock:
                        taken = self._take_from(connection, head, room, tag)
                    break
        self._progress_lock.on_wait(int((now - began) * 1e9), tag <= MAX_TAG)
        if taken:
            spin_policy.learn(now - began, False)
        return bool(taken)

    def _take_from(self, connection: Channel, head: bytes, room: memoryview, tag: int) -> bool | None:
        # Other threads may take in messages too, with the lock alone: then the one that is looked for may be here.
        if connection.closed or not self._is_clear(connection.peer, tag):
            return False
        nbytes = connection.take(head, room)
        if nbytes is None:
            return None
        if nbytes >= 0:
            self._inbox.taken_directly(connection.peer, nbytes, tag > MAX_TAG)
            if self._peers.held_up:  # by the credit for it
                self._progress_thread.released()
        return nbytes >= 0


class EngineHooks:
    """What compiled parts look at of one engine, and its locks."""

    __slots__ = (
        *("_dispatcher", "_engine", "_lock", "deferred", "engine", "failure_state", "lines"),
        *("lock", "main_thread", "mark", "pay", "progress_lock", "receives", "refresh", "settle", "stand_up"),
    )

    most_tag, window_nbytes, message_nbytes = MAX_TAG, WINDOW_NBYTES, MESSAGE_NBYTES

    def __init__(self, engine: Engine) -> None:
        self._engine, self._lock, self._dispatcher = engine, engine.lock, engine.dispatcher
        matching = self._dispatcher.inbox.matching
        self.engine, self.failure_state, self.progress_lock = engine, engine.failure_state, engine.progress_lock
        self.deferred = engine.moving.deferred
        self.receives, self.lines = matching.waiting_receives, matching.lines
        self.lock, self.main_thread = engine.lock, threading.main_thread().ident or 0
        self.settle, self.stand_up = engine.settle, engine.progress_lock.release
        self.refresh, self.pay = engine.dispatcher.refresh, engine.end_collective
        self.mark = self._dispatcher.dtypes.mark

    def claim(self, array: Array, source: int | None, tag: int, dtype: int) -> tuple[int, int] | None:
        """Receive a message that has been taken in before; return its sender and how many bytes it has.

        None if it takes the slow path.
        """
        with self._lock:
            claimed = self._dispatcher.inbox.claim(as_bytes(array), source, tag, dtype)
        if self.deferred:
            self.settle()
        return claimed


class MessageHooks(EngineHooks):
    """What compiled messages of one engine look at, and ask for where they cannot go on by themselves.

    `rankwise_native._native.MessageHooks` says which of it.
    """

    __slots__ = ("arrivals", "asleep", "bell", "descriptor", "numbers", "offered")

    raw, request_type, only_waited = RAW, Request, staticmethod(only_waited)

    def __init__(self, engine: Engine) -> None:
        super().__init__(engine)
        matching, self.offered = self._dispatcher.inbox.matching, self._dispatcher.outbox.offered
        self.arrivals, self.numbers = matching.waiting_arrivals, matching.numbers
        self.descriptor, self.bell, self.asleep = engine.loop.fileno(), engine.loop.bell_read, engine.peers.sleep_at

    def met(self, request: Request, source: int | None) -> None:
        """End a request whose message compiled code has taken in, or a receipt for it, where others are to be told."""
        request.succeed(source=source)

    def strand(self, request: Request) -> None:
        """End a request with the group, as an interrupt has come to it while compiled code alone knew of it."""
        with self._lock:
            self.failure_state.strand(request)

    def issued(self, request: Request) -> None:
        """Have the engine's thread, which does not tick, go on with a long message that its caller leaves alone."""
        with self._lock:
            self._engine.issued(request, now=False)

    def copied(self, nbytes: int) -> None:
        """Count what was copied from another process's memory."""
        self._engine.fetching.moved_nbytes += nbytes

    # ------------------------------------------------------------------ messages that stand half-way in a pipe

    def go_on_sending(self, array: Array, to: int, tag: int, sent: int) -> Request:
        """Send the rest of a message whose beginning lies in a pipe; the lock is held."""
        request = Request(self._engine, as_bytes(array), to, tag)
        self._pipe(to).go_on_with(request.buffer[sent:], request)
        return request

    def go_on_receiving(self, array: Array, source: int, tag: int, length: int, filled: int) -> Request:
        """Receive the rest of a message whose beginning has come through a pipe; the lock is held."""
        request = Request(self._engine, as_bytes(array), source, tag)
        incoming = self._dispatcher.inbox.take_in(source, Header(Kind.MESSAGE, 0, tag, length), request)
        self._pipe(source).go_on_filling(incoming, filled, length)
        return request

    def taken(self, source: int, nbytes: int) -> None:
        """Count messages of so many bytes that went from their pipe straight into receives."""
        with self._lock:
            self._dispatcher.inbox.taken_directly(source, nbytes, in_step=False)

    # ------------------------------------------------------------------ messages that are offered

    def register_offer(self, array: Array, to: int, tag: int, dtype: int) -> tuple[Request, int]:
        """Return the request and the number of a message that its caller offers next; 0 if it has ended already."""
        request = Request(self._engine, as_bytes(array), to, tag, dtype)
        with self._lock:
            if self._engine.refused(request, to):
                return request, 0
            return request, self._dispatcher.outbox.register(request, to)

    def offer(self, request: Request, ident: int, to: int) -> None:
        """Offer a message that could not be offered by its caller."""
        with self._lock:
            if not self._engine.refused(request, to):
                self._dispatcher.outbox.offer(request, ident, to, len(request.buffer))
        self._engine.settle()

    def ask_for(self, array: Array, source: int, tag: int, offer: tuple[int, int, int]) -> Request:
        """Ask for an offered message that its receiver could not read from the sender's memory.

        Args:
            array: Where it goes.
            source: The sender.
            tag: The tag.
            offer: Its length, its number and the mark of its dtype.
        """
        request = Request(self._engine, as_bytes(array), source, tag, offer[-1])
        self.ask_on(request, source, offer)
        return request

    def ask_on(self, request: Request, source: int, offer: tuple[int, int, int]) -> None:
        """Ask for an offered message that a receive has met, and that could not be read from the sender's memory."""
        length, ident, dtype = offer
        with self._lock:
            if not self._engine.refused(request):
                header = Header(Kind.OFFER, 0, request.tag, length, ident, dtype)
                self._dispatcher.inbox.ask_for(Arrival(source, header), request)
        self._engine.settle()

    def answer(self, source: int, ident: int) -> None:
        """Tell a peer that what it has offered has been read."""
        with self._lock:
            self._dispatcher.reply(source, Header(Kind.RECEIPT, ident=ident))
        self._engine.settle()

    def _pipe(self, peer: int) -> Pipe:
        # Compiled messages know pipes alone.
        return cast(Pipe, self._engine.peers[peer].connection)


class WireHooks(EngineHooks):
    """What a compiled wire of one engine looks at, and asks for where it cannot go on by itself, with the lock held.

    `rankwise_native._native.WireHooks` says which of it.
    """

    __slots__ = ("descriptor",)

    def __init__(self, engine: Engine) -> None:
        super().__init__(engine)
        self.descriptor = engine.loop.fileno()

    def keep(self, to: int, rest: bytes, tag: int) -> Request | None:
        """Send the rest of a frame; return what to wait for, as the process may exit as soon as the call returns."""
        connection = self._connection(to)
        connection.keep(rest)
        if connection.idle:
            return None
        request = Request(self._engine, memoryview(rest), to, tag)
        connection.end_with_rest(request)
        return request

    def feed(self, source: int, data: bytes) -> None:
        """Take in what was read and not used."""
        self._connection(source).feed(data)

    def taken(self, source: int, nbytes: int) -> None:
        """Count messages of so many bytes that went from their socket straight into receives."""
        self._dispatcher.inbox.taken_directly(source, nbytes, in_step=True)

    def _connection(self, peer: int) -> Connection:
        # A compiled wire serves sockets alone.
        return cast("Connection", self._engine.peers[peer].connection)
