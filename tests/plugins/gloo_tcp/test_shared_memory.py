"""What goes through shared memory, under calls drawn at random; `RANKWISE_STRESS=1` draws many more."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from typing import Any

import memory_programs as programs
import pytest

from rankwise_testing import RankPool

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="shared memory needs Linux")

STRESS = os.environ.get("RANKWISE_STRESS") == "1"
TIMEOUT_S = 400.0 if STRESS else 60.0


WAYS = [(2, "off"), (3, "on"), (2, "on"), (3, "off")]


@pytest.fixture(scope="module", params=WAYS[: 4 if STRESS else 2], ids=lambda way: f"{way[0]}-{way[1]}")
def pool(request: pytest.FixtureRequest, compiled: str) -> Iterator[RankPool]:
    """Two ranks with a processor each, or three, which may have to share; peers' memory may be read or not."""
    size, reading = request.param
    env = {
        "RANKWISE_GLOO_TRANSPORT": "shm",
        "RANKWISE_GLOO_PEER_MEMORY": reading,
        "RANKWISE_NATIVE": compiled,
        "PYTHONFAULTHANDLER": "1",
    }
    with RankPool(size, env=env) as pool:
        yield pool


@pytest.mark.parametrize("seed", range(20 if STRESS else 1))
def test_collectives_of_all_kinds_may_follow_each_other(pool: RankPool, seed: int) -> None:
    rounds = 600 if STRESS else 40
    names = pool.run(programs.collectives, 1000 * pool.size + seed, rounds, timeout=TIMEOUT_S)
    assert len(names[0]) == rounds
    assert all(other == names[0] for other in names)


@pytest.mark.parametrize("seed", range(20 if STRESS else 1))
def test_messages_of_all_sizes_and_ways_keep_their_order(pool: RankPool, seed: int) -> None:
    pool.run(programs.messages, 5000 * pool.size + 100 * seed, 8 if STRESS else 2, 24, timeout=TIMEOUT_S)


@pytest.mark.parametrize("seed", range(5 if STRESS else 1))
def test_receives_from_anyone_keep_the_order_of_each_source(pool: RankPool, seed: int) -> None:
    pool.run(programs.from_anyone, seed, 100 if STRESS else 12, timeout=TIMEOUT_S)


@pytest.mark.parametrize(
    ("program", "arguments"),
    [
        (programs.averages_of_what_has_no_quotient, ()),
        (programs.large_ones_in_another_order, (5 << 20,)),
        (programs.too_long_and_withdrawn, (20 if STRESS else 6,)),
        (programs.messages_outlive_their_sender, ()),
        (programs.exchanges, (200 if STRESS else 20,)),
        (programs.answered_through_a_full_ring, ()),
    ],
    ids=lambda given: getattr(given, "__name__", ""),
)
def test_what_ranks_do_comes_to_a_good_end(pool: RankPool, program: Any, arguments: tuple[int, ...]) -> None:
    pool.run(program, *arguments)


@pytest.mark.skipif(programs.secret(3_000_000) is None, reason="all memory can be read here")
def test_memory_that_others_cannot_read_is_passed_on(pool: RankPool) -> None:
    pool.run(programs.unreadable, 20 if STRESS else 2)


def test_a_receive_from_anyone_ends_at_its_timeout(pool: RankPool) -> None:
    # It looks for long, so that a busy machine cannot end the look by taking the processor away.
    assert 0.3 <= pool.run(programs.nobody_sends, 0.05)[0] < 0.7


def test_whoever_waits_for_room_is_woken(pool: RankPool) -> None:
    """A sender that misses its wake-up comes back at the next tick, after 50 ms."""
    late = pool.run(programs.waits_for_room, 100 if STRESS else 25, 3_000_000)[:2]
    assert max(late) <= 0.2


@pytest.mark.parametrize("sends", [False, True], ids=["reads", "writes"])
def test_a_death_in_the_middle_of_a_stream_is_noticed(pool: RankPool, sends: bool) -> None:
    for victim in range(pool.size) if STRESS else (pool.size - 1,):
        found = pool.run(programs.killed_in_a_stream, victim, sends, doomed=[victim])
        assert {f for rank, f in enumerate(found) if rank != victim} == {("PeerDiedError", victim)}


def test_an_answer_that_comes_after_the_group_was_given_up_does_no_harm(pool: RankPool) -> None:
    if pool._env["RANKWISE_GLOO_PEER_MEMORY"] == "on":
        pytest.skip("where memory is read nobody has to ask")
    for found in pool.run(programs.asked_for_after_the_abort, 10 if STRESS else 1):
        assert set(found) == {"GroupAbortedError"}


def test_a_receive_ends_if_the_group_is_given_up_while_it_reads(pool: RankPool) -> None:
    if not os.path.exists("/proc/self/fd") or pool._env["RANKWISE_GLOO_PEER_MEMORY"] == "off":
        pytest.skip("nobody reads another process's memory here")
    assert set(pool.run(programs.given_up_while_reading)) == {"GroupAbortedError"}


def test_groups_that_come_and_go_leave_nothing(pool: RankPool) -> None:
    for descriptors, boards, memory in pool.run(programs.cycles, 200 if STRESS else 4, timeout=TIMEOUT_S):
        assert descriptors == 0
        assert boards == 0
        assert memory < 16 << 20
