"""What the ranks run whose frames break off: one is killed with half a long frame on its way over a socket."""

from __future__ import annotations

import os
import socket
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import far_away
import numpy as np
from half_programs import BEFORE, SENT, Found, _die, _survive
from programs import begin

import rankwise as dist

_PATIENCE_S = 20.0
#: Sockets hold so little that most of a frame is yet to come when the other end dies.
_SOCKET_NBYTES = 64 << 10


def broken_off(victim: int, op: str, nbytes: int, folder: str) -> tuple[Found, str] | None:
    """Kill a rank when half of what it sends, or receives, has moved; return what the other found, and what it kept.

    Args:
        victim: The rank.
        op: What the victim does: `send`, `recv`, `all_reduce`, or a broadcast as its `root` or as a `leaf`.
        nbytes: How long the data is.
        folder: Where the time of the death is written.
    """
    far_away.pretend()
    begin(_PATIENCE_S)
    dist.destroy_process_group()  # what a process keeps of its first group is there before
    before = _held()
    rank, _ = begin(_PATIENCE_S)
    sends = op in ("send", "root") if rank == victim else op in ("recv", "leaf")
    array = np.full(nbytes, SENT if sends or rank == victim else BEFORE, np.uint8)
    root = victim if op == "root" else 1 - victim
    calls: dict[str, Callable[[], object]] = {
        "send": lambda: dist.send(array, 1 - rank),
        "recv": lambda: dist.recv(array, 1 - rank),
        "all_reduce": lambda: dist.all_reduce(array, dist.ReduceOp.MAX),
        "root": lambda: dist.broadcast(array, root),
        "leaf": lambda: dist.broadcast(array, root),
    }
    call = calls[op if rank == victim else {"send": "recv", "recv": "send"}.get(op, op)]
    dist.barrier()  # which connects them
    connection = dist.group.WORLD.communicators()[0].engine.peers[1 - rank].connection
    for option in (socket.SO_SNDBUF, socket.SO_RCVBUF):
        connection.sock.setsockopt(socket.SOL_SOCKET, option, _SOCKET_NBYTES)
    dist.barrier()
    if rank == victim:
        counter = "came_nbytes" if op in ("recv", "leaf") else "went_nbytes"
        half = getattr(connection, counter) + nbytes // 2
        threading.Thread(target=_die_at, args=(connection, counter, half, Path(folder)), daemon=True).start()
        while True:
            call()
    found = _survive(call, array, folder)
    del connection
    dist.destroy_process_group()
    until = time.monotonic() + 2
    while (left := _held() - before) and time.monotonic() < until:
        time.sleep(0.01)  # threads that were told to end are on their way
    return found, " ".join(sorted(left))


def _die_at(connection: object, counter: str, half: int, folder: Path) -> None:
    until = time.monotonic() + _PATIENCE_S
    while getattr(connection, counter) < half:
        assert time.monotonic() < until
    _die(folder)


def _held() -> set[str]:
    """Return the sockets and files that are open, and the threads that run."""
    held = {str(thread.ident) for thread in threading.enumerate()}
    for name in os.listdir("/proc/self/fd"):
        with suppress(FileNotFoundError):  # that of the list itself
            held.add(os.readlink(f"/proc/self/fd/{name}"))
    return held
