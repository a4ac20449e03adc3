"""Clients that come to a server's listening socket and do not get in.

ZeroMQ lets any number in, and gives each some seconds to prove itself. Its reports tell which connections there are,
and how much it has told each whether that has proved itself.

Where the process has no descriptor left for them ZeroMQ tries again without a pause, for ever, with a whole processor.
So clients that wait in the kernel's queue are taken by means of a descriptor kept for this, and sent away; they come
again.

ZeroMQ tries so often that it would be the first to take the descriptor that we give up for that, and we would be left
without. Therefore its number for the listening socket means an empty one meanwhile, where nobody ever waits. It goes on
trying there, and each try holds a descriptor until the system has found that nobody waits. So two are kept: one of them
is free at any moment.
"""

from __future__ import annotations

import contextlib
import errno
import os
import socket
import struct
import sys
import time
from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any

from rankwise.errors import DistNetworkError
from rankwise.stores import Deadline, cause, descriptor_limit, heed
from rankwise_network import ports
from rankwise_network.doors import PLACES
from rankwise_network.interface import at_free_port, listening
from rankwise_stores.tcp.zeromq import MONITOR_EVENT, keep_alive, url

#: A pause, as another thread of this process that needs descriptors too would also do nothing but try.
_PAUSE_S = 0.01
#: How many descriptors are kept: one for who is sent away, one that ZeroMQ may hold for a moment.
_KEPT = 2
#: How often to try to get one of them back: while ZeroMQ tries, it may hold the last one for a moment.
_TRIES = 20
#: How many of ZeroMQ's reports are read before its server is served again.
_EVENTS_A_LOOK = 256
#: What anybody gets from ZeroMQ, with some bytes for luck: its greeting. What follows answers a hello that takes
#: the server's key to make; where there are no keys it is for everybody.
_GREETED_NBYTES = 64 + 8
#: Where Linux says how much the other end has taken.
_TAKEN, _TAKEN_AT, _INFO_NBYTES = struct.Struct("=Q"), 120, 128


class Accepting:
    """Looks after one listening socket of ZeroMQ. For the thread that serves it.

    Args:
        server: ZeroMQ's socket.
        descriptor: The listening socket's descriptor, which is ZeroMQ's.
        name: What is served, for messages.
    """

    def __init__(self, server: Any, descriptor: int, name: str) -> None:
        import zmq

        self._server, self._descriptor, self._name = server, descriptor, name
        self._told = False
        #: The descriptors of connections that had not proved themselves when they were last looked at, oldest first.
        self._unproven: dict[int, None] = {}
        with contextlib.ExitStack() as held:
            self._reserve = [_any_descriptor() for _ in range(_KEPT)]
            held.callback(self._release)
            self._listening = held.enter_context(socket.socket(fileno=os.dup(descriptor)))
            self._listening.settimeout(0)  # for ZeroMQ as well: those whom it hears of may be sent away first
            self._empty = held.enter_context(_empty_listener(self._listening.family))
            #: Becomes readable when somebody has come, has not got in, or has left.
            self.monitor = _reports_of(
                server,
                zmq.EVENT_ACCEPTED
                | zmq.EVENT_DISCONNECTED
                | zmq.EVENT_ACCEPT_FAILED
                | zmq.EVENT_HANDSHAKE_FAILED_PROTOCOL,
            )
            self._held = held.pop_all()

    def look(self) -> int:
        """See who has not got in; return how many of them have another job secret than the server, or only one has.

        Of a process without descriptors ZeroMQ tells so often that one look must not wait for the last of it.
        """
        import zmq

        another_secret = (zmq.PROTOCOL_ERROR_ZMTP_CRYPTOGRAPHIC, zmq.PROTOCOL_ERROR_ZMTP_MECHANISM_MISMATCH)
        refused, full = 0, False
        for event, value in self._events():
            if event == zmq.EVENT_ACCEPTED:
                self._unproven[value] = None
            elif event == zmq.EVENT_DISCONNECTED:
                self._unproven.pop(value, None)
            elif event == zmq.EVENT_ACCEPT_FAILED and not full:
                full = True
                self._on_full()
            refused += event == zmq.EVENT_HANDSHAKE_FAILED_PROTOCOL and value in another_secret
        if len(self._unproven) > PLACES:
            self._make_room()
        return refused

    def _make_room(self) -> None:
        """Close the connections that have waited longest without a proof, and forget the others."""
        self._unproven = {fd: None for fd in self._unproven if self._is_unproven(fd)}
        for fd in list(self._unproven)[: max(0, len(self._unproven) - PLACES)]:
            del self._unproven[fd]
            with contextlib.suppress(OSError), self._borrowed(fd) as sock:
                sock.shutdown(socket.SHUT_RDWR)  # ZeroMQ closes it; one that belongs here comes again

    def _is_unproven(self, fd: int) -> bool:
        """Tell whether a connection has got no more than a greeting; not where it has gone, or nobody knows."""
        with contextlib.suppress(OSError, AttributeError, struct.error), self._borrowed(fd) as sock:
            info = sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, _INFO_NBYTES)
            return bool(_TAKEN.unpack_from(info, _TAKEN_AT)[0] <= _GREETED_NBYTES)
        return False

    def _borrowed(self, fd: int) -> socket.socket:
        """Return a connection of ZeroMQ's.

        Raises:
            OSError: It is no longer there, and its number may be that of something else.
        """
        sock = socket.socket(fileno=os.dup(fd))
        try:
            if sock.getsockname() != self._listening.getsockname():
                raise OSError(errno.EBADF, "another's")
        except BaseException:
            sock.close()
            raise
        return sock

    def _events(self) -> Iterator[tuple[int, int]]:
        import zmq

        with contextlib.suppress(zmq.Again):
            for _ in range(_EVENTS_A_LOOK):
                yield MONITOR_EVENT.unpack(self.monitor.recv_multipart(zmq.NOBLOCK)[0])

    def _on_full(self) -> None:
        if not self._told:
            self._told = True
            print(
                f"rankwise: {self._name}: this process has no free file descriptor for those who connect; they are "
                f"sent away ({descriptor_limit()})",
                file=sys.stderr,
            )
        with self._out_of_zeromqs_reach():
            self._turn_away()

    @contextlib.contextmanager
    def _out_of_zeromqs_reach(self) -> Any:
        """Have ZeroMQ look at the empty socket instead of the one at which people wait."""
        os.dup2(self._empty.fileno(), self._descriptor, inheritable=False)
        try:
            yield
        finally:
            os.dup2(self._listening.fileno(), self._descriptor, inheritable=False)

    def _turn_away(self) -> None:
        self._release()
        try:
            while True:
                self._listening.accept()[0].close()
        except BlockingIOError:
            pass  # nobody waits any more
        except OSError:
            time.sleep(_PAUSE_S)  # another thread has been quicker to take the descriptor
        finally:
            self._keep()

    def _keep(self) -> None:
        """Take descriptors back, as many as can be had."""
        for _ in range(_TRIES):
            with contextlib.suppress(OSError):
                while len(self._reserve) < _KEPT:
                    self._reserve.append(_any_descriptor())
                return
            time.sleep(_PAUSE_S / _TRIES)

    def drop_in_child(self) -> None:
        """Give back a forked child's copies; ZeroMQ's sockets must not be touched there."""
        self._held.close()

    def _release(self) -> None:
        while self._reserve:
            os.close(self._reserve.pop())

    def close(self) -> None:
        """Give back what this holds."""
        self._server.monitor(None, 0)
        self.monitor.close(0)
        self._held.close()


