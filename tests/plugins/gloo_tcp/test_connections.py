"""Several connections between two ranks on different hosts: the setting, and groups that have them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import connection_programs as programs
import pytest
from failing import all_hear
from programs import meeting_at

from rankwise.errors import ProtocolError
from rankwise_gloo_tcp.protocol.handshake import Hello, read_hello
from rankwise_testing import RankPool

#: Well below the time-out of the groups, 30 s.
LEEWAY_S = 10.0
TIMEOUT_S = 120.0
#: How many ranks there are, and how many of them each host has.
PLACES = [(2, 1), (3, 1), (4, 2), (3, 2)]
ALL_HEAR = pytest.mark.parametrize(("size", "each"), [(2, 1), (3, 1), (4, 2)])


def pool_of(size: int, each: int, connections: object = 4, **env: str) -> RankPool:
    """Return ranks that take themselves for those of several hosts."""
    told = {programs.VARIABLE: str(connections), "RANKS_OF_A_HOST": str(each), "PYTHONFAULTHANDLER": "1"}
    return RankPool(size, env={**told, **env})


@pytest.fixture(scope="module", params=PLACES, ids=str)
def pool(request: pytest.FixtureRequest) -> Iterator[RankPool]:
    """Ranks on several hosts, with four connections."""
    with pool_of(*request.param) as made:
        yield made


@pytest.fixture(scope="module")
def two() -> Iterator[RankPool]:
    """Two hosts, with four connections."""
    with pool_of(2, 1) as made:
        yield made


def run(tmp_path: Path, pool: RankPool, function: Callable[..., Any], *args: object, doomed: Any = ()) -> list[Any]:
    """Call a function of the programs on ranks that meet at a file, where any may die."""
    with pool:
        return pool.run(meeting_at, f"file://{tmp_path / 'meet'}", function, *args, doomed=doomed)


def test_long_calls_bring_the_same_bytes_as_over_one_connection(pool: RankPool) -> None:
    for moved in pool.run(programs.as_with_one, 3, timeout=TIMEOUT_S):
        assert len(moved) == 3


@pytest.mark.parametrize("integrity", ["encrypted", "full"])
@pytest.mark.parametrize(("size", "each"), [(2, 1), (4, 2)])
def test_they_do_where_what_moves_is_protected(size: int, each: int, integrity: str) -> None:
    with pool_of(size, each, RANKWISE_GLOO_INTEGRITY=integrity, RANKWISE_SECRET="a" * 64) as pool:
        pool.run(programs.as_with_one, 3, (600_011,), timeout=TIMEOUT_S)


def test_they_do_without_compiled_parts() -> None:
    with pool_of(2, 1, RANKWISE_NATIVE="off") as pool:
        pool.run(programs.as_with_one, 3, (600_011,), timeout=TIMEOUT_S)


def test_each_connection_carries_as_much_of_a_long_call(pool: RankPool) -> None:
    for moved in pool.run(programs.moved_by_one_call, 5):
        assert len(moved) == 5
        if any(moved[1:]):  # else this rank is not the one of its host that talks to others
            assert max(moved) < 1.1 * min(moved) + 10_000


def test_messages_and_small_calls_stay_on_one_connection(two: RankPool) -> None:
    for first, *others in two.run(programs.small_calls_stay_on_one, 4):
        assert first > 8 * programs.LARGE
        assert others == [0, 0, 0]


def test_ranks_of_one_host_have_no_more_than_without() -> None:
    with pool_of(2, 2) as pool:
        assert pool.run(programs.of_one_host) == [(2, [0])] * 2


def test_a_hello_names_the_same_connection_on_both_sides() -> None:
    hello = Hello.of(1, 6, 3, 4)
    assert (hello.source, hello.target, hello.size) == (7, 6, 12)
    assert read_hello(hello.pack(), 0, 3, 4) == hello
    for rank, size, connections in ((2, 3, 4), (0, 3, 1), (0, 3, 2), (0, 12, 1), (0, 4, 3)):
        with pytest.raises(ProtocolError):
            read_hello(hello.pack(), rank, size, connections)
    with pytest.raises(ProtocolError):
        read_hello(Hello.new(7, 3, 12).pack(), 0, 3, 4)


@pytest.mark.parametrize("value", ["0", "17", "-1", "two", "", "1.5", "²"])
def test_a_value_that_is_none_names_the_variable(value: str) -> None:
    with pool_of(2, 1) as pool:
        for told in pool.run(programs.refused, [value] * 2):
            assert told == f"init_process_group: {programs.VARIABLE}={value}: expected a number from 1 to 16"


@pytest.mark.parametrize(("size", "each"), [(2, 1), (2, 2)])
def test_ranks_that_are_told_different_numbers_say_so(size: int, each: int) -> None:
    with pool_of(size, each) as pool:
        found = pool.run(programs.refused, ["2", "3"])
    all_hear(found, "RendezvousError", f"{programs.VARIABLE} set to 2 and to 3", within_s=LEEWAY_S)


@pytest.mark.parametrize("warm", [True, False])
@ALL_HEAR
def test_a_death_while_connections_are_busy_is_heard_of_by_all(
    tmp_path: Path, size: int, each: int, warm: bool
) -> None:
    victim = size - 1
    found = run(tmp_path, pool_of(size, each), programs.death_of, victim, warm, doomed=[victim])
    assert found.pop(victim) is None
    all_hear(found, "PeerDiedError", f"rank {victim}", within_s=LEEWAY_S)


@ALL_HEAR
def test_a_wait_for_one_that_stands_still_ends_in_time(size: int, each: int) -> None:
    with pool_of(size, each) as pool:
        found = pool.run(programs.too_late)
    all_hear(found, "DistTimeoutError", within_s=LEEWAY_S)
    if each == 1:  # else the first to give up may wait for one of its own host
        assert f"rank {size - 1}" in found[0][1]


def test_an_interrupt_in_the_middle_ends_the_call_of_all(tmp_path: Path) -> None:
    first, other = run(tmp_path, pool_of(2, 1), programs.interrupted)
    assert first == "KeyboardInterrupt()"
    assert "rank 0" in other
    assert "KeyboardInterrupt" in other


def test_one_connection_that_is_cut_fails_the_group_and_names_the_peer(tmp_path: Path) -> None:
    found = run(tmp_path, pool_of(2, 1, RANKWISE_HEARTBEAT_S="1"), programs.one_is_cut)
    all_hear(found, "DistNetworkError", "the connection to rank ", "has ended", within_s=LEEWAY_S)


@ALL_HEAR
def test_an_abort_in_the_middle_is_heard_of_by_all(size: int, each: int) -> None:
    with pool_of(size, each) as pool:
        all_hear(pool.run(programs.aborted), "GroupAbortedError", "rank 0", within_s=LEEWAY_S)


def test_nothing_is_left_in_the_end(two: RankPool) -> None:
    for before, after in two.run(programs.what_is_left):
        assert after == before


def test_the_child_of_a_fork_has_none_of_them(two: RankPool) -> None:
    assert two.run(programs.in_a_child) == [0, 0]
