"""The connections of one `TCPStore`: each thread that is in a call has one to itself."""

from __future__ import annotations

import math
import os
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from rankwise.errors import DistError, DistNetworkError, DistStoreError
from rankwise.stores import Deadline, cause, held, start_thread
from rankwise_network.doors import need
from rankwise_stores.tcp.connection import Attempt, Connection, connect
from rankwise_stores.tcp.guard import Keys
from rankwise_stores.tcp.zeromq import url

if TYPE_CHECKING:
    from rankwise_stores.tcp.accepting import Listener
    from rankwise_stores.tcp.server import StoreServer

#: What ZeroMQ opens at most: for a context with a server or a first connection, and for each further connection. If it
#: cannot, it ends the whole process, or gives no reason.
_CONTEXT_DESCRIPTORS, _CONNECTION_DESCRIPTORS = 16, 8


class Pool:
    """Connections to one server, a ZeroMQ context for them, and the server itself where this process has it.

    ZeroMQ's sockets belong to one thread at a time. A call takes an idle connection or opens another, and gives it
    back when it has gone well, so that there are as many as there were calls at the same time: mostly one.

    Args:
        store: The name of the store, for messages.
        addresses: Where the server is.
        port: Its port.
        keys: What both ends prove themselves by; None for loopback.
        listener: For the process that has the server: where it listens.
        patient: Whether to wait for a server where nobody listens yet.

    Attributes:
        heard_at: When the server has last answered anything, in time or not, by the monotonic clock.
    """

    def __init__(
        self,
        store: str,
        addresses: Sequence[str],
        port: int,
        keys: Keys | None,
        listener: Listener | None = None,
        patient: bool = True,
    ) -> None:
        # Loaded now, as there may be no free descriptor for that later.
        import msgpack  # noqa: F401
        import zmq

        self._store, self._keys, self._pid, self._patient = store, keys, os.getpid(), patient
        self._endpoints = [url(address, port) for address in addresses]
        self._lock = threading.Lock()
        self._idle: list[Connection] = []
        self._begun: list[Attempt] = []
        #: Which thread has been lent what.
        self._lenders: list[tuple[int, list[Connection]]] = []
        self._closed = False
        #: What has been lent, or is still being made, and is not needed any more but for one.
        self._parting: list[list[Connection]] = []
        self.heard_at = -math.inf
        self._identity: bytes | None = None
        self._server: StoreServer | None = None
        with self._explained():
            need(_CONTEXT_DESCRIPTORS)
            self._context: Any = zmq.Context()
            if listener is not None:
                from rankwise_stores.tcp.server import StoreServer  # only here: one rank of a job has it

                try:
                    self._server = StoreServer(self._context, listener, keys)
                except BaseException:
                    self._context.destroy(0)
                    raise

    @property
    def identity(self) -> bytes | None:
        """What tells the server from all others; None before it has been reached."""
        return self._identity if self._server is None else self._server.identity

    @contextmanager
    def connection(self, deadline: Deadline) -> Iterator[Connection]:
        """Lend a connection for one request.

        Raises:
            DistNetworkError: There is no server, or not any more.
            DistTimeoutError: There was none by the deadline.
            DistStoreError: The store was closed meanwhile.
        """
        lent: list[Connection] = []
        lender = threading.get_ident(), lent
        self._lenders.append(lender)
        try:
            with self._explained():
                try:
                    self._take(deadline, lent)
                    yield lent[0]
                    self._give_back(lent)
                except BaseException:
                    # What follows, such as that an item is given back, comes after what was sent if it goes the same
                    # way.
                    if lent and lent[0].whole:
                        self._give_back(lent)
                    else:
                        self._drop(lent)
                    raise
        finally:
            self._lenders.remove(lender)

    @contextmanager
    def _explained(self) -> Iterator[None]:
        """Have what ZeroMQ and the system refuse raised as an error of ours that says why."""
        import zmq

        try:
            yield
        except zmq.ContextTerminated as error:
            raise self._is_closed() from error
        except (DistError, TimeoutError):  # a time-out of ours is an OSError too
            raise
        except (zmq.ZMQError, OSError) as error:
            raise DistNetworkError(f"{self._store}: {cause(error)}") from error

    def let_go(self) -> None:
        """Close all connections but one, if they are in use as soon as they are given back.

        A beginning needs several at a time, what follows one.
        """
        with self._lock:
            extra = self._idle[1:]
            del self._idle[1:]
            self._parting = [lent for _, lent in self._lenders]
        for connection in extra:
            connection.close()

    def close(self) -> None:
        """Close the connections, stop the server, and give back all threads and descriptors; again does nothing."""
        if os.getpid() != self._pid:
            return
        with self._lock:
            if self._closed:
                return
            self._closed = True
            idle = [*self._idle, *(attempt.connection for attempt in self._begun)]
            self._idle, self._begun = [], []
        # A call that an interrupt has broken off may still be on its way out, as long as somebody holds its traceback.
        me = threading.get_ident()
        idle += [connection for thread, lent in self._lenders if thread == me for connection in lent]
        if self._server is not None and threading.current_thread() is self._server.thread:
            # The garbage collector may come here in any thread, but this one cannot wait for itself.
            start_thread(threading.Thread(target=self._end, args=(idle,), name="rankwise store end"))
        else:
            self._end(idle)

    def _end(self, idle: list[Connection]) -> None:
        for connection in idle:
            connection.close()
        if self._server is not None:
            self._server.stop()
        # Breaks off what other threads are waiting for, and returns when they have closed their sockets.
        self._context.term()

    def _take(self, deadline: Deadline, lent: list[Connection]) -> None:
        """Put a connection into `lent`: wherever an interrupt comes, it is either there or among the idle ones."""
        with self._lock:
            if self._closed:
                raise self._is_closed()
            if self._idle:
                lent[:] = self._idle[-1:]  # no call before the next step, so that no handler runs
                del self._idle[-1:]
                return
        with held:  # a socket that nobody knows of would keep the context from ending
            self._open(deadline, lent)

    def _open(self, deadline: Deadline, lent: list[Connection]) -> None:
        """Put a new connection into `lent`."""
        with self._lock:
            begun = self._begun[-1:]
            del self._begun[-1:]
        need(_CONNECTION_DESCRIPTORS)
        if self._server is not None:
            lent.append(Connection(self._context, self._store))
            return
        try:
            connection, self._identity = connect(
                *(self._context, self._store, self._endpoints, self._keys, self._identity, deadline, begun),
                patient=self._patient,
            )
            lent.append(connection)
        finally:
            self._leave(begun)

    def _leave(self, begun: list[Attempt]) -> None:
        with self._lock:
            if not self._closed:
                self._begun += begun
                return
        for attempt in begun:
            attempt.connection.close()

    def _give_back(self, lent: list[Connection]) -> None:
        with self._lock:
            self.heard_at = max(self.heard_at, *(connection.heard_at for connection in lent))
            is_parting = any(parting is lent for parting in self._parting)
            if not (self._closed or (is_parting and (len(self._parting) > 1 or self._idle))):
                self._idle += lent  # as in `_take`
                del lent[:]
        self._drop(lent)

    def _drop(self, lent: list[Connection]) -> None:
        with self._lock:
            self._parting = [parting for parting in self._parting if parting is not lent]
        for connection in lent:
            connection.close()

    def _is_closed(self) -> DistStoreError:
        return DistStoreError(f"{self._store}: the store has been closed")
