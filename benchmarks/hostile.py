"""Hostile connections against a running job: how many get past its doors, and what they cost.

    python benchmarks/hostile.py [--count 2000] [--rate 200] [--json FILE]

Two ranks reduce arrays over TCP, one after the other without a pause, and a third waits outside. Meanwhile others,
who take their share of this machine's processors too and so are first sent to another program for comparison, connect
to the ports of the ranks and of the store: with random bytes, with half a hello, with the recording of another
handshake, with the name of a rank but no key, with the proof of the other role, and with nothing but patience.
Printed are how many were let in, how much longer an all_reduce takes, how much memory and how many descriptors a rank
has gained, and how long the third rank takes to come in while the attack goes on.
"""

from __future__ import annotations

import argparse
import array
import json
import os
import random
import secrets
import select
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import time
from collections import Counter, deque
from collections.abc import Iterator
from contextlib import contextmanager
from statistics import median
from typing import Any

HELLO = struct.Struct("<4sIII16s")
ANSWER_NBYTES, PROOF_NBYTES, WELCOME = 48, 32, b"W"
#: How many hostile connections are open at once, and how long one is kept waiting for what it is told.
OPEN_AT_ONCE, PATIENCE_S = 200, 2.0
#: What is measured before, and the size of the arrays.
CALM_S, NBYTES = 3.0, 256 << 10


# ---------------------------------------------------------------------- a rank of the job


