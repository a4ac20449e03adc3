"""Hostile connections against a running job: how many get past its doors, and what they cost.

    python benchmarks/hostile.py [--count 2000] [--rate 200] [--json FILE]

Two ranks reduce arrays over TCP, one after the other without a pause, and a third waits outside. Meanwhile others,
who take their share of this machine's processors too and so are first sent to another program for comparison, connect
to the ports of the ranks: with random bytes, with half a hello, with the recording of another handshake, with the name
of a rank but no key or another one, with the proof of the other role, and with nothing but patience. To the store they
come with random bytes, as a client of another job, and as one that knows the store's key but is not known to it.
They speak as the product does, by its own functions, and each must get as far as it aims: to the door, to an answer, or
to where its proof is judged.
Printed are how many got so far, how many were let in, how much longer an all_reduce takes, how much memory and how many
descriptors a rank has gained, and how long the third rank takes to come in while the attack goes on.
"""

from __future__ import annotations

import argparse
import array
import json
import math
import os
import random
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from statistics import median
from typing import Any

import zmq

from rankwise_gloo_tcp.protocol import handshake
from rankwise_network import secret as job_secret
from rankwise_stores.tcp import wire
from rankwise_stores.tcp.guard import Keys
from rankwise_stores.tcp.zeromq import MONITOR_EVENT, url

#: How many hostile connections are open at once, how long one stays that only waits, and how long one waits for what it
#: aims at.
OPEN_AT_ONCE, STAY_S, PATIENCE_S = 200, 2.0, 20.0
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
        acceptors = [engine.peers.acceptor for engine in (own, world)]
        write(
            folder,
            f"doors{rank}",
            [(each.getsockname()[1], at.rank, at.size) for at in acceptors for each in at.listeners],
        )
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
    wait_for(folder, "over", 3600)
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


#: How far a visitor gets: to the door, to an answer, or to where it is shown out after all that it had to say.
CONNECTED, ANSWERED, JUDGED = range(3)


class Visitor:
    """One hostile connection to a rank: what it says at first, and what it answers.

    Attributes:
        aim: How far it must get, that what it tries is tried at all.
        reached: How far it has got.
    """

    def __init__(self, port: int, kind: str, chance: random.Random, rank: int = 0, size: int = 2) -> None:
        self.kind, self.key = kind, chance.randbytes(32)
        self.hello = handshake.Hello.new((rank + 1) % size, rank, size)
        hello = self.hello.pack()
        first, self.aim = {
            "random": (chance.randbytes(chance.randrange(len(hello), 300)), JUDGED),
            "truncated": (hello[: chance.randrange(1, len(hello))], CONNECTED),
            "replayed": (hello + handshake.proof(self.key, self.hello, handshake.answer(self.key, self.hello)), JUDGED),
            "no key": (hello, JUDGED),
            "another key": (hello, JUDGED),
            "wrong role": (hello, JUDGED),
            "silent": (b"", CONNECTED),
            "random to the store": (chance.randbytes(chance.randrange(64, 300)), JUDGED),
        }[kind]
        self.first = first
        self.proves = len(first) >= len(hello) and first.startswith(hello)
        self.heard, self.reached = b"", -1
        self.since = time.monotonic()
        self.sock = socket.socket()
        self.sock.setblocking(False)
        self.sock.connect_ex(("127.0.0.1", port))

    def step(self) -> bool:
        """Go on; tell whether it is over."""
        try:
            if self.first:
                self.sock.send(self.first)
                self.first = b""
            piece = self.sock.recv(4096)
        except BlockingIOError:
            with suppress(OSError):
                self.sock.getpeername()
                self.reached = max(self.reached, CONNECTED)
            return False
        except OSError:
            return self._end()
        self.heard += piece
        if self.proves and self.reached < ANSWERED and len(self.heard) >= handshake.ANSWER_NBYTES:
            self.reached = ANSWERED
            if self.kind != "replayed":
                with suppress(OSError):
                    self.sock.send(self._proof(self.heard[: handshake.ANSWER_NBYTES]))
        return not piece and self._end()

    def _proof(self, answered: bytes) -> bytes:
        if self.kind == "wrong role":  # the listener's own, given back to it
            return answered[-handshake.PROOF_NBYTES :]
        if self.kind == "another key":
            return handshake.proof(self.key, self.hello, answered)
        return os.urandom(handshake.PROOF_NBYTES)

    def _end(self) -> bool:
        if not self.first and (self.reached == ANSWERED or not self.proves):
            self.reached = JUDGED
        return True

    @property
    def patience_s(self) -> float:
        """How long it stays at the most."""
        return STAY_S if self.aim == CONNECTED else PATIENCE_S

    @property
    def is_in(self) -> bool:
        """Whether it was let in: a rank says so with one byte behind its answer."""
        return self.heard[handshake.ANSWER_NBYTES :][:1] == handshake.WELCOME

    def close(self) -> None:
        self.sock.close()


