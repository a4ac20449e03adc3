"""Handing the board's descriptor from rank to rank, over Unix sockets, and to nobody else.

Rank 0, which makes the board, hands it to a few others, and each of these to a few more: with hundreds of ranks it
would have to shake hands for longer than all else takes it.
"""

from __future__ import annotations

import contextlib
import os
import selectors
import socket
import struct
from collections.abc import Callable, Generator
from functools import partial

from rankwise.backends import Deadline
from rankwise.errors import DistTimeoutError, ProtocolError
from rankwise_gloo_tcp.protocol import handshake

__all__ = ["above", "below", "fetch", "hand_out"]

#: To how many ranks one hands it: on most machines rank 0 to all.
_FANOUT = 16

_CREDENTIALS = struct.Struct("iII")
#: How often a wait checks whether the ranks that it waits for can still come.
_LOOK_S = 0.25

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
    with contextlib.ExitStack() as stack:
        selector = stack.enter_context(selectors.DefaultSelector())
        listener.setblocking(False)
        selector.register(listener, selectors.EVENT_READ)
        while missing:
            ready = selector.select(min(max(deadline.remaining(), 0.001), _LOOK_S))
            for event, _ in ready:
                if event.fileobj is listener:
                    _let_in(listener, selector, stack, partial(_serve, descriptor, key, rank, size))
                else:
                    missing.discard(_go_on(event.data, selector))
            if not ready:
                look()
            if missing and deadline.expired():
                names = ", ".join(map(str, sorted(missing)))
                raise DistTimeoutError(f"group ranks {names} did not come for the shared memory in time")


def _let_in(
    listener: socket.socket, selector: selectors.BaseSelector, stack: contextlib.ExitStack, serve: Callable[..., _Guest]
) -> None:
    """Begin with any rank that has come; one that is slow, as all are on a busy machine, keeps no other waiting."""
    with contextlib.suppress(OSError):
        sock = stack.enter_context(listener.accept()[0])
        sock.setblocking(False)
        selector.register(sock, selectors.EVENT_READ, (sock, serve(sock)))


def _go_on(guest: tuple[socket.socket, _Guest], selector: selectors.BaseSelector) -> int | None:
    """Read what a guest has sent; return its rank once it has got the descriptor."""
    sock, serving = guest
    source = None
    try:
        next(serving)
        return None
    except StopIteration as end:
        source = end.value
    except (OSError, ProtocolError):  # a stranger
        pass
    selector.unregister(sock)
    sock.close()
    return source


def fetch(name: str, rank: int, size: int, key: bytes, deadline: Deadline) -> int:
    """Return the descriptor, which the rank above hands out.

    Raises:
        ProtocolError: What listens there does not belong to this job.
        DistTimeoutError: It did not answer in time.
    """
    hello = handshake.Hello.new(rank, above(rank), size)
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as sock:
        sock.settimeout(max(deadline.remaining(), 0.001))
        try:
            sock.connect("\0" + name)
            sock.sendall(hello.pack())
            answered = _read(sock, handshake.ANSWER_NBYTES)
            handshake.check_answer(key, hello, answered)
            sock.sendall(handshake.proof(key, hello, answered))
            _, descriptors, _, _ = socket.recv_fds(sock, 1, 1)
        except TimeoutError:
            raise DistTimeoutError(f"group rank {hello.target} did not hand out the shared memory in time") from None
        except OSError as error:
            raise ProtocolError(f"group rank {hello.target} does not hand out the shared memory: {error}") from error
    if not descriptors:
        raise ProtocolError(f"group rank {hello.target} has handed out no descriptor")
    os.set_inheritable(descriptors[0], False)
    return descriptors[0]


def _serve(descriptor: int, key: bytes, rank: int, size: int, sock: socket.socket) -> _Guest:
    """Hand the descriptor to a guest that proves itself, step by step as it answers; return its rank."""
    raw = sock.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
    if _CREDENTIALS.unpack(raw)[1] != os.geteuid():
        raise ProtocolError("another user")
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
        raise ProtocolError("the connection was closed during the handshake")
    return piece
