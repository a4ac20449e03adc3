"""Receives that are posted before their messages come: compiled, they stand in the engine's lines as all others do."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).parent))
import posted_programs as programs

from rankwise_testing import RankPool

PATIENCE_S = 60.0
SEEDS = range(6)


#: With the compiled parts on all ranks, on none, and on every other.
COMPILED = {"on": "on", "off": "off", "mixed": "{rank}"}

#: What `answers` returns, whoever has made the works.
ANSWERS = [
    "<Work: irecv, number 4, from rank 1, on group 'default': pending>",
    *(False, False, None, 0),
    "RuntimeError: source_rank() is for a receive that has completed",
    "DistTimeoutError: irecv from rank 1 on group 'default', rank 0: timed out: not done within 0.01 s",
    *(True, True, True, True),
    "<Work: irecv, number 4, from rank 1, on group 'default': done>",
    *(4, 1, 1, True, [7, 0]),
    "ValueError: 4 bytes are no whole number of elements of float64, which have 8",
    *(False, None, True, True, True, True, 1, True, True, True, True, True),
    "<Work: isend, number 7, to rank 1, on group 'default': done>",
    *(True, True, 0),
    "RuntimeError: source_rank() is for a receive that has completed",
    *(True, None, False, True),
]


@pytest.fixture(scope="module", params=COMPILED)
def two(request: pytest.FixtureRequest) -> Iterator[RankPool]:
    if request.param != "off":
        pytest.importorskip("rankwise_native", reason="rankwise-native is not installed: there may be no compiler")
    env = {"RANKWISE_NATIVE": COMPILED[request.param], "RANKWISE_GLOO_TRANSPORT": "shm"}
    with RankPool(2, env=env) as pool:
        yield pool


@pytest.fixture(scope="module")
def three(compiled: str) -> Iterator[RankPool]:
    with RankPool(3, env={"RANKWISE_NATIVE": compiled, "RANKWISE_GLOO_TRANSPORT": "shm"}) as pool:
        yield pool


def first(pool: RankPool, function: Callable[..., Any], *args: Any) -> Any:
    """Return what rank 0 returns."""
    return pool.run(programs.in_world, function, *args, timeout=2 * PATIENCE_S)[0]


@pytest.mark.parametrize("seed", SEEDS)
def test_messages_come_in_order_to_one_of_two(two: RankPool, seed: int) -> None:
    first(two, programs.lines, seed)


@pytest.mark.parametrize("seed", SEEDS)
def test_messages_come_in_order_whenever_their_receives_were_posted(three: RankPool, seed: int) -> None:
    first(three, programs.lines, seed)


@pytest.mark.parametrize("seed", SEEDS)
def test_each_receive_gets_the_next_of_its_tag_whatever_others_do(two: RankPool, seed: int) -> None:
    first(two, programs.mixed, seed)


@pytest.mark.parametrize("hook", ["copied", "met", "read"])
def test_a_receive_at_whose_end_a_handler_raises_does_not_wait_for_ever(hook: str) -> None:
    pytest.importorskip("rankwise_native", reason="rankwise-native is not installed: there may be no compiler")
    env = {"RANKWISE_NATIVE": "off" if hook == "read" else "on", "RANKWISE_GLOO_TRANSPORT": "shm"}
    with RankPool(2, env=env) as pool:
        assert pool.run(programs.interrupted, hook, timeout=2 * PATIENCE_S)[0] < 5.0


def test_threads_that_make_compiled_messages_at_once_make_the_same() -> None:
    pytest.importorskip("rankwise_native", reason="rankwise-native is not installed: there may be no compiler")
    with RankPool(2, env={"RANKWISE_NATIVE": "on", "RANKWISE_GLOO_TRANSPORT": "shm"}) as pool:
        first(pool, programs.made_twice)


@pytest.mark.parametrize("count", [3, 200])
def test_sends_end_while_the_receiver_computes(two: RankPool, count: int) -> None:
    first(two, programs.many, count)


def test_a_receive_that_is_only_asked_about_ends_soon(two: RankPool) -> None:
    assert min(first(two, programs.polled) for _ in range(5)) < 0.1


def test_receives_end_as_others_where_no_message_comes(two: RankPool) -> None:
    withdrawn, long, other, late, aborted = first(two, programs.endings)
    assert "withdrawn" in withdrawn
    assert "32 bytes" in long
    assert "int64" in other
    assert late.startswith("DistTimeoutError: irecv from rank 1 on group ")
    assert "not done within 0.3 s, waiting for rank 1" in late
    assert aborted == "GroupAbortedError"


def test_compiled_works_say_what_those_of_python_say(two: RankPool) -> None:
    assert first(two, programs.answers) == ANSWERS


def test_receives_that_nobody_asks_about_count_as_ended_once_they_have(two: RankPool) -> None:
    assert first(two, programs.unasked) == [0, 2, 2, 4, 4, 6]


def test_a_receive_ends_with_its_sender(two: RankPool) -> None:
    assert first(two, programs.parted).startswith("PeerDiedError: rank 1 ")


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_the_child_of_a_fork_takes_no_message_of_its_parent(two: RankPool) -> None:
    assert first(two, programs.forked).startswith("ForkedProcessError: ")
