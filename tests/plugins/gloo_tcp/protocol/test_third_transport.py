"""Whole engines over a transport that they have never heard of: random programs, delays, little room, broken ends."""

from __future__ import annotations

import sys
import threading
from collections import defaultdict, deque
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from random import Random
from unittest import mock

import numpy as np
import pytest

from rankwise.errors import DistError, DistNetworkError
from rankwise_gloo_tcp.engine.config import EngineConfig
from rankwise_gloo_tcp.engine.engine import Engine
from rankwise_gloo_tcp.engine.fast_path import FastPath
from rankwise_gloo_tcp.engine.idle_poller import IdlePoller
from rankwise_gloo_tcp.engine.progress_thread import ProgressThread
from rankwise_gloo_tcp.engine.request import Request
from rankwise_gloo_tcp.protocol.card import Card

sys.path.insert(0, str(Path(__file__).parent))
from memory_channel import MemoryChannel, NoSleep, Wire
from worlds import SIZES, small_windows

TAGS = (0, 1, 7)
CARD = Card(
    **{name: {"cores": ("1", 1.0)}.get(name, 0 if name in ("uid", "pid", "port") else "") for name in Card._fields}
)
#: Every message arrives after so many rounds, or never does.
ROUNDS = 20_000


class World:
    """Engines of one process, joined by memory channels, which this drives alone and in any order."""

    def __init__(self, size: int, random: Random) -> None:
        self.random, self.size, self.now = random, size, 0
        self.failures: list[list[DistError]] = [[] for _ in range(size)]
        self.engines = [
            Engine(EngineConfig(rank, [CARD] * size, b"", False, tuple(range(size)), 10.0, self._failed(rank), False))
            for rank in range(size)
        ]
        self.wires = {(a, b): Wire(random, lambda: self.now) for a in range(size) for b in range(size) if a != b}
        for rank, engine in enumerate(self.engines):
            channels = [
                MemoryChannel(engine.dispatcher, peer, self.wires[rank, peer], self.wires[peer, rank], random)
                for peer in range(size)
                if peer != rank
            ]
            engine.use_pipes(channels, NoSleep(), lambda: None)  # type: ignore[arg-type]
            engine.progress_lock.spin_policy.spin_s = random.choice([0.0, 1e-5])
        self.fast = [FastPath(engine) for engine in self.engines]
        self.dead: set[int] = set()

    def _failed(self, rank: int):  # type: ignore[no-untyped-def]
        def failed(error: DistError) -> None:
            self.failures[rank].append(error)
            self.engines[rank].abort(error)

        return failed

    def step(self) -> None:
        self.now += 1
        rank = self.random.randrange(self.size)
        if rank not in self.dead:
            self.engines[rank].look()

    def until_done(self, requests: list[Request]) -> None:
        for _ in range(ROUNDS):
            if all(request.done for request in requests):
                return
            self.step()
        raise AssertionError(f"{sum(not request.done for request in requests)} requests stand still")

    def die(self, rank: int) -> None:
        """End a rank as a crash does: nothing more leaves it, and its ends break."""
        self.dead.add(rank)
        for (a, b), wire in self.wires.items():
            wire.broken = wire.broken or rank in (a, b)

    def close(self) -> None:
        threads = [threading.Thread(target=engine.close) for engine in self.engines]
        self.now += 1000
        for thread in threads:
            thread.start()
        while any(thread.is_alive() for thread in threads):
            self.now += 1
            threads[0].join(0.001)
        for thread in threads:
            thread.join()


@contextmanager
def alone() -> Iterator[None]:
    """Have nobody but the test drive the engines."""
    with small_windows(), mock.patch.object(ProgressThread, "wake"), mock.patch.object(IdlePoller, "add"):
        yield