def _reports_of(server: Any, events: int) -> Any:
    """Return the socket that ZeroMQ reports to, with room for any number: where there is none its thread waits.

    It holds a lock then that ends the reports, so that nobody could close a server at whose door a crowd has left.
    """
    import zmq

    address = f"inproc://reports.{server.FD}.{id(server)}"
    server.monitor(address, events)
    reports = server.context.socket(zmq.PAIR)
    reports.rcvhwm = 0
    reports.connect(address)
    return reports


def _any_descriptor() -> int:
    return os.open(os.devnull, os.O_RDONLY)


def _empty_listener(family: int) -> socket.socket:
    """Return a socket that listens where nobody comes: its name is known to nobody, and it is of this machine."""
    listener = socket.socket(family, socket.SOCK_STREAM)
    try:
        # opens: a port that no other process knows, while a store has no free descriptor
        # reached by: processes of this host
        # guarded by: what connects is never accepted
        # proved by: tests/security/test_store_bounds.py
        listener.bind(("::1" if family == socket.AF_INET6 else "127.0.0.1", 0))
        listener.listen(1)
        listener.settimeout(0)
    except BaseException:
        listener.close()
        raise
    return listener


# ------------------ the listening socket of a `TCPStore`


class Listener:
    """A TCP socket that listens for the store of a host.

    It is made here and handed over to ZeroMQ, so that what goes wrong is known exactly.
    """

    def __init__(self, host: str, address: str, sock: socket.socket) -> None:
        self._socket = sock
        #: The address and the port at which it listens, and its descriptor, whichever thread owns it.
        self.address, self.port, self.descriptor = address, int(sock.getsockname()[1]), sock.fileno()
        #: What is served, for messages.
        self.name = f"the store at {host}:{self.port}"

    def hand_over(self, server: Any) -> None:
        """Let a ZeroMQ socket accept what comes in; the descriptor is ZeroMQ's from now on."""
        import zmq

        server.ipv6 = ":" in self.address
        keep_alive(server)
        server.setsockopt(zmq.USE_FD, self.descriptor)
        # opens: the TCP port of a rank, or of a store
        server.bind(url(self.address, self.port))
        self._socket.detach()

    def close(self) -> None:
        """Stop listening, unless it has been handed over."""
        self._socket.close()


def listen(host: str, addresses: Sequence[str], port: int, deadline: Deadline) -> Listener:
    """Listen at the first of several addresses that is this machine's, until a deadline for a port to become free.

    Raises:
        DistNetworkError: The port is taken or not allowed, or none of the addresses is this machine's.
    """
    for address in addresses:
        try:
            if port:
                sock = ports.once_free(partial(listening, address, port), port, deadline.remaining(), heed)
            else:
                sock = at_free_port(partial(listening, address))
        except OSError as error:
            if error.errno == errno.EADDRNOTAVAIL and address != addresses[-1]:
                continue
            where = f"{host}:{port}" if host == address else f"{host}:{port} ({address})"
            raise DistNetworkError(f"TCPStore: cannot serve at {where}: {_explain(error, port)}") from error
        return Listener(host, address, sock)
    raise AssertionError


def _explain(error: OSError, port: int) -> str:
    if error.errno == errno.EADDRINUSE and ports.is_of_connections(port):
        return f"the port is in use by {ports.OF_CONNECTIONS}"
    if error.errno == errno.EADDRINUSE:
        return "the port is in use by another program; choose another, or 0 to have one chosen"
    if error.errno == errno.EADDRNOTAVAIL:
        return "that is no address of this machine; rank 0 must run on the host that the address names"
    if error.errno == errno.EACCES:
        return "this user may not use that port; choose one above 1023"
    return cause(error)
