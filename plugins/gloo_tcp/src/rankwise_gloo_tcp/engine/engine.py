"""The engine of one group on one rank: here its parts are made and joined, and here its messages begin.

`Loop` knows descriptors. `Seat` decides who moves things, `Helper` does when nobody waits, `Moving` is what there is to
move. `Peers` and their connections carry frames, `Mail` knows what frames mean, inbox and outbox hold the messages.
`Fate` is the group's failure. One lock guards them all.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from socket import socket
from time import monotonic

from rankwise.backends import MAX_TAG, Array, as_bytes
from rankwise.errors import DistBackendError, DistError, PeerDiedError
from rankwise_gloo_tcp.engine.duty import Duty
from rankwise_gloo_tcp.engine.fate import Fate
from rankwise_gloo_tcp.engine.fetching import Fetching
from rankwise_gloo_tcp.engine.helper import Helper
from rankwise_gloo_tcp.engine.loop import Loop
from rankwise_gloo_tcp.engine.mail import Mail
from rankwise_gloo_tcp.engine.moving import Moving, Quitters
from rankwise_gloo_tcp.engine.parting import Parting
from rankwise_gloo_tcp.engine.peers import Peers
from rankwise_gloo_tcp.engine.processes import Processes
from rankwise_gloo_tcp.engine.request import Request
from rankwise_gloo_tcp.engine.seat import Seat
from rankwise_gloo_tcp.engine.setting import Setting
from rankwise_gloo_tcp.engine.steward import steward
from rankwise_gloo_tcp.protocol.frames import Header, Kind, notice
from rankwise_gloo_tcp.transport.connection import Connection
from rankwise_gloo_tcp.transport.pipe import Pipe
from rankwise_gloo_tcp.transport.rings import Sleep

__all__ = ["Engine"]

#: How long a rank that has failed stays to tell its peers.
_LINGER_S = 5.0


class Engine:
    """All that one rank of one group does over connections.

    Attributes:
        on_abort: Called with the first failure, with the lock held, to tell those whom no connection reaches.
        leaving: Whether this rank leaves, so that nothing new is begun.
    """

    #: Compiled messages look at what is in a slot without a look-up.
    __slots__ = ("__dict__", "__weakref__", "leaving")

    def __init__(self, setting: Setting) -> None:
        self.rank, self.size, self.names = setting.rank, len(setting.names), setting.names
        self.timeout_s = setting.timeout_s
        self.on_abort: Callable[[DistError], object] | None = None
        self.leaving = self._closed = False

        self.lock = threading.Lock()
        self.loop, self.fate = Loop(), Fate(setting.on_failure)
        self.peers = Peers(setting, self.loop, self.fate)
        self.fetching = Fetching(self.lock, self.peers.all, self.fate)
        self.mail = Mail(setting, self.peers, self.fate, self.fetching)
        self.moving = Moving(setting, self.peers, self.mail, self.fetching, self.fate)
        self.seat = Seat(self.lock, self.loop, self.moving)
        self.duty = Duty(self.peers, self.mail.inbox)
        self.helper = Helper(self.seat, self.loop, self.duty, self.moving)
        self.seat.on_leaving = self.helper.left_alone
        self._processes = Processes(self.loop, self.peers, self.mail)
        self._parting = Parting(setting, self.seat, self.peers, self.mail, self.fate)
        # Bound once: a small message must not pay for the parts.
        self.drive, self.look, self.settle = self.seat.drive, self.seat.look, self.moving.settle
        self._inbox, self._outbox, self._mark = self.mail.inbox, self.mail.outbox, self.mail.dtypes.mark
        if setting.cards:
            steward.add(self)

    # ------------------------------------------------------------------ set-up

    def listen(self, sock: socket, near: bool) -> None:
        """Take in guests from a listening socket, which the engine closes in the end."""
        with self.lock:
            self.peers.doorway.listen(sock, near)

    def watch_processes(self, descriptors: dict[int, int], has_left: Callable[[int], bool]) -> None:
        """Notice the end of peers' processes.

        Args:
            descriptors: A descriptor of the process of each peer, which the engine closes.
            has_left: Tells whether a peer has gone in good order.
        """
        with self.lock:
            self._processes.watch(descriptors, has_left)

    def use_pipes(self, pipes: list[Pipe], sleep: Sleep, given_up: Callable[[], Quitters]) -> None:
        """Talk to peers of this machine through shared memory.

        Args:
            pipes: The connections.
            sleep: Where this rank says that it sleeps.
            given_up: Returns who has given the group up, and the notice of the first.
        """
        with self.lock:
            self.peers.use_pipes(pipes, sleep)
            self.moving.given_up = given_up

    # ------------------------------------------------------------------ sending

    def send(self, array: Array, to: int, tag: int, waited: bool = False) -> Request:
        """Begin to send; `waited` says that the caller waits for the end at once."""
        dtype = self._mark(array.dtype) if tag <= MAX_TAG else 0
        return self.send_bytes(as_bytes(array), to, tag, waited, dtype=dtype)

    def send_bytes(
        self, data: memoryview, to: int, tag: int, waited: bool = False, prefix: bytes = b"", dtype: int = 0
    ) -> Request:
        """Begin to send memory; for collectives also with something in front of it."""
        request = Request(self, data, to, tag, dtype)
        # A caller that waits may as well write while the peer reads; one that does not had better leave it to the peer.
        request.streamed = waited and self.seat.patience.spin_s > 0
        with self.lock:
            if not self.refused(request, to):
                if to == self.rank:
                    self._inbox.send_to_self(request)
                else:
                    self._outbox.send(request, to, prefix)
            if tag <= MAX_TAG and not waited:
                self._issued(request)
        self.settle()
        return request

    # ------------------------------------------------------------------ receiving

    def receive(self, array: Array, source: int | None, tag: int, waited: bool = False) -> Request:
        """Begin to receive; `waited` says that the caller waits for the end at once."""
        dtype = self._mark(array.dtype) if tag <= MAX_TAG else 0
        return self.receive_bytes(as_bytes(array), source, tag, waited, dtype)

    def receive_bytes(
        self, room: memoryview, source: int | None, tag: int, waited: bool = False, dtype: int = 0
    ) -> Request:
        """Begin to receive into memory."""
        request = Request(self, room, source, tag, dtype)
        with self.lock:
            if not self.refused(request) and not self._inbox.receive(request):
                self._give_up_on_gone(request, source)
            if tag <= MAX_TAG and not waited:
                self._issued(request)
            if self.fetching:
                self.loop.hurry()
        self.settle()
        return request

    def end_collective(self) -> None:
        """Hear that this rank has all that it needs of a collective, so that credit may go alone."""
        if self.mail.owing:
            with self.lock:
                self.mail.pay_credit()
            self.settle()

    def withdraw(self, request: Request) -> bool:
        """Take back a receive that no message has met."""
        with self.lock:
            done = self._inbox.withdraw(request)
            if done:
                request.end(DistBackendError("the receive was withdrawn"))
        self.settle()
        return done

    def refused(self, request: Request, to: int | None = None) -> bool:
        """End a request that cannot succeed any more; what a rank has sent before it left can still be received."""
        if self.fate.failure is not None:
            request.end(self.fate.failure)
        elif self.leaving:
            request.end(DistBackendError("the group has been destroyed"))
        elif to is not None and to != self.rank and self._is_gone(to):
            self.mail.bereave(request, to)
        else:
            return False
        return True

    def _give_up_on_gone(self, request: Request, source: int | None) -> None:
        """End a receive whose source is gone: its last word came after all that it has sent."""
        if source is None:
            self.mail.end_hopeless()
        elif self._is_gone(source):
            self._inbox.withdraw(request)
            self.mail.bereave(request, source)

    def _is_gone(self, peer: int) -> bool:
        return bool(self.peers.all) and (self.peers[peer].gone is not None or self.peers[peer].dead is not None)

    # ------------------------------------------------------------------ what requests tell

    def ended(self, request: Request) -> None:
        """Note that a request has ended; the lock is held."""
        if request.watched:
            self.duty.pending -= 1
        if request.has_promise():
            self.moving.settled.append(request)
        if self.seat.followers:
            self.seat.changed.notify_all()

    def promised(self, request: Request) -> None:
        """Note that the future of a request that has ended is to be told; the lock is held."""
        self.moving.settled.append(request)

    def _issued(self, request: Request) -> None:
        """Count a request that its caller may leave alone."""
        if not request.done:
            request.watched = True
            self.duty.pending += 1
            self.helper.need()

    # ------------------------------------------------------------------ ends

    def peer_died(self, rank: int, error: DistError) -> None:
        """Hear from elsewhere that a peer's process has ended, and with which error what needs it is to fail."""
        with self.lock:
            if not self._closed:
                self.mail.peer_is_dying(self.peers[rank], error)
        self.settle()

    def moved_nbytes(self) -> dict[str, int]:
        """Return how many bytes have gone and come, by way: through memory in pipes or in one copy, by sockets."""
        pipes = sum(pipe.moved_nbytes for pipe in self.peers.pipes)
        near = all(peer.near for peer in self.peers.all if type(peer.connection) is Connection)
        sockets = {"unix" if near else "tcp": self.loop.moved_nbytes}
        ways = {"pipe": pipes, "copy": self.fetching.moved_nbytes, **sockets}
        return {way: nbytes for way, nbytes in ways.items() if nbytes}

    def queued(self) -> dict[str, int]:
        """Return how many messages wait: to be sent, for their receivers, to come, and for a receive."""
        with self.lock:
            connections = [peer.connection for peer in self.peers.all if peer.connection is not None]
            return {
                "sending": sum(not connection.idle for connection in connections),
                "offered": len(self._outbox.outstanding()),
                "receives": self._inbox.matching.waiting()[0],
                "unreceived": self._inbox.matching.waiting()[1],
            }

    def is_idle(self, since: float) -> bool:
        """Tell whether nobody has moved messages since a time."""
        return self.seat.holder == 0 and self.seat.callers == 0 and self.seat.last_drive < since

    def abort(self, error: DistError) -> None:
        """End everything that is pending with `error`, and tell the peers.

        It never blocks, and may come from a signal handler that has interrupted whoever holds the lock: then it is done
        by that thread, as soon as it lets the lock go.
        """
        self.moving.deferred.append(lambda: self._abort_now(error))
        if self.lock.acquire(blocking=False):
            self.lock.release()
            self.settle()
        else:
            self.loop.wake()

    def _abort_now(self, error: DistError) -> None:
        with self.lock:
            if self.fate.failure is None and not self._closed:
                if isinstance(error, PeerDiedError):
                    # What a rank has sent before it died is here: an operation that needs no more than that succeeds.
                    self.peers.take_in()
                self._abort(error)

    def _abort(self, error: DistError) -> None:
        self.fate.failure = error
        requests = [*self._inbox.clear(), *self._outbox.clear(), *self.fetching.requests(), *self.fate.orphans]
        self.fate.orphans.clear()
        text = notice(error, self.names[self.rank])
        if self.on_abort is not None:
            self.on_abort(error)
        for peer in self.peers.all:
            requests += [request for _, _, request, _ in peer.frames if request is not None]
            peer.frames.clear()
            if peer.connection is not None:
                requests += peer.connection.abort(Header(Kind.ABORT, length=len(text)), text)
        for request in requests:
            request.end(error)
        if not self.peers.all_sent:
            self.duty.linger_until = monotonic() + _LINGER_S
            self.helper.need()
        self.seat.changed.notify_all()
        self.loop.wake()

    def close(self) -> None:
        """Deliver what was sent, say good-bye, and give everything back.

        Raises:
            DistTimeoutError: Peers have not taken all in time; it says what was left.
        """
        with self.lock:
            if self.leaving:
                return
            self.leaving = True
        until = monotonic() + (min(self.timeout_s, _LINGER_S) if self.fate.failure else self.timeout_s)
        self.seat.take_for_the_end()
        try:
            if self.fate.failure is None:
                self._parting.deliver(until, self.settle)
            self._parting.flush(until, self.settle)
            self._parting.mention_unreceived()
        finally:
            self._give_back()
            self.seat.leave()

    def _give_back(self) -> None:
        steward.remove(self)
        with self.lock:
            self._closed = self.seat.closed = True
            self.helper.close()
        self.loop.wake()
        self.helper.join()
        with self.lock:
            self.peers.close()
            self._processes.close()
            for request in (*self._inbox.clear(), *self._outbox.clear(), *self.fetching.requests()):
                request.end(DistBackendError("the group has been destroyed"))
            self.loop.close()
            # What is called from here holds the communicator, which holds this: only the garbage collector would come.
            self.moving.given_up = _nothing
            self.fate.close()
        self.settle()

    def forked(self) -> None:
        """Close the sockets, in the child of a fork, whose parent uses them."""
        for peer in self.peers.all:
            if type(peer.connection) is Connection:
                peer.connection.sock.close()
        for listener in self.peers.doorway.listeners:
            listener.close()


def _nothing() -> None:
    """Say that no rank has given the group up."""
