"""The window through which others look at this rank: on this machine through a socket, else through the store.

The socket's name is no file, so that nothing is left behind, and only processes of the same user (or root) are
answered. Who has the job's secret may look through the store: by a question in the watcher's log, and a counter that
goes on. Until somebody looks, all this costs is a socket that nobody connects to.
"""

from __future__ import annotations

import json
import os
import socket
import struct
import sys
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from time import monotonic
from typing import TYPE_CHECKING, Any

from rankwise.errors import DistError
from rankwise_network import doors

if TYPE_CHECKING:
    from rankwise.observing import World
    from rankwise_watch.watcher import Watcher

#: What the names of the sockets begin with, after the zero byte that keeps them out of the file system.
NAME = "rankwise-window/"
#: What the questions of those who look through the store begin with.
QUESTION = "look "

_MOST_LOOKERS = 8
#: What one answer may take to be handed over: the socket's buffer must hold it, as the watcher waits for nobody.
_BUFFER_NBYTES = 4 << 20
#: How often those who look through the store are answered, and after which time without a wish no more.
_EVERY_S, _FORGET_S = 0.5, 10.0


def answer_key(question: str, rank: int) -> str:
    """Return the key under which a rank answers."""
    return f"look/{question}/{rank}"


def wish_key(question: str) -> str:
    """Return the key of the counter that goes on for as long as somebody wants answers."""
    return f"look/{question}/wish"


def open_window(world: World) -> None:
    """Have the watcher of a world open its window, on its own thread."""
    watcher: Watcher = world.watcher
    watcher.do(lambda: Window(watcher, partial(_sample, world)).open())


def _sample(world: World) -> bytes:
    from rankwise_watch.sampling import sample  # only now: few jobs are looked at

    return json.dumps(sample(world), separators=(",", ":")).encode()


class Window:
    """What answers the processes that look. All is called on the watcher's thread.

    Args:
        watcher: Whose thread is told of them.
        sample: Returns what they are to see.
    """

    def __init__(self, watcher: Watcher, sample: Callable[[], bytes]) -> None:
        self._watcher, self._sample = watcher, sample
        self._listener: socket.socket | None = None
        self._lookers: list[socket.socket] = []

    def open(self) -> None:
        """Begin to answer."""
        self._watcher.on_question = self._asked
        self._watcher.at_end(self.close)
        if not sys.platform.startswith("linux"):
            return  # elsewhere names of sockets are files
        self._listener = doors.open_at(f"{NAME}{os.getpid()}-{os.urandom(4).hex()}")
        self._watcher.hear(self._listener.fileno(), self._accept)

    def close(self) -> None:
        """Give everything back."""
        self._watcher.on_question = _nobody
        for sock in (self._listener, *self._lookers):
            if sock is not None:
                sock.close()
        self._listener, self._lookers = None, []

    # ------------------------------------------------------------------ through the socket

    def _accept(self) -> None:
        assert self._listener is not None
        with suppress(OSError):
            sock, _ = self._listener.accept()
            sock.setblocking(False)
            if len(self._lookers) < _MOST_LOOKERS and doors.is_own_user(sock):
                sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, _BUFFER_NBYTES)
                self._lookers.append(sock)
                self._watcher.hear(sock.fileno(), partial(self._answer, sock))
            else:
                sock.close()
        self._watcher.hear(self._listener.fileno(), self._accept)

    def _answer(self, sock: socket.socket) -> None:
        """Answer each byte that has come with a length and a sample; a client that does not take it is let go."""
        try:
            if not sock.recv(64):
                raise ConnectionError
            answer = self._sample()
            message = struct.pack("<I", len(answer)) + answer
            if sock.send(message) < len(message):
                raise BlockingIOError
        except OSError:
            self._lookers.remove(sock)
            sock.close()
            return
        self._watcher.hear(sock.fileno(), partial(self._answer, sock))

    # ------------------------------------------------------------------ through the store

    def _asked(self, question: str) -> None:
        if question.startswith(QUESTION):
            self._publish(question[len(QUESTION) :][:64], "", monotonic())

    def _publish(self, question: str, wish: str, wished_at: float) -> None:
        """Write a sample into the store, and go on for as long as somebody wishes it."""
        place, rank = self._watcher.place, self._watcher.rank
        with suppress(DistError):  # the store is slow: once more
            found = (place.peek(wish_key(question)) or b"").decode("ascii", "replace")
            if found != wish:
                wish, wished_at = found, monotonic()
            if monotonic() - wished_at > _FORGET_S:
                place.delete_key(answer_key(question, rank))
                return
            place.set(answer_key(question, rank), self._sample())
        self._watcher.after(_EVERY_S, partial(self._publish, question, wish, wished_at))


def _nobody(question: Any) -> None:
    """Leave a question unanswered."""