class StoreVisitor:
    """One hostile client of the store, by its own protocol; what it gets to is what ZeroMQ reports of it."""

    aim, patience_s = JUDGED, PATIENCE_S

    def __init__(self, context: zmq.Context[Any], port: int, kind: str, chance: random.Random, keys: Keys) -> None:
        own = Keys.of(chance.randbytes(32))
        if kind == "unknown to the store":
            own = own._replace(server_public=keys.server_public)
        self.kind, self.reached, self.is_in = kind, -1, False
        self.since = time.monotonic()
        self.sock = context.socket(zmq.DEALER)
        self.sock.linger, self.sock.reconnect_ivl = 0, -1
        own.guard_client(self.sock)
        self.monitor = self.sock.get_monitor_socket()
        self.sock.connect(url("127.0.0.1", port))
        with suppress(zmq.Again):  # it has been shown out already
            self.sock.send(wire.Piece.LAST + wire.encode_request(1, "peek", None, ["key"]), zmq.NOBLOCK)

    def step(self) -> bool:
        """Go on; tell whether it is over."""
        while self.monitor.poll(0):
            event, _ = MONITOR_EVENT.unpack(self.monitor.recv_multipart()[0])
            if event == zmq.EVENT_CONNECTED:
                self.reached = CONNECTED
            elif event == zmq.EVENT_HANDSHAKE_SUCCEEDED:
                self.is_in = True
            elif event in _SHOWN_OUT:
                self.reached = JUDGED
                return True
        return False

    def close(self) -> None:
        self.sock.disable_monitor()
        self.monitor.close(0)
        self.sock.close(0)


_SHOWN_OUT = (
    *(zmq.EVENT_HANDSHAKE_FAILED_AUTH, zmq.EVENT_HANDSHAKE_FAILED_NO_DETAIL, zmq.EVENT_HANDSHAKE_FAILED_PROTOCOL),
    zmq.EVENT_DISCONNECTED,
)
KINDS = ("random", "truncated", "replayed", "no key", "another key", "wrong role", "silent")
STORE_KINDS = ("random to the store", "of another job", "unknown to the store")


class Doors:
    """Where visitors come to: the ports of ranks, with rank and size of the group, and that of a store."""

    def __init__(self, ranks: Sequence[tuple[int, int, int]], store: int | None, secret: bytes) -> None:
        self._ranks, self._store, self._keys = ranks, store, Keys.of(secret)
        self._context = zmq.Context()
        self._context.set(zmq.MAX_SOCKETS, 4 * OPEN_AT_ONCE)

    def visitor(self, chance: random.Random) -> Visitor | StoreVisitor:
        """Send somebody to one of them."""
        kind = chance.choice(KINDS + STORE_KINDS if self._store else KINDS)
        if self._store and kind == "random to the store":
            return Visitor(self._store, kind, chance)
        if self._store and kind in STORE_KINDS:
            return StoreVisitor(self._context, self._store, kind, chance, self._keys)
        port, rank, size = chance.choice(self._ranks)
        return Visitor(port, kind, chance, rank, size)


class Tally:
    """How many of each kind have come, how many of those have not got as far as they aim, and how many got in."""

    def __init__(self) -> None:
        self.came: Counter[str] = Counter()
        self.short: Counter[str] = Counter()
        self.let_in = 0

    def count(self, visitor: Visitor | StoreVisitor) -> None:
        """Count one that has gone."""
        self.short[visitor.kind] += visitor.reached < visitor.aim
        self.let_in += visitor.is_in


def attack(doors: Doors, count: int, rate: float, chance: random.Random) -> Iterator[Tally]:
    """Connect again and again; yield now and then what has come of it so far."""
    tally, began = Tally(), time.monotonic()
    visitors: list[Visitor | StoreVisitor] = []
    while tally.came.total() < count or visitors:
        due = min(count, (time.monotonic() - began) * rate) - tally.came.total()
        for _ in range(min(math.ceil(due), OPEN_AT_ONCE - len(visitors))):
            visitors.append(doors.visitor(chance))
            tally.came[visitors[-1].kind] += 1
        now, stay = time.monotonic(), []
        for visitor in visitors:
            if visitor.step() or now - visitor.since > visitor.patience_s:
                tally.count(visitor)
                visitor.close()
            else:
                stay.append(visitor)
        visitors = stay
        time.sleep(0.005)
        yield tally


# ---------------------------------------------------------------------- the measurement


@contextmanager
def job(folder: str) -> Iterator[list[subprocess.Popen[bytes]]]:
    """Run three ranks with a secret, over TCP."""
    secret = os.path.join(folder, "secret")
    job_secret.new_file(secret)
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
        at = [*wait_for(folder, "doors0"), *wait_for(folder, "doors1")]
        with open(os.path.join(folder, "secret")) as file:
            secret = job_secret.from_hex(file.read().strip())
        time.sleep(CALM_S)
        decoy_at = time.monotonic()
        for _ in attack(Doors([(decoy, 0, 2)], None, secret), min(count // 4, 5000), rate, chance):
            pass
        began = knocked_at = time.monotonic()
        tally = Tally()
        for tally in attack(Doors(at, wait_for(folder, "store"), secret), count, rate, chance):
            if knocked_at == began and tally.came.total() >= count * 3 // 4:
                knocked_at = time.monotonic()
                write(folder, "stop", 1)
                write(folder, "knock", 1)
        took_s = time.monotonic() - began
        write(folder, "over", 1)
        joined = [wait_for(folder, f"joined{rank}") for rank in range(3)]
        worked = [wait_for(folder, f"worked{rank}") for rank in range(2)]
        codes = [rank.wait(60) for rank in ranks]
    times = worked[0]["times"]
    calm, beside, under = (
        median(took for at, took in times if first <= at < last) * 1e6
        for first, last in ((0, decoy_at), (decoy_at, began), (began, knocked_at))
    )
    return {
        "connections": tally.came.total(),
        "kinds": dict(tally.came),
        "short": dict(+tally.short),
        "let_in": tally.let_in,
        "connections_per_s": tally.came.total() / took_s,
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
    print(f"stopped before what they aim at: {found['short'] or 'none'}")
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
    if found["let_in"] or found["short"] or any(found["exit_codes"]):
        sys.exit(1)


if __name__ == "__main__":
    main()
