"""Time the smallest calls over TCP beside two plain sockets that wait in the same way, and beside torch's gloo.

    sudo python benchmarks/plain_sockets.py               # between two hosts: network namespaces joined by a veth pair
    python benchmarks/plain_sockets.py --loopback         # two processes, over the loopback interface

The two processes hold everything at once: a plain socket, a group of rankwise and, where it is installed, one of torch.
They take turns, some hundred calls at a time, so that a busy machine disturbs all alike. The plain sockets poll as long
as a wait of rankwise does and then sleep in epoll. They have two figures: a ping-pong, one way, which is the floor of a
message, and an exchange, in which both send and then receive, which is that of an all_reduce or a barrier.
"""

from __future__ import annotations

import argparse
import json
import os
import select
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import ExitStack
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
from namespaces import write_secret
from two_hosts import Hosts, forbidden

#: How long the plain sockets poll before they sleep: as `rankwise_gloo_tcp.setup.creation`.
SPIN_S = 400e-6
PORTS = 29411, 29412, 29413
FLOORS = {"send_recv": "ping-pong"}
Calls = dict[str, Callable[[], object]]


class Plain:
    """Two plain sockets."""

    def __init__(self, rank: int, nbytes: int) -> None:
        where = os.environ["MASTER_ADDR"], PORTS[0]
        self.sock = _accept(where) if rank == 0 else _connect(where)
        self.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.sock.setblocking(False)
        self.poller = select.epoll()
        self.poller.register(self.sock.fileno(), select.EPOLLIN)
        self.data, self.room = bytes(nbytes), memoryview(bytearray(nbytes))
        self.calls: Calls = {"exchange": self.exchange, "ping-pong": self.ping if rank == 0 else self.pong}

    def exchange(self) -> None:
        self.send()
        self.receive()

    def ping(self) -> None:
        self.send()
        self.receive()

    def pong(self) -> None:
        self.receive()
        self.send()

    def send(self) -> None:
        data = self.data
        while (sent := self.sock.send(data)) < len(data):
            data = data[sent:]

    def receive(self) -> None:
        room, until = self.room, time.monotonic() + SPIN_S
        while len(room):
            try:
                room = room[self.sock.recv_into(room) :]
            except BlockingIOError:
                if time.monotonic() > until:
                    self.poller.poll(60)


def calls_of(dist: Any, rank: int, array: Any) -> Calls:
    """Return the calls of a module with the names of torch.distributed."""

    def ping() -> None:
        dist.send(array, 1)
        dist.recv(array, 1)

    def pong() -> None:
        dist.recv(array, 0)
        dist.send(array, 0)

    return {
        "all_reduce": lambda: dist.all_reduce(array),
        "barrier": dist.barrier,
        "send_recv": pong if rank else ping,
    }


