"""The window through which others look at this rank: on this machine through a socket, else through the store.

The socket's name is no file, so that nothing is left behind, and only processes of the same user (or root) are
answered. Who has the job's secret may look through the store: by a question in the watcher's log, and a counter that
goes on. Until somebody looks, all this costs is a socket that nobody connects to.
"""

from __future__ import annotations

import json
import mmap
import os
import socket
import struct
import sys
from collections import Counter, defaultdict
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from time import monotonic, monotonic_ns, time_ns
from typing import TYPE_CHECKING, Any

from rankwise.errors import DistError
from rankwise.observing import Entry, PrefixStore, ProcessGroup, World
from rankwise_network import doors
from rankwise_watch.heartbeat import own_clock
from rankwise_watch.recorder import entries, states, step
from rankwise_watch.stats import of_group

if TYPE_CHECKING:
    from rankwise.observing import World
    from rankwise_watch.watcher import Watcher

__all__ = [
    "FORMAT",
    "NAME",
    "QUESTION",
    "Window",
    "answer_key",
    "open_window",
    "sample",
    "wish_key",
]

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
    from rankwise_watch.window import sample

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


# What one rank shows of itself to readers: where it is, what it has counted, and when it came to each call

#: The version of what a sample looks like.
FORMAT = 2
#: Beyond so many, groups are left out, and calls of a group.
_MOST_GROUPS, _MOST_ARRIVALS, _MOST_PENDING = 64, 256, 4
#: How many calls all ranks of a large group show together, as one reader reads them all; and each rank at the least.
_ALL_ARRIVALS, _FEWEST_ARRIVALS = 64 << 10, 64


def sample(world: World) -> dict[str, Any]:
    """Return what this rank shows, as plain data. Any thread may call, at any time."""
    world.recorder.count()
    noted = entries(world.recorder)
    conditions = states(noted)
    now = monotonic_ns()
    mine: dict[str, list[tuple[Entry, str]]] = defaultdict(list)
    for entry, state in zip(noted, conditions, strict=True):
        mine[entry.trail.name].append((entry, state))
    default = world.default
    groups = list(world.groups.values())
    return {
        "rankwise_sample": FORMAT,
        "rank": -1 if default is None else default.global_rank,
        "ranks": [] if default is None else list(default.ranks),
        "outside": default.name if default is not None and world.home is not None else "",
        "job": _job(world),
        "host": socket.gethostname(),
        "pid": os.getpid(),
        "program": " ".join(sys.argv)[:200],
        "clock": own_clock(),
        "now_ns": now,
        "day_ns": time_ns() - monotonic_ns() + now,
        "memory_nbytes": _resident_nbytes(),
        "groups": {g.name: _group(g, mine[g.name], now) for g in groups[:_MOST_GROUPS]},
    }


def _group(group: ProcessGroup, mine: list[tuple[Entry, str]], now: int) -> dict[str, Any]:
    stats = of_group(group)
    moved: Counter[str] = Counter()
    queued: Counter[str] = Counter()
    shared_nbytes, way = 0, ""
    for communicator in group.communicators():
        gauges = communicator.gauges()
        moved.update(gauges.moved_nbytes)
        queued.update(gauges.queued)
        shared_nbytes, way = shared_nbytes + gauges.memory_nbytes, way or gauges.way
    pending = [entry for entry, state in mine if state in ("running", "issued")]
    begun, ended, message_begun, message_ended = group.trail.marks()
    last = max((e for e in (ended, message_ended) if e is not None), key=lambda e: e.ended_ns, default=None)
    return {
        "description": group.group_desc,
        "ranks": list(group.ranks),
        "backend": group.backend,
        "failure": group.trail.failure,
        "way": way,
        "moved_nbytes": dict(moved),
        "queued": dict(queued),
        "shared_nbytes": shared_nbytes,
        "operations": {op: list(figures) for op, figures in stats.operations.items()},
        "uncounted": stats.uncounted,
        "pending": [step(entry, now) for entry in pending[:_MOST_PENDING]],
        "last": None if last is None else step(last, now),
        "begun": [-1 if entry is None else entry.number for entry in (begun, message_begun)],
        "arrivals": _arrivals(mine, len(group.ranks)),
        "messages": _messages(mine, len(group.ranks)),
    }


def _arrivals(mine: list[tuple[Entry, str]], size: int) -> list[list[Any]]:
    """Return of the last collectives, oldest first: operation, number, when they began, and when they ended or 0."""
    collectives = [entry for entry, _ in mine if entry.detail is None][-_most(size) :]
    return [[e.op, e.number, e.began_ns, e.ended_ns if e.thread else 0] for e in collectives]


def _messages(mine: list[tuple[Entry, str]], size: int) -> list[list[Any]]:
    """Return of the last messages: number, operation, place, peer, tag, and three times, 0 for none.

    They are when it began, when the program began to wait for it, which is the same for a blocking call, and when it
    ended. What has failed has neither a peer nor an end.
    """
    messages = [(entry, state) for entry, state in mine if entry.detail is not None][-_most(size) :]
    return [_message(entry, state) for entry, state in messages]


def _message(entry: Entry, state: str) -> list[Any]:
    peer, tag = entry.detail or (None, 0)
    told, asked_ns = step(entry, entry.began_ns), entry.began_ns if entry.op in ("send", "recv") else entry.asked_ns
    if state == "failed":
        return [entry.number, entry.op, told["at"], None, tag, entry.began_ns, asked_ns, 0]
    return [entry.number, entry.op, told["at"], peer, tag, entry.began_ns, asked_ns, entry.ended_ns]


def _most(size: int) -> int:
    """Return how many calls of a group a rank shows."""
    return min(_MOST_ARRIVALS, max(_FEWEST_ARRIVALS, _ALL_ARRIVALS // size))


def _job(world: World) -> str:
    """Return what the ranks of one job have in common."""
    store, prefixes = world.store, []
    while isinstance(store, PrefixStore):
        prefixes.append(store.prefix)
        store = store.underlying_store
    place = f"{store!r}/{'/'.join(reversed(prefixes))}"
    # Of stores without an address two jobs may have one of the same name; their ranks have different parents.
    return place if store is not None and store.has_address else f"{place} of {os.getppid()}"


def _resident_nbytes() -> int:
    try:
        with open("/proc/self/statm", encoding="ascii") as file:
            return int(file.read().split()[1]) * mmap.PAGESIZE
    except OSError:
        return _most_nbytes()


def _most_nbytes() -> int:
    """Return what this process has had at the most, 0 where the system does not tell."""
    try:
        import resource
    except ImportError:  # Windows
        return 0
    most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return most if sys.platform == "darwin" else most * 1024
