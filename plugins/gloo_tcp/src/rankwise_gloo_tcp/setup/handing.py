"""Handing the board's descriptor from rank 0 to the others, over a Unix socket, to nobody else."""

from __future__ import annotations

import os
import socket
import struct
from collections.abc import Callable

from rankwise.backends import Deadline
from rankwise.errors import DistTimeoutError, ProtocolError
from rankwise_gloo_tcp.protocol import handshake

__all__ = ["fetch", "hand_out"]

_CREDENTIALS = struct.Struct("iII")
_PATIENCE_S = 2.0
#: How often a wait checks whether the ranks that it waits for can still come.
_LOOK_S = 0.25


def hand_out(
    listener: socket.socket, descriptor: int, key: bytes, size: int, deadline: Deadline, look: Callable[[], None]
) -> None:
    """Give the descriptor to each other rank once.

    Raises:
        DistTimeoutError: Some have not come for it.
    """
    missing = set(range(1, size))
    while missing:
        listener.settimeout(min(max(deadline.remaining(), 0.001), _LOOK_S))
        try:
            sock, _ = listener.accept()
        except TimeoutError:
            look()
            if not deadline.expired():
                continue
            names = ", ".join(map(str, sorted(missing)))
            raise DistTimeoutError(f"group ranks {names} did not come for the shared memory in time") from None
        with sock:
            try:
                missing.discard(_serve(sock, descriptor, key, size))
            except (OSError, ProtocolError):
                continue  # a stranger


def fetch(name: str, rank: int, size: int, key: bytes, deadline: Deadline) -> int:
    """Return the descriptor that rank 0 hands out.

    Raises:
        ProtocolError: What listens there does not belong to this job.
        DistTimeoutError: It did not answer in time.
    """
    hello = handshake.Hello.new(rank, 0, size)
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
            raise DistTimeoutError("group rank 0 did not hand out the shared memory in time") from None
        except OSError as error:
            raise ProtocolError(f"group rank 0 does not hand out the shared memory: {error}") from error
    if not descriptors:
        raise ProtocolError("group rank 0 has handed out no descriptor")
    os.set_inheritable(descriptors[0], False)
    return descriptors[0]


def _serve(sock: socket.socket, descriptor: int, key: bytes, size: int) -> int:
    sock.settimeout(_PATIENCE_S)
    raw = sock.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
    if _CREDENTIALS.unpack(raw)[1] != os.geteuid():
        raise ProtocolError("another user")
    hello = handshake.read_hello(_read(sock, handshake.HELLO_NBYTES), 0, size)
    answered = handshake.answer(key, hello)
    sock.sendall(answered)
    handshake.check_proof(key, hello, answered, _read(sock, handshake.PROOF_NBYTES))
    socket.send_fds(sock, [b"B"], [descriptor])
    return hello.source


def _read(sock: socket.socket, nbytes: int) -> bytes:
    data = b""
    while len(data) < nbytes:
        piece = sock.recv(nbytes - len(data))
        if not piece:
            raise ProtocolError("the connection was closed during the handshake")
        data += piece
    return data
