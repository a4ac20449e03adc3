"""Time one message one way between two processes of this host: TCP, Unix sockets, ZeroMQ over both, and rankwise.

    python benchmarks/transports.py

Each figure is half of a round trip, the median over the rounds; the receiver fills memory that it has used before.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import socket
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

SIZES = (8, 64 << 10, 1 << 20, 16 << 20)
Exchange = Callable[[memoryview], None]


def over_zmq(sock: Any) -> tuple[Exchange, Exchange]:
    """Return how to send and receive over a ZeroMQ pair."""

    def send(data: memoryview) -> None:
        sock.send(data, copy=len(data) < 65536)

    def receive(room: memoryview) -> None:
        room[:] = sock.recv(copy=False).buffer

    return send, receive


def connect(kind: str, where: str, server: bool) -> tuple[Exchange, Exchange]:
    """Return how to send and receive over one kind of transport; the server creates what is at `where`."""
    if kind == "rankwise":
        import rankwise as dist

        me, other = (0, 1) if server else (1, 0)
        dist.init_process_group("gloo", init_method=f"file://{where}", rank=me, world_size=2)
        as_array = np.asarray
        return lambda data: dist.send(as_array(data), other), lambda room: dist.recv(as_array(room), other) and None
    if kind.startswith("ZeroMQ"):
        import zmq

        sock = zmq.Context().socket(zmq.PAIR)
        if "ipc" in kind:
            (sock.bind if server else sock.connect)(f"ipc://{where}")
        elif server:
            Path(where).write_text(str(sock.bind_to_random_port("tcp://127.0.0.1")))
        else:
            sock.connect(f"tcp://127.0.0.1:{_wait_for(where)}")
        return over_zmq(sock)
    family = socket.AF_UNIX if "Unix" in kind else socket.AF_INET
    if server:
        listener = socket.socket(family)
        listener.bind(where + ".s" if family == socket.AF_UNIX else ("127.0.0.1", 0))
        listener.listen(1)
        Path(where).write_text(str(listener.getsockname()[1]) if family == socket.AF_INET else "there")
        sock, _ = listener.accept()
    else:
        told = _wait_for(where)
        sock = socket.socket(family)
        sock.connect(where + ".s" if family == socket.AF_UNIX else ("127.0.0.1", int(told)))
    if family == socket.AF_INET:
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def receive(room: memoryview) -> None:
        while len(room):
            room = room[sock.recv_into(room) :]

    return sock.sendall, receive


def _wait_for(where: str) -> str:
    until = time.monotonic() + 20
    while time.monotonic() < until:
        text = Path(where).read_text() if Path(where).exists() else ""
        if text:
            return text
        time.sleep(0.01)
    raise TimeoutError(where)


def measure(kind: str, where: str, server: bool, budget_s: float, results: Any = None) -> None:
    """Be one end: bounce messages of all sizes."""
    send, receive = connect(kind, where, server)
    for nbytes in SIZES:
        data = memoryview(np.ones(nbytes, np.uint8))
        room = memoryview(np.ones(nbytes, np.uint8))
        rounds = max(10, min(2000, int(budget_s / max(20e-6, nbytes / 1e9))))
        times = []
        for _ in range(rounds):
            start = time.perf_counter()
            if server:
                send(data)
                receive(room)
            else:
                receive(room)
                send(data)
            times.append((time.perf_counter() - start) / 2)
        if results is not None:
            results.put((kind, nbytes, statistics.median(times)))


KINDS = ("TCP", "Unix socket", "ZeroMQ over TCP", "ZeroMQ over ipc", "rankwise")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--budget", type=float, default=0.5, help="seconds for each figure")
    parser.add_argument("--json", type=Path)
    given = parser.parse_args()
    spawn = multiprocessing.get_context("spawn")
    found: dict[str, dict[int, float]] = {}
    for kind in KINDS:
        with tempfile.TemporaryDirectory() as folder:
            results = spawn.Queue()
            arguments = (kind, f"{folder}/x", True, given.budget, results), (kind, f"{folder}/x", False, given.budget)
            ends = [spawn.Process(target=measure, args=one, daemon=True) for one in arguments]
            for end in ends:
                end.start()
            for _ in SIZES:
                name, nbytes, took = results.get(timeout=60)
                found.setdefault(name, {})[nbytes] = took * 1e6
            for end in ends:
                end.join(20)
    print("| one way (us) | " + " | ".join(f"{nbytes} B" for nbytes in SIZES) + " |")
    print("|---" * (len(SIZES) + 1) + "|")
    for kind, times in found.items():
        print(f"| {kind} | " + " | ".join(f"{times[nbytes]:.1f}" for nbytes in SIZES) + " |")
    if given.json:
        given.json.write_text(json.dumps(found, indent=1))


if __name__ == "__main__":
    main()
