"""Handing the board's descriptor from rank to rank, over Unix sockets, and to nobody else.

Rank 0, which makes the board, hands it to a few others, and each of these to a few more: with hundreds of ranks it
would have to shake hands for longer than all else takes it.
"""

from __future__ import annotations

import os
import selectors
import socket
from collections.abc import Callable, Generator
from functools import partial
from time import monotonic, sleep

from rankwise.backends import Deadline
from rankwise.errors import DistTimeoutError, ProtocolError
from rankwise_gloo_tcp.protocol import handshake
from rankwise_network import doors

#: To how many ranks one hands it: on most machines rank 0 to all.
_FANOUT = 16

#: How often a wait checks whether the ranks that it waits for can still come.
_LOOK_S = 0.25
#: How long one waits that was sent away, or has no descriptor left for those that come.
_PAUSE_S = 0.01

#: Ends with the rank of one that has got the descriptor.
_Guest = Generator[None, None, int]


def above(rank: int) -> int:
    """Return the rank from which another than rank 0 gets the descriptor."""
    return (rank - 1) // _FANOUT


def below(rank: int, size: int) -> range:
    """Return the ranks that get it from a rank."""
    first = _FANOUT * rank + 1
    return range(first, max(first, min(first + _FANOUT, size)))


def hand_out(
    listener: socket.socket,
    descriptor: int,
    key: bytes,
    rank: int,
    size: int,
    deadline: Deadline,
    look: Callable[[], None],
) -> None:
    """Give the descriptor to each of the ranks below this one once.

    Raises:
        DistTimeoutError: Some have not come for it.
    """
    missing = set(below(rank, size))
    with _Door(listener, partial(_serve, descriptor, key, rank, size)) as door:
        look_at = monotonic() + _LOOK_S
        while missing:
            missing -= door.attend(min(max(deadline.remaining(), 0.001), _LOOK_S))
            if monotonic() >= look_at:
                look()
                look_at = monotonic() + _LOOK_S
            if missing and deadline.expired():
                names = ", ".join(map(str, sorted(missing)))
                raise DistTimeoutError(f"group ranks {names} did not come for the shared memory in time")


class _Door:
    """A listening socket, and the connections that have proved nothing so far, the oldest first."""

    def __init__(self, listener: socket.socket, serve: Callable[[socket.socket], _Guest]) -> None:
        self._listener, self._serve = listener, serve
        self._selector = selectors.DefaultSelector()
        self._guests: dict[socket.socket, tuple[_Guest, doors.Patience]] = {}

    def __enter__(self) -> _Door:
        self._listener.setblocking(False)
        self._selector.register(self._listener, selectors.EVENT_READ)
        return self

    def __exit__(self, *_: object) -> None:
        for sock in list(self._guests):
            self._end(sock)
        self._selector.close()

    def attend(self, timeout_s: float) -> set[int]:
        """Go on with all that have said something; return the ranks that have got the descriptor."""
        served = set()
        for event, _ in self._selector.select(timeout_s):
            if event.fileobj is self._listener:
                self._let_in()
            elif event.fileobj in self._guests:  # else it has just made room for another
                served.add(self._go_on(event.fileobj))
        now = monotonic()
        for sock in [sock for sock, (_, patience) in self._guests.items() if patience.has_had(doors.PATIENCE_S, now)]:
            self._end(sock)
        return served - {-1}

    def _let_in(self) -> None:
        """Begin with those that have come; one that is slow, as all are on a busy machine, keeps no other waiting."""
        for _ in range(doors.PLACES):
            try:
                sock, _ = self._listener.accept()
            except OSError as error:
                if error.errno in doors.NO_DESCRIPTORS:
                    sleep(_PAUSE_S)
                return
            if not doors.is_own_user(sock):
                sock.close()
                continue
            if len(self._guests) >= doors.PLACES:
                self._end(next(iter(self._guests)))
            sock.setblocking(False)
            self._selector.register(sock, selectors.EVENT_READ)
            self._guests[sock] = self._serve(sock), doors.Patience()

    def _go_on(self, sock: socket.socket) -> int:
        """Read what a guest has sent; return its rank once it has got the descriptor, and -1 before."""
        source = -1
        try:
            next(self._guests[sock][0])
            return source
        except StopIteration as end:
            source = end.value
        except (OSError, ProtocolError):  # a stranger
            pass
        self._end(sock)
        return source

    def _end(self, sock: socket.socket) -> None:
        del self._guests[sock]
        self._selector.unregister(sock)
        sock.close()


class _Shown(ProtocolError):
    """The rank above has closed the connection before it has handed the descriptor out, as others have come since."""


def fetch(name: str, rank: int, size: int, key: bytes, deadline: Deadline) -> int:
    """Return the descriptor, which the rank above hands out.

    Raises:
        ProtocolError: What listens there does not belong to this job, or no longer listens.
        DistTimeoutError: It did not answer in time.
    """
    while True:
        hello = handshake.Hello.new(rank, above(rank), size)
        try:
            return _fetched(name, hello, key, deadline)
        except TimeoutError:
            raise DistTimeoutError(f"group rank {hello.target} did not hand out the shared memory in time") from None
        except (_Shown, ConnectionResetError, BrokenPipeError) as error:
            if deadline.expired():
                raise ProtocolError(
                    f"group rank {hello.target} does not hand out the shared memory: {error}"
                ) from error
            sleep(_PAUSE_S)
        except OSError as error:
            raise ProtocolError(f"group rank {hello.target} does not hand out the shared memory: {error}") from error


def _fetched(name: str, hello: handshake.Hello, key: bytes, deadline: Deadline) -> int:
    with doors.call_at(name, deadline) as sock:
        sock.sendall(hello.pack())
        answered = _read(sock, handshake.ANSWER_NBYTES)
        handshake.check_answer(key, hello, answered)
        sock.sendall(handshake.proof(key, hello, answered))
        told, descriptors, _, _ = socket.recv_fds(sock, 1, 1)
    if not told:
        raise _Shown("the connection was closed during the handshake")
    if not descriptors:
        raise ProtocolError(f"group rank {hello.target} has handed out no descriptor")
    os.set_inheritable(descriptors[0], False)
    return descriptors[0]


def _serve(descriptor: int, key: bytes, rank: int, size: int, sock: socket.socket) -> _Guest:
    """Hand the descriptor to a guest that proves itself, step by step as it answers; return its rank."""
    hello = handshake.read_hello((yield from _piecewise(sock, handshake.HELLO_NBYTES)), rank, size)
    answered = handshake.answer(key, hello)
    sock.sendall(answered)
    handshake.check_proof(key, hello, answered, (yield from _piecewise(sock, handshake.PROOF_NBYTES)))
    socket.send_fds(sock, [b"B"], [descriptor])
    return hello.source


def _piecewise(sock: socket.socket, nbytes: int) -> Generator[None, None, bytes]:
    data = b""
    while len(data) < nbytes:
        try:
            data += _some(sock, nbytes - len(data))
        except BlockingIOError:
            yield
    return data


def _read(sock: socket.socket, nbytes: int) -> bytes:
    data = b""
    while len(data) < nbytes:
        data += _some(sock, nbytes - len(data))
    return data


def _some(sock: socket.socket, nbytes: int) -> bytes:
    piece = sock.recv(nbytes)
    if not piece:
        raise _Shown("the connection was closed during the handshake")
    return piece