def work(folder: str) -> None:
    """Reduce arrays until the folder says stop; then tell how it went."""
    import numpy as np

    import rankwise as dist
    from rankwise.groups.world import current

    dist.init_process_group("gloo", timeout=120)
    rank = dist.get_rank()
    pair = dist.new_group([0, 1])
    data = np.zeros(NBYTES // 8)
    if rank < 2:
        dist.all_reduce(data, group=pair)
        own = current().groups[pair.name].communicators()[0].engine
        world = current().default.communicators()[0].engine
        ports = [listener.getsockname()[1] for engine in (own, world) for listener in engine.peers.acceptor.listeners]
        write(folder, f"ports{rank}", ports)
    # No list of tuples: what a rank gains in memory is measured too.
    times = array.array("d")
    go_on = np.ones(1)
    before = holding()
    while rank < 2 and go_on[0]:
        began = time.monotonic()
        for _ in range(10):
            dist.all_reduce(data, group=pair)
        times.extend((began, (time.monotonic() - began) / 10))
        go_on[0] = rank or not os.path.exists(os.path.join(folder, "stop"))
        dist.broadcast(go_on, 0, group=pair)
        if rank == 0 and len(times) == 100:
            before = holding()
    after = holding()
    if rank == 2:
        wait_for(folder, "knock", 3600)
    # Only now does the third rank connect to the others, while strangers are at the door.
    began = time.monotonic()
    dist.all_reduce(data)
    write(folder, f"joined{rank}", time.monotonic() - began)
    pairs = list(zip(times[::2], times[1::2], strict=True))
    write(folder, f"worked{rank}", {"times": pairs, "before": before, "after": after})
    dist.destroy_process_group()


def holding() -> tuple[int, int]:
    """Return the bytes of memory and the descriptors that this process has."""
    with open("/proc/self/statm") as file:
        pages = int(file.read().split()[1])
    return pages * os.sysconf("SC_PAGESIZE"), len(os.listdir("/proc/self/fd"))


def write(folder: str, name: str, value: object) -> None:
    path = os.path.join(folder, name)
    with open(f"{path}.new", "w") as file:
        json.dump(value, file)
    os.rename(f"{path}.new", path)


def wait_for(folder: str, name: str, timeout_s: float = 120.0) -> Any:
    path, until = os.path.join(folder, name), time.monotonic() + timeout_s
    while not os.path.exists(path):
        if time.monotonic() > until:
            raise TimeoutError(f"{name} has not come")
        time.sleep(0.02)
    with open(path) as file:
        return json.load(file)


# ---------------------------------------------------------------------- those outside


class Visitor:
    """One hostile connection: what it says at first, and what it answers."""

    def __init__(self, port: int, kind: str, chance: random.Random) -> None:
        self.kind = kind
        self.port = port
        hello = HELLO.pack(b"RKW1", 1 - chance.randrange(2), chance.randrange(2), chance.choice((2, 3)), bytes(16))
        recorded = HELLO.pack(b"RKW1", 1, 0, 3, b"n" * 16) + b"p" * PROOF_NBYTES
        first = {
            "random": chance.randbytes(chance.randrange(1, 300)),
            "truncated": hello[: chance.randrange(1, len(hello))],
            "replayed": recorded,
            "no key": hello,
            "wrong role": hello,
            "silent": b"",
        }
        self.heard = b""
        self.answered = False
        self.since = time.monotonic()
        self.sock = socket.socket()
        self.sock.setblocking(False)
        self.sock.connect_ex(("127.0.0.1", port))
        self.first = first[kind]

    def step(self) -> bool:
        """Go on; tell whether it is over."""
        try:
            if self.first:
                self.sock.send(self.first)
                self.first = b""
            piece = self.sock.recv(4096)
        except (BlockingIOError, InterruptedError):
            return False
        except OSError:
            return True
        self.heard += piece
        if not self.answered and len(self.heard) >= ANSWER_NBYTES and self.kind in ("no key", "wrong role"):
            self.answered = True
            # Its own proof given back to the listener, or a guess.
            self.sock.send(self.heard[16:48] if self.kind == "wrong role" else os.urandom(PROOF_NBYTES))
        return not piece

    @property
    def is_in(self) -> bool:
        """Whether it was let in: a rank says so with one byte behind its answer."""
        return self.heard[ANSWER_NBYTES : ANSWER_NBYTES + 1] == WELCOME


KINDS = ("random", "truncated", "replayed", "no key", "wrong role", "silent")


def attack(ports: list[int], count: int, rate: float, chance: random.Random) -> Iterator[tuple[Counter[str], int]]:
    """Connect again and again; yield now and then how many of each kind have come, and how many got in."""
    came: Counter[str] = Counter()
    let_in = 0
    visitors: dict[int, Visitor] = {}
    order: deque[tuple[int, Visitor]] = deque()
    poller = select.poll()
    began = time.monotonic()

    def due() -> bool:
        number = came.total()
        return number < min(count, (time.monotonic() - began) * rate) and len(visitors) < OPEN_AT_ONCE

    def leave(fd: int) -> None:
        nonlocal let_in
        visitor = visitors.pop(fd, None)
        if visitor is not None:
            poller.unregister(fd)
            let_in += visitor.is_in
            visitor.sock.close()

    while came.total() < count or visitors:
        while due():
            visitor = Visitor(chance.choice(ports), chance.choice(KINDS), chance)
            came[visitor.kind] += 1
            visitors[visitor.sock.fileno()] = visitor
            order.append((visitor.sock.fileno(), visitor))
            poller.register(visitor.sock, select.POLLIN | (select.POLLOUT if visitor.first else 0))
        for fd, _ in poller.poll(10):
            visitor = visitors[fd]
            if visitor.step():
                leave(fd)
            else:
                poller.modify(fd, select.POLLIN)
        now = time.monotonic()
        while order and (visitors.get(order[0][0]) is not order[0][1] or now - order[0][1].since > PATIENCE_S):
            fd, visitor = order.popleft()
            if visitors.get(fd) is visitor:  # the descriptor may be another's by now
                leave(fd)
        yield came, let_in


# ---------------------------------------------------------------------- the measurement


@contextmanager
def job(folder: str) -> Iterator[list[subprocess.Popen[bytes]]]:
    """Run three ranks with a secret, over TCP."""
    secret = os.path.join(folder, "secret")
    with open(os.open(secret, os.O_WRONLY | os.O_CREAT, 0o600), "w") as file:
        file.write(secrets.token_hex(32))
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port = probe.getsockname()[1]
    common = {
        **os.environ,
        "RANKWISE_SECRET_FILE": secret,
        "RANKWISE_GLOO_TRANSPORT": "tcp",
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(port),
        "WORLD_SIZE": "3",
        "OMP_NUM_THREADS": "1",
    }
    write(folder, "store", port)
    ranks = [
        subprocess.Popen([sys.executable, __file__, "--work", folder], env={**common, "RANK": str(rank)})
        for rank in range(3)
    ]
    try:
        yield ranks
    finally:
        for rank in ranks:
            rank.kill()
            rank.wait()


@contextmanager
def somebody_else() -> Iterator[int]:
    """Listen at a port where the same visitors can be sent: what they cost the machine without being at our door."""
    with socket.create_server(("127.0.0.1", 0), backlog=1024) as listener:
        child = os.fork()
        if child == 0:
            while True:
                visitor, _ = listener.accept()
                visitor.close()
        try:
            yield listener.getsockname()[1]
        finally:
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)


