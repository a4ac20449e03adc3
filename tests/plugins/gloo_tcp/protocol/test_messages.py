"""Whole ranks without connections: random programs over windows of 1 KiB; links bring their frames in any order."""

from __future__ import annotations

import sys
from contextlib import ExitStack
from pathlib import Path
from random import Random

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule

sys.path.insert(0, str(Path(__file__).parent))
from worlds import DTYPES, IN_STEP, SIZES, WINDOW, World, small_windows

ranks, peers, tags = st.integers(0, 2), st.integers(0, 2), st.sampled_from([0, 0, 1, 2, IN_STEP])
sizes, dtypes = st.sampled_from(SIZES), st.sampled_from([1, 1, 1, 0, 2, 3])


class Messages(RuleBasedStateMachine):
    """Programs that hypothesis writes, and makes short when they fail."""

    @initialize(size=st.integers(2, 3), seed=st.integers(0, 1 << 20))
    def begin(self, size: int, seed: int) -> None:
        self.stack = ExitStack()
        self.stack.enter_context(small_windows())
        self.world = World(size, Random(seed))

    @rule(rank=ranks, to=peers, tag=tags, nbytes=sizes, dtype=dtypes, prefix=st.integers(0, 8))
    def send(self, rank: int, to: int, tag: int, nbytes: int, dtype: int, prefix: int) -> None:
        self.world.send(rank % self.world.size, to % self.world.size, tag, nbytes, dtype, prefix)
        self.world.check()

    @rule(rank=ranks, source=st.none() | peers, tag=tags, nbytes=st.sampled_from([*SIZES, 4096]), dtype=dtypes)
    def receive(self, rank: int, source: int | None, tag: int, nbytes: int, dtype: int) -> None:
        source = None if source is None else source % self.world.size
        self.world.receive(rank % self.world.size, source, tag, nbytes, dtype)
        self.world.check()

    @rule(rank=ranks)
    def withdraw(self, rank: int) -> None:
        self.world.withdraw(rank % self.world.size)

    @rule(count=st.integers(1, 6))
    def move(self, count: int) -> None:
        for _ in range(count):
            self.world.step()

    @rule(rank=ranks, really=st.integers(0, 5))
    def leave(self, rank: int, really: int) -> None:
        if not really:
            self.world.leave(rank % self.world.size)

    @rule(rank=ranks, really=st.integers(0, 15))
    def abort(self, rank: int, really: int) -> None:
        if not really:
            self.world.abort(rank % self.world.size)

    def teardown(self) -> None:
        if hasattr(self, "stack"):
            try:
                self.world.drain()
            finally:
                self.stack.close()


TestMessages = Messages.TestCase
TestMessages.settings = settings(
    max_examples=80, stateful_step_count=40, deadline=None, suppress_health_check=list(HealthCheck)
)


def play(world: World, steps: int, ends: bool) -> None:
    """Make random calls, and let things move now and then."""
    random = world.random
    for _ in range(steps):
        what, rank, peer = random.random(), random.randrange(world.size), random.randrange(world.size)
        tag, nbytes = random.choice([0, 0, 1, 2, IN_STEP]), random.choice(SIZES)
        dtype = random.choice([1] * 6 + [*range(len(DTYPES))])
        if what < 0.36:
            world.send(rank, peer, tag, nbytes, dtype, random.randrange(9))
        elif what < 0.62:
            source = None if random.random() < 0.3 else peer
            world.receive(rank, source, tag, random.choice([4 * WINDOW, 4 * WINDOW, nbytes]), dtype)
        elif what < 0.64:
            world.withdraw(rank)
        elif what > 0.998 and ends:
            random.choice([world.leave, world.leave, world.abort])(rank)
        else:
            world.step()
        world.check()


@pytest.mark.parametrize("seed", range(40))
def test_each_message_reaches_the_receive_that_mpi_says(seed: int) -> None:
    with small_windows():
        world = World(2 + seed % 2, Random(seed))
        play(world, 400, ends=seed % 4 == 3)
        world.drain()


@pytest.mark.parametrize("seed", range(12))
def test_what_was_issued_before_a_rank_left_is_there_for_later_receives(seed: int) -> None:
    """Rank 0 sends far more than the window holds, and leaves while nobody has asked for anything."""
    with small_windows():
        world = World(3, Random(seed))
        for _ in range(40):
            world.send(0, world.random.randint(1, 2), world.random.randint(0, 2), world.random.choice(SIZES), 1, 0)
        early = world.random.randint(0, 60)
        for _ in range(early):
            world.step()
        world.leave(0)
        world.drain()
        assert world.ranks[0].left
        for rank in (1, 2):
            for message in list(world.ranks[rank].messages):
                world.receive(rank, 0, message.tag, 4 * WINDOW, 1)
                assert message.receive is not None
                assert message.receive.done
            world.receive(rank, 0, 0, 10, 1)
            last = world.received[-1][1]
            assert last.done
            assert "destroyed" in str(last.error)
        world.drain()


@pytest.mark.parametrize("seed", range(12))
def test_a_message_overtakes_all_that_nobody_receives(seed: int) -> None:
    """However much waits under one tag, a message of another tag comes as soon as its receive does."""
    with small_windows():
        world = World(2, Random(seed))
        for _ in range(50):
            world.send(0, 1, 0, world.random.choice(SIZES), 1, 0)
        world.send(0, 1, 1, world.random.choice(SIZES), 1, 0)
        world.receive(1, world.random.choice([0, None]), 1, 4 * WINDOW, 1)
        while world.step():
            pass
        assert world.received[0][1].done
        assert len(world.ranks[1].messages) == 50
        for _ in range(50):
            world.receive(1, 0, 0, 4 * WINDOW, 1)
        world.drain()


@pytest.mark.parametrize("moves", range(30))
def test_a_group_can_be_given_up_at_any_moment(moves: int) -> None:
    """Peers that do not know it yet still ask for messages and bring some."""
    with small_windows():
        world = World(2, Random(moves))
        world.unasked, world.readable = (0, 0), False
        for index in range(5):
            for rank in range(2):
                world.send(rank, 1 - rank, index % 2, 500, 1, 0)
                world.receive(rank, 1 - rank, index % 2, 500, 1)
        for _ in range(moves):
            world.step()
        world.abort(0)
        world.drain()
        assert all(me.aborted for me in world.ranks)


def test_a_send_that_finds_a_farewell_ends_with_it(monkeypatch: pytest.MonkeyPatch) -> None:
    with small_windows():
        world = World(2, Random(0))
        world.unasked = 1 << 62, 1 << 62
        while world.ranks[0].outbox.windows[1].fits(100):
            world.send(0, 1, 0, 100, 1, 0)
        world.leave(1)
        world._say_goodbye(world.ranks[1])
        monkeypatch.setattr(world.ranks[0], "refresh", lambda to: world.deliver(to, 0))
        world.send(0, 1, 0, 100, 1, 0)
        assert "destroyed" in str(world.issued[-1].request.error)
        assert not world.ranks[0].outbox.outstanding()