class Program:
    """Random messages, and what MPI says of them: between two ranks, those of one tag arrive in their order."""

    def __init__(self, world: World) -> None:
        self.world, self.random, self.count = world, world.random, 0
        self.requests: list[Request] = []
        self.sent: dict[tuple[int, int, int], deque[bytes]] = defaultdict(deque)
        self.owed: dict[tuple[int, int, int], int] = defaultdict(int)
        self.received: list[tuple[tuple[int, int, int], np.ndarray, Request | None]] = []  # type: ignore[type-arg]

    def send(self, key: tuple[int, int, int]) -> None:
        source, to, tag = key
        self.count += 1
        content = np.frombuffer(self.random.randbytes(self.random.choice(SIZES)), np.uint8)
        self.sent[key].append(content.tobytes())
        self.owed[key] += 1
        done = self.world.fast[source].send(content, to, tag)
        if done is not True:
            self.requests.append(done or self.world.engines[source].send(content, to, tag))

    def receive(self, key: tuple[int, int, int]) -> None:
        source, to, tag = key
        if not self.owed[key]:
            return
        self.owed[key] -= 1
        position = len([1 for other, _, _ in self.received if other == key])
        room = np.zeros(len(list(self.sent[key])[position]), np.uint8)
        # What was begun before must be met before.
        waiting = any(other == key and request and not request.done for other, _, request in self.received)
        request = None
        self.world.now += self.random.randrange(50)  # so that some of it is there, and nobody has looked at it
        if waiting or not self.world.fast[to].receive(room, source, tag):
            request = self.world.engines[to].receive(room, source, tag)
            self.requests.append(request)
        self.received.append((key, room, request))

    def run(self, steps: int) -> None:
        ranks = range(self.world.size)
        for _ in range(steps):
            source, to = self.random.sample(ranks, 2)
            key = source, to, self.random.choice(TAGS)
            self.random.choice([self.send, self.receive, lambda _: self.world.step()])(key)

    def finish(self) -> None:
        for key in list(self.owed):
            while self.owed[key]:
                self.receive(key)
        self.world.until_done(self.requests)

    def check(self) -> None:
        assert not any(request.error for request in self.requests)
        taken: dict[tuple[int, int, int], int] = defaultdict(int)
        for key, room, _ in self.received:
            assert room.tobytes() == list(self.sent[key])[taken[key]]
            taken[key] += 1
        assert sum(taken.values()) == self.count


@pytest.mark.parametrize("seed", range(25))
def test_random_programs_are_right_over_a_transport_of_its_own(seed: int) -> None:
    random = Random(seed)
    with alone():
        world = World(random.choice([2, 3]), random)
        program = Program(world)
        program.run(100)
        program.finish()
        program.check()
        moved = [engine.moved_nbytes() for engine in world.engines]
        assert all(set(ways) <= {"memory"} for ways in moved)
        world.close()
        assert not any(world.failures)


@pytest.mark.parametrize("seed", range(15))
def test_a_broken_end_ends_all_that_needs_it_and_stands_still_nowhere(seed: int) -> None:
    random = Random(seed)
    with alone():
        world = World(3, random)
        program = Program(world)
        program.run(40)
        world.die(2)
        living = [request for request in program.requests if world.engines.index(request.engine) != 2]  # type: ignore[arg-type]
        lost = [engine.receive(np.zeros(8, np.uint8), 2, 99) for engine in world.engines[:2]]
        world.until_done(lost)
        for request in lost:
            assert isinstance(request.error, DistNetworkError)
            assert request.error.rank == 2
        world.until_done(living)  # right, or with the error: the group has failed
        for request in living:
            assert request.error is None or isinstance(request.error, DistError)
        for engine in world.engines:
            engine.abort(DistNetworkError("the test is over"))
        world.close()


def test_nothing_asks_a_channel_which_class_it_is():
    import ast

    import rankwise_gloo_tcp

    for path in Path(rankwise_gloo_tcp.__file__).parent.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            asked: list[ast.expr] = []
            if isinstance(node, ast.Call) and ast.unparse(node.func) == "isinstance":
                asked = node.args[1:]
            elif isinstance(node, ast.Compare) and isinstance(node.ops[0], (ast.Is, ast.IsNot, ast.Eq, ast.NotEq)):
                asked = node.comparators
            names = {name.id for each in asked for name in ast.walk(each) if isinstance(name, ast.Name)}
            assert not names & {"Connection", "Pipe"}, f"{path}:{node.lineno}: {ast.unparse(node)}"
