"""What the ranks of the tests of half-way messages run: one of them is killed when so much of its data has moved."""

from __future__ import annotations

import mmap
import os
import signal
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from programs import begin, until

import rankwise as dist
from rankwise_gloo_tcp.board import board
from rankwise_gloo_tcp.protocol.frames import Kind
from rankwise_gloo_tcp.transport.rings import PIECE, message

if os.environ.get("RANKWISE_GLOO_PEER_MEMORY") == "on":
    # Ranks that share a processor read messages from each other's memory; and the parts of collectives here are shorter
    # than those which are read otherwise.
    os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
    board.FETCH_FROM_NBYTES = 1 << 20

#: Within the window, so that a message of this size goes through the ring where memory may not be read.
STREAMED_NBYTES = 3 << 20
#: So long that it takes many copies.
COPIED_NBYTES = 48 << 20
#: What senders send, and what receivers have before.
SENT, BEFORE = 7, 1
_PATIENCE_S = 20.0

#: An error and the rank that it names; how long after the death it came, in seconds; whether no byte is garbage.
Found = tuple[str, int, float, bool]


def streamed(victim: int, sends: bool, folder: str) -> Found | None:
    """Have a rank move the first part of a streamed message by hand, and die."""
    rank, _ = begin(_PATIENCE_S)
    array = np.full(STREAMED_NBYTES, SENT if (rank == victim) == sends else BEFORE, np.uint8)
    store = dist.group.WORLD.get_group_store()
    if rank == victim:
        engine = dist.group.WORLD.communicators()[0].engine
        with engine.lock:  # nobody else uses the ring, from before anything is in it
            store.set("half", b"begin")
            (_write_half if sends else _read_half)(engine, 1 - rank, array)
            _die(Path(folder))
    store.get("half", timeout=_PATIENCE_S)
    return _survive((lambda: dist.recv(array, victim)) if sends else (lambda: dist.send(array, victim)), array, folder)


def _write_half(engine: Any, peer: int, array: np.ndarray[Any, Any]) -> None:
    pipe = engine.peers[peer].connection
    dtype = engine.dispatcher.dtypes.mark(array.dtype)
    assert pipe.rings.write(message(0), array.nbytes, dtype << 32, 0, memoryview(b""))
    for _ in range(8):
        assert pipe.rings.write(PIECE, 32 << 10, 0, 0, memoryview(array)[: 32 << 10])
    pipe.rings.wake()


def _read_half(engine: Any, peer: int, array: np.ndarray[Any, Any]) -> None:
    pipe = engine.peers[peer].connection
    kind = 0
    while kind != PIECE:
        until(lambda: pipe.rings.next() is not None)
        first, length, marks, _ = pipe.rings.next()
        kind = first & 0xFF
        pipe.rings.advance(length if kind == PIECE else 0)
        if kind == Kind.OFFER:  # which is how Python sends it
            assert pipe.rings.write(Kind.REQUEST, length, marks & 0xFFFFFFFF, 0, memoryview(b""))
            pipe.rings.wake()


def copied(victim: int, op: str, folder: str) -> Found | None:
    """Kill a rank when the first bytes of what is copied from memory to memory have come.

    Args:
        victim: The rank.
        op: What it does when that happens: `send`, `recv`, `broadcast` (as the root) or `all_to_all`.
        folder: Where the ranks meet.
    """
    rank, _ = begin(_PATIENCE_S)
    room = _shared(Path(folder) / f"room-{rank}")
    source = np.full(COPIED_NBYTES, SENT, np.uint8)
    half = COPIED_NBYTES // 2
    calls: dict[str, Callable[[], object]] = {
        "send": lambda: dist.send(source, 1 - rank),
        "recv": lambda: dist.recv(room, 1 - rank),
        "broadcast": lambda: dist.broadcast(source if rank == victim else room, victim),
        "all_to_all": lambda: dist.all_to_all([room[:half], room[half:]], [source[:half], source[half:]]),
    }
    mine = op if rank == victim else {"send": "recv", "recv": "send"}.get(op, op)
    calls[mine]()  # the first call goes another way
    room[:] = BEFORE
    dist.barrier()
    if rank == victim:
        # A rank that receives from this one has its room in memory that this one can see.
        watched = room if op == "recv" else _shared(Path(folder) / f"room-{1 - rank}")
        threading.Thread(target=_die_when_it_changes, args=(watched, Path(folder)), daemon=True).start()
    elif op == "send":  # the shortest way of a receive takes only what is there soon
        engine = dist.group.WORLD.communicators()[0].engine
        # It may also have been taken in, by the thread that looks in on engines that nobody drives.
        until(lambda: engine.peers[victim].connection.has_news() or engine.queued()["unreceived"])
    gets = mine in ("recv", "all_to_all") or (mine == "broadcast" and rank != victim)
    return _survive(calls[mine], room if gets else source, folder)


def _shared(path: Path) -> np.ndarray[Any, Any]:
    with path.open("ab") as file:
        file.truncate(COPIED_NBYTES)
    with path.open("r+b") as file:
        return np.frombuffer(mmap.mmap(file.fileno(), COPIED_NBYTES), np.uint8)


def _die_when_it_changes(watched: np.ndarray[Any, Any], folder: Path) -> None:
    places = watched[:: COPIED_NBYTES // 16]  # of which some are filled early, wherever the copying begins
    deadline = time.monotonic() + _PATIENCE_S
    while (places == BEFORE).all():
        assert time.monotonic() < deadline
    _die(folder)


def _die(folder: Path) -> None:
    (folder / "death").write_text(str(time.monotonic()))
    os.kill(os.getpid(), signal.SIGKILL)
    threading.Event().wait()


def _survive(call: Callable[[], object], array: np.ndarray[Any, Any], folder: str) -> Found:
    """Make a call again and again until it fails; what has come to an end must be whole."""
    before = array[0]
    for _ in range(100):
        array[:] = before
        try:
            call()
        except dist.DistError as error:
            took_s = time.monotonic() - float((Path(folder) / "death").read_text())
            clean = bool(((array == BEFORE) | (array == SENT)).all())
            return type(error).__name__, getattr(error, "rank", -1), took_s, clean
        assert before == SENT or (array == SENT).all()
    raise AssertionError("the other rank did not die")