def measure(count: int, rate: float, seed: int) -> dict[str, Any]:
    """Attack a job, and return what came of it."""
    chance = random.Random(seed)
    with tempfile.TemporaryDirectory() as folder, somebody_else() as decoy, job(folder) as ranks:
        ports = [*wait_for(folder, "ports0"), *wait_for(folder, "ports1"), wait_for(folder, "store")]
        time.sleep(CALM_S)
        decoy_at = time.monotonic()
        for _ in attack([decoy], min(count // 4, 5000), rate, chance):
            pass
        began = knocked_at = time.monotonic()
        come, let_in = Counter[str](), 0
        for came, inside in attack(ports, count, rate, chance):
            come, let_in = came, inside
            if knocked_at == began and came.total() >= count * 3 // 4:
                knocked_at = time.monotonic()
                write(folder, "stop", 1)
                write(folder, "knock", 1)
        took_s = time.monotonic() - began
        joined = [wait_for(folder, f"joined{rank}") for rank in range(3)]
        worked = [wait_for(folder, f"worked{rank}") for rank in range(2)]
        codes = [rank.wait(60) for rank in ranks]
    times = worked[0]["times"]
    calm, beside, under = (
        median(took for at, took in times if first <= at < last) * 1e6
        for first, last in ((0, decoy_at), (decoy_at, began), (began, knocked_at))
    )
    return {
        "connections": come.total(),
        "kinds": dict(come),
        "let_in": let_in,
        "connections_per_s": come.total() / took_s,
        "calm_us": calm,
        "beside_us": beside,
        "attacked_us": under,
        "slower": under / beside - 1,
        "memory_gained_nbytes": max(one["after"][0] - one["before"][0] for one in worked),
        "descriptors_gained": max(one["after"][1] - one["before"][1] for one in worked),
        "third_rank_joined_s": joined[2],
        "exit_codes": codes,
    }


def main() -> None:
    """Attack a job, and print what came of it."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--count", type=int, default=2000, help="hostile connections; default 2000")
    parser.add_argument("--rate", type=float, default=200.0, help="how many a second; default 200")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--json", metavar="FILE", help="write the figures to this file")
    parser.add_argument("--work", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.work:
        work(options.work)
        return
    found = measure(options.count, options.rate, options.seed)
    kinds = ", ".join(f"{count} {kind}" for kind, count in sorted(found["kinds"].items()))
    print(f"{found['connections']} hostile connections, {found['connections_per_s']:.0f} a second ({kinds})")
    print(f"let in: {found['let_in']}")
    print(
        f"all_reduce of {NBYTES >> 10} KiB on 2 ranks: {found['calm_us']:.0f} us in peace, {found['beside_us']:.0f} us "
        f"while as many connect to another program, {found['attacked_us']:.0f} us under attack ({found['slower']:+.1%})"
    )
    held = found["descriptors_gained"]
    print(f"a rank gained at most {found['memory_gained_nbytes'] / 1024:.0f} KiB, and held {held} descriptors more")
    print(f"a third rank came in during the attack within {found['third_rank_joined_s'] * 1e3:.0f} ms")
    print(f"exit codes of the ranks: {found['exit_codes']}")
    if options.json:
        with open(options.json, "w") as file:
            json.dump(found, file, indent=2)
    if found["let_in"] or any(found["exit_codes"]):
        sys.exit(1)


if __name__ == "__main__":
    main()