def work(nbytes: int, chunks: int, calls: int, with_torch: bool) -> None:
    """Be one rank; rank 0 prints the microseconds of one call in each turn."""
    rank = int(os.environ["RANK"])
    plain = Plain(rank, nbytes)
    contenders: dict[str, Calls] = {"plain": plain.calls}
    import rankwise

    os.environ["MASTER_PORT"] = str(PORTS[1])
    rankwise.init_process_group("gloo")
    contenders["rankwise"] = calls_of(rankwise, rank, np.zeros(nbytes // 4, np.float32))
    if with_torch:
        import torch
        import torch.distributed as theirs

        os.environ["MASTER_PORT"] = str(PORTS[2])
        torch.set_num_threads(1)
        theirs.init_process_group("gloo")
        contenders["torch"] = calls_of(theirs, rank, torch.zeros(nbytes // 4))
    found: dict[str, list[float]] = {}
    for turn in range(chunks + 1):  # the first is for warming up
        for who, theirs_calls in contenders.items():
            for name, call in theirs_calls.items():
                plain.exchange()
                start = time.perf_counter()
                for _ in range(calls):
                    call()
                took = (time.perf_counter() - start) / calls * 1e6
                if name in ("ping-pong", "send_recv"):
                    took /= 2
                if turn:
                    found.setdefault(f"{who} {name}", []).append(took)
    plain.exchange()
    if rank == 0:
        print(json.dumps(found), flush=True)
    rankwise.destroy_process_group()
    if with_torch:
        theirs.destroy_process_group()


def report(found: dict[str, list[float]]) -> str:
    """Return a table: medians with the least, the floor's, and the medians of the ratios turn by turn."""
    lines = [
        "| call | plain sockets (us) | rankwise (us), ratio | torch (us), rankwise is faster by |",
        "|---|---|---|---|",
    ]
    for name in ("all_reduce", "barrier", "send_recv"):
        floor = found[f"plain {FLOORS.get(name, 'exchange')}"]
        own, other = found[f"rankwise {name}"], found.get(f"torch {name}")
        cells = [name, _figure(floor), f"{_figure(own)}, {_ratio(own, floor):.2f}x"]
        cells.append(f"{_figure(other)}, {_ratio(other, own):.1f}x" if other else "not installed")
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def _figure(times: list[float]) -> str:
    return f"{statistics.median(times):.1f} (least {min(times):.1f})"


def _ratio(above: list[float], below: list[float]) -> float:
    """Return the middle ratio of figures that were taken one after the other."""
    return statistics.median(a / b for a, b in zip(above, below, strict=True))


def _accept(where: tuple[str, int]) -> socket.socket:
    with socket.create_server(where) as listener:
        listener.settimeout(60)
        return listener.accept()[0]


def _connect(where: tuple[str, int]) -> socket.socket:
    until = time.monotonic() + 60
    while True:
        try:
            return socket.create_connection(where, 60)
        except OSError:
            if time.monotonic() > until:
                raise
            time.sleep(0.02)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--loopback", action="store_true", help="no namespaces: over the loopback interface")
    parser.add_argument("--bytes", type=int, default=8)
    parser.add_argument("--turns", type=int, default=40)
    parser.add_argument("--calls", type=int, default=200, help="calls of each kind in a turn")
    parser.add_argument("--without-torch", action="store_true")
    parser.add_argument("--json", type=Path)
    parser.add_argument("--work", action="store_true", help=argparse.SUPPRESS)
    given = parser.parse_args()
    with_torch = not given.without_torch and find_spec("torch") is not None
    if given.work:
        work(given.bytes, given.turns, given.calls, with_torch)
        return
    reason = "" if given.loopback else forbidden()
    if reason:
        raise SystemExit(f"no namespaces here: {reason}")
    with ExitStack() as stack:
        hosts = None if given.loopback else stack.enter_context(Hosts(2))
        secret = write_secret(Path(stack.enter_context(tempfile.TemporaryDirectory())))
        env = {
            **os.environ,
            "WORLD_SIZE": "2",
            "MASTER_ADDR": hosts.addresses[0] if hosts else "127.0.0.1",
            "GLOO_SOCKET_IFNAME": "eth0" if hosts else "lo",
            "RANKWISE_GLOO_TRANSPORT": "tcp",
            "RANKWISE_SECRET_FILE": str(secret),
        }
        command = [sys.executable, __file__, "--work", "--bytes", str(given.bytes), "--turns", str(given.turns)]
        command += ["--calls", str(given.calls), *(["--without-torch"] if given.without_torch else [])]
        ranks = [
            subprocess.Popen(
                hosts.command(rank, *command) if hosts else command,
                env={**env, "RANK": str(rank)},
                stdout=subprocess.PIPE if rank == 0 else None,
                text=True,
            )
            for rank in range(2)
        ]
        try:
            output, _ = ranks[0].communicate(timeout=600)
            if any(process.wait(60) for process in ranks):
                raise SystemExit("a rank has failed")
        finally:
            for process in ranks:
                process.kill()
    found = json.loads(output.splitlines()[-1])
    print(report(found))
    print(f"\nload of the machine: {os.getloadavg()[0]:.1f} on {os.cpu_count()} processors")
    if given.json:
        given.json.write_text(json.dumps({"machine": list(os.uname()), "results": found}, indent=1))


if __name__ == "__main__":
    main()
