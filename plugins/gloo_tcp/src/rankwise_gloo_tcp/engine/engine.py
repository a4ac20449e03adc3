"""The engine of one group on one rank: here its parts are made and joined, and here its messages begin.

`Loop` knows descriptors. `ProgressLock` decides which thread moves messages, `ProgressThread` does when no caller
waits, `Moving` is what there is to move. `Peers` and their channels carry frames, `Dispatcher` knows what frames mean,
inbox and outbox hold the messages. `FailureState` is the group's failure. One lock guards them all.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Sequence
from math import inf
from socket import socket
from time import monotonic
from typing import TYPE_CHECKING, ClassVar

from rankwise.backends import MAX_TAG, Array, Status, anew, as_bytes
from rankwise.errors import DistBackendError, DistError, PeerDiedError
from rankwise_gloo_tcp.engine.config import EngineConfig
from rankwise_gloo_tcp.engine.dispatcher import Dispatcher, Processes
from rankwise_gloo_tcp.engine.failure import FailureState
from rankwise_gloo_tcp.engine.idle_poller import LONGEST_TICK_S, TICK_S, idle_poller
from rankwise_gloo_tcp.engine.loop import Loop
from rankwise_gloo_tcp.engine.moving import Moving, Quitters
from rankwise_gloo_tcp.engine.peers import LISTEN_S, Fetching, Peers
from rankwise_gloo_tcp.engine.progress import ProgressLock
from rankwise_gloo_tcp.engine.progress_thread import BackgroundWork, ProgressThread
from rankwise_gloo_tcp.engine.request import Request
from rankwise_gloo_tcp.engine.shutdown import Shutdown
from rankwise_gloo_tcp.protocol.frames import Header, Kind, notice
from rankwise_gloo_tcp.state import EngineLock, EngineState
from rankwise_gloo_tcp.transport.rings import Sleep

if TYPE_CHECKING:
    from rankwise_gloo_tcp.transport.channel import Channel

#: How long a rank that has failed stays to tell its peers.
_LINGER_S = 5.0


class Engine(EngineState):
    """All that one rank of one group does over connections.

    Attributes:
        on_abort: Called with the first failure, with the lock held, to tell those whom no connection reaches.
        on_news: Called by the idle poller after it has taken something in.
        leaving: Whether this rank leaves, so that nothing new is begun.
        plain: Whether compiled parts may move what goes between hosts: it is not sealed, nor encrypted elsewhere.
    """

    __slots__ = (
        "__weakref__",
        *("_closed", "_inbox", "_mark", "_outbox", "_processes", "_shutdown", "background", "dispatcher"),
        *("drive", "failure_state", "fetching", "lock", "look", "loop", "moving", "names", "on_abort"),
        *("on_news", "peers", "plain", "progress_lock", "progress_thread", "rank", "settle", "size", "timeout_s"),
    )

    #: Of those that a pair may have it uses one by itself.
    connections: ClassVar[int] = 1

    def __init__(self, config: EngineConfig) -> None:
        self.rank, self.size, self.names = config.rank, config.size, config.names
        self.timeout_s, encryption = config.timeout_s, config.encryption
        self.plain = (encryption is None or encryption.compiled) and not config.guards_payloads
        self.on_abort: Callable[[DistError], object] | None = None
        self.on_news: Callable[[], object] = _nothing
        self.leaving = self._closed = False

        self.lock = EngineLock()
        self.loop, self.failure_state = Loop(), FailureState(config.on_failure)
        self.peers = Peers(config, self.loop, self.failure_state)
        self.fetching = Fetching(self.lock, self.peers.all, self.failure_state)
        self.dispatcher = Dispatcher(config, self.peers, self.failure_state, self.fetching)
        self.moving = Moving(config, self.peers, self.dispatcher, self.fetching, self.failure_state)
        self.progress_lock = ProgressLock(self.lock, self.loop, self.moving)
        self.background = BackgroundWork(self.progress_lock, self.peers, self.dispatcher.inbox)
        self.progress_thread = ProgressThread(self.progress_lock, self.loop, self.background, self.moving)
        self.progress_lock.on_release = self.progress_thread.released
        self._processes = Processes(self.loop, self.peers, self.dispatcher)
        self._shutdown = Shutdown(config, self.progress_lock, self.peers, self.dispatcher, self.failure_state)
        # Bound once: a small message must not pay for the parts.
        self.drive, self.look, self.settle = self.progress_lock.drive, self.progress_lock.look, self.moving.settle
        self._inbox, self._outbox, self._mark = (
            self.dispatcher.inbox,
            self.dispatcher.outbox,
            self.dispatcher.dtypes.mark,
        )
        if config.cards:
            self.peers.on_disarmed = idle_poller.wake
            idle_poller.add(self)

    # ------------------------------------------------------------------ set-up

    def listen(self, sock: socket, near: bool) -> None:
        """Take in incoming connections from a listening socket, which the engine closes in the end."""
        with self.lock:
            self.peers.acceptor.listen(sock, near)

    def watch_processes(self, descriptors: dict[int, int], parting: Callable[[int], tuple[bool, str] | None]) -> None:
        """Notice the end of peers' processes.

        Args:
            descriptors: A descriptor of the process of each peer, which the engine releases.
            parting: Returns of a peer that has gone in good order whether its process ended, and by which exception.
        """
        with self.lock:
            self._processes.watch(descriptors, parting)

    def attend(self, ranks: Sequence[int]) -> None:
        """Notice the end of processes that are waited for, of a group where not each rank watches all."""
        with self.lock:
            if not self._closed:
                self._processes.attend(ranks)

    def use_pipes(self, pipes: Sequence[Channel], sleep: Sleep, given_up: Callable[[], Quitters]) -> None:
        """Talk to peers of this machine through shared memory.

        Args:
            pipes: The connections.
            sleep: Where this rank says that it sleeps.
            given_up: Returns who has given the group up, and the notice of one of them.
        """
        with self.lock:
            self.peers.use_pipes(pipes, sleep)
            if self.peers.all_in_memory:
                self.peers.acceptor.stop_listening()
            self.moving.given_up = given_up

    # ------------------------------------------------------------------ sending

    def send(self, array: Array, to: int, tag: int, waited: bool = False) -> Request:
        """Begin to send; `waited` says that the caller waits for the end of it next."""
        dtype = self._mark(array.dtype) if tag <= MAX_TAG else 0
        return self.send_bytes(as_bytes(array), to, tag, waited, dtype=dtype)

    def send_bytes(
        self, data: memoryview, to: int, tag: int, waited: bool = False, prefix: bytes = b"", dtype: int = 0
    ) -> Request:
        """Begin to send memory; for collectives also with something in front of it."""
        request = Request(self, data, to, tag, dtype)
        # A caller that waits may as well write while the peer reads; one that does not had better leave it to the peer.
        request.streamed = waited and self.progress_lock.spin_policy.spin_s > 0
        with self.lock:
            if not self.refused(request, to):
                if to == self.rank:
                    self._inbox.send_to_self(request)
                else:
                    self._outbox.send(request, to, prefix)
            if tag <= MAX_TAG and not waited:
                self.issued(request)
        self.settle()
        return request

    # ------------------------------------------------------------------ receiving

    def receive(self, array: Array, source: int | None, tag: int, waited: bool = False) -> Request:
        """Begin to receive; `waited` says that the caller waits for the end of it next."""
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
                self.issued(request)
            if self.fetching:
                self.loop.hurry()
        self.settle()
        return request

    def probe(self, source: int | None, tag: int) -> Status | None:
        """Return what the message is that a receive would meet, once what has come is taken in.

        Raises:
            DistError: A receive would fail.
        """
        self.look()
        trial = Request(self, memoryview(bytearray()), source, tag)
        with self.lock:
            arrival = self._inbox.matching.first(source, tag)
            if arrival is None and not self.refused(trial) and not self._inbox.receive(trial):
                self._give_up_on_gone(trial, source)
                self._inbox.withdraw(trial)
        self.settle()
        if trial.error is not None:
            raise anew(trial.error)
        return None if arrival is None else self._inbox.status(arrival)

    def end_collective(self) -> None:
        """Pay the credit that is owed, as this rank has all that it needs of a collective."""
        if self.dispatcher.owing:
            with self.lock:
                self.dispatcher.pay_credit()
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
        if self.failure_state.failure is not None:
            request.end(self.failure_state.failure)
        elif self.leaving:
            request.end(DistBackendError("the group has been destroyed"))
        elif to is not None and to != self.rank and self._is_gone(to):
            self.dispatcher.fail_request(request, to)
        else:
            return False
        return True

    def _give_up_on_gone(self, request: Request, source: int | None) -> None:
        """End a receive whose source is gone: its `GOODBYE` came after all that it has sent."""
        if source is None:
            self.dispatcher.end_hopeless()
        elif self._is_gone(source):
            self._inbox.withdraw(request)
            self.dispatcher.fail_request(request, source)

    def _is_gone(self, peer: int) -> bool:
        if not self.peers.all:
            return False
        found = self.peers.all[peer]
        return found.gone is not None or found.dead is not None

    # ------------------------------------------------------------------ what requests tell

    def ended(self, request: Request) -> None:
        """Note that a request has ended; the lock is held."""
        if request.watched:
            self.progress_lock.pending -= 1
        if request.has_promise():
            self.moving.settled.append(request)
        if self.progress_lock.followers:
            self.progress_lock.changed.notify_all()

    def promised(self, request: Request) -> None:
        """Note that the future of a request that has ended is to be told; the lock is held."""
        self.moving.settled.append(request)

    def issued(self, request: Request, now: bool = True) -> None:
        """Count a request that its caller may leave alone, or does so only later; the lock is held."""
        if not (request.done or request.watched):
            request.watched = True
            self.progress_lock.pending += 1
            self.progress_thread.wake(now)

    # ------------------------------------------------------------------ ends

    def peer_died(self, rank: int, error: DistError) -> None:
        """Handle the end of a peer's process, of which the watcher tells, with the error of what needs that peer."""
        with self.lock:
            if not self._closed:
                for peer in self.peers.of_rank(self.peers[rank]):
                    self.dispatcher.peer_is_dying(peer, error)
        self.settle()

    def broken(self, error: BaseException) -> None:
        """End the group after an error that belongs to no operation; without the lock."""
        self.moving.broken(self.lock, error)

    def troubles(self, names: Collection[int]) -> list[str]:
        """Say of which connections to these ranks, or to all, nothing comes; ranks by their names."""
        with self.lock:
            peers = [peer for peer in self.peers.all if not names or self.names[peer.rank] in names]
            # Of several connections to a rank one tells where to look.
            found = {peer.rank % self.size: text for peer in peers if (text := self.dispatcher.trouble(peer))}
            return list(found.values())

    def moved_nbytes(self) -> dict[str, int]:
        """Return how many bytes have gone and come, by way: through memory in pipes or in one copy, by sockets."""
        moved = Counter(self.peers.moved) + Counter(copy=self.fetching.moved_nbytes)
        for peer in self.peers.all:
            connection = peer.connection  # another thread may close it
            if connection is not None:
                moved[connection.way] += connection.moved_nbytes
        return {way: nbytes for way, nbytes in moved.items() if nbytes}

    def is_awaited(self) -> bool:
        """Tell whether there are requests that their callers have left alone, or receives that wait for messages."""
        with self.lock:
            return self.progress_lock.pending > 0 or self._inbox.matching.waiting()[0] > 0

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

    def fileno(self) -> int:
        """Return a descriptor that can be read once something has come; -1 where there is none."""
        return self.loop.fileno()

    def tend(self, tick_s: float, has_come: bool) -> float:
        """Take in what has come if no other thread does; see `IdleEngine`."""
        lock, peers = self.progress_lock, self.peers
        if peers.armed and not has_come:
            return inf
        if lock.owner or lock.callers:
            sleeps_long = lock.resting and monotonic() - lock.last_drive > 1.0
            return min(2 * tick_s, LONGEST_TICK_S) if sleeps_long else TICK_S
        if not has_come and not peers.dying and monotonic() - lock.last_drive < TICK_S:
            return TICK_S
        self.look()
        self.on_news()
        if peers.dying:
            return LISTEN_S
        return inf if not has_come and self._arm() else TICK_S

    def _arm(self) -> bool:
        with self.lock:
            is_free = not (self._closed or self.progress_lock.owner or self.progress_lock.callers or self.fetching)
            return is_free and self.loop.fileno() >= 0 and self.peers.arm()

    def is_tended(self) -> bool:
        """Tell whether the idle poller takes in what comes, as soon as it has come."""
        return self.peers.armed

    def abort(self, error: DistError) -> None:
        """End everything that is pending with `error`, and tell the peers.

        It never blocks, and may come from a signal handler that has interrupted the thread that holds the lock: then
        that thread does it, as soon as it lets the lock go. The lock is looked at and not tried: an interrupt just
        after it was acquired would leave it held for good.
        """
        self.moving.deferred.append(lambda: self._abort_now(error))
        if self.lock.locked():
            self.loop.wake()
        else:
            self.settle()

    def _abort_now(self, error: DistError) -> None:
        with self.lock:
            if self.failure_state.failure is None and not self._closed:
                if isinstance(error, PeerDiedError):
                    # What a rank has sent before it died is here: an operation that needs no more than that succeeds.
                    self.peers.take_in()
                self._abort(error)

    def _abort(self, error: DistError) -> None:
        self.failure_state.failure = error
        requests = [
            *self._inbox.clear(),
            *self._outbox.clear(),
            *self.fetching.requests(),
            *self.failure_state.stranded,
        ]
        self.failure_state.stranded.clear()
        text = notice(error, self.names[self.rank])
        if self.on_abort is not None:
            self.on_abort(error)
        said = Header(Kind.ABORT, length=len(text)), text
        self.peers.greeting = said
        for peer in self.peers.all:
            requests += [request for _, _, request, _ in peer.frames if request is not None]
            peer.frames.clear()
            if peer.connection is not None:
                requests += peer.connection.abort(*said)
        for request in requests:
            request.end(error)
        if not self.peers.all_sent:
            self.background.linger_until = monotonic() + _LINGER_S
            self.progress_thread.wake()
        self.progress_lock.changed.notify_all()
        self.loop.wake()

    def close(self) -> None:
        """Deliver what was sent, send `GOODBYE`, and give everything back.

        Raises:
            DistTimeoutError: Peers have not taken all in time; it says what was left.
        """
        with self.lock:
            if self.leaving:
                return
            self.leaving = True
        until = monotonic() + (min(self.timeout_s, _LINGER_S) if self.failure_state.failure else self.timeout_s)
        self.progress_lock.acquire_for_good()
        try:
            if self.failure_state.failure is None:
                self._shutdown.deliver(until, self.settle)
            self._shutdown.flush(until, self.settle)
            self._shutdown.mention_unreceived()
        finally:
            self._give_back()
            self.progress_lock.release()

    def _give_back(self) -> None:
        idle_poller.remove(self)
        with self.lock:
            self._closed = self.progress_lock.closed = True
            self.progress_thread.close()
        self.loop.wake()
        self.progress_thread.join()
        with self.lock:
            self.peers.close()
            self._processes.close()
            for request in (*self._inbox.clear(), *self._outbox.clear(), *self.fetching.requests()):
                request.end(DistBackendError("the group has been destroyed"))
            self.loop.close()
            # What is called from here holds the communicator, which holds this: only the garbage collector would come.
            self.moving.given_up = self.on_news = _nothing
            self.failure_state.detach()
        self.settle()

    def forked(self) -> None:
        """Close the sockets, in the child of a fork, whose parent uses them."""
        for peer in self.peers.all:
            if peer.connection is not None:
                peer.connection.after_fork()
        for listener in self.peers.acceptor.listeners:
            listener.close()


def _nothing() -> None:
    """Know nothing, and do nothing."""
