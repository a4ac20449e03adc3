"""The comparison of calls among hosts of several ranks: the same bytes and errors, compiled and not."""

from __future__ import annotations

import functools
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("rankwise_native", reason="rankwise-native is not installed")

from rankwise_testing import RankPool, run_ranks

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE.parents[1]))
sys.path.insert(0, str(HERE))
import wire_programs as programs  # noqa: E402
from far_away import RANKS_A_HOST  # noqa: E402
from long_programs import time_is_up_on_all  # noqa: E402

TIMEOUT_S = 120.0
HOSTS = {RANKS_A_HOST: "2"}
#: Whether the ranks have the compiled parts; in "mixed" one of each host compares calls in Python.
WAYS = {"python": "off", "native": "on", "mixed": "on"}
IN_PYTHON: dict[str, list[int]] = {"python": [], "native": [], "mixed": [0, 3]}
ENCRYPTED = {"RANKWISE_GLOO_INTEGRITY": "encrypted"}


class Ranks:
    """Four ranks on two hosts, for each way."""

    def __init__(self) -> None:
        self._pools = {way: RankPool(4, env={**HOSTS, "RANKWISE_NATIVE": value}) for way, value in WAYS.items()}

    def run(self, way: str, program: str, *args: Any) -> list[Any]:
        """Run one of `wire_programs` on all ranks."""
        return self._pools[way].run(programs.with_a_relay_in_python, IN_PYTHON[way], program, *args, timeout=TIMEOUT_S)

    def close(self) -> None:
        for pool in self._pools.values():
            pool.close()


@pytest.fixture(scope="module")
def ranks() -> Iterator[Ranks]:
    made = Ranks()
    yield made
    made.close()


def test_results_are_the_same_bytes_with_and_without_the_compiled_parts(ranks: Ranks) -> None:
    assert len({tuple(ranks.run(way, "everything")) for way in WAYS}) == 1


@pytest.mark.parametrize("size", [3, 5])
def test_a_rank_that_is_alone_on_its_host_takes_part(size: int) -> None:
    found = [
        run_ranks(programs.everything, size, env={**HOSTS, "RANKWISE_NATIVE": way}, timeout=TIMEOUT_S)
        for way in ("on", "off")
    ]
    assert found[0] == found[1]


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("seed", range(3))
def test_random_calls_give_what_they_must(ranks: Ranks, way: str, seed: int) -> None:
    assert ranks.run(way, "at_random", seed, 150) == [0] * 4


@pytest.mark.parametrize("in_python", [[], [0], [1, 2]], ids=str)
@pytest.mark.parametrize("size", [3, 5])
def test_random_calls_of_hosts_that_differ_give_what_they_must(size: int, in_python: list[int]) -> None:
    found = run_ranks(
        programs.with_a_relay_in_python, size, in_python, "at_random", size, 100, env=HOSTS, timeout=TIMEOUT_S
    )
    assert found == [0] * size


@pytest.mark.parametrize("in_python", [[], [0]], ids=str)
def test_encrypted_calls_give_what_they_must(in_python: list[int]) -> None:
    pytest.importorskip("cryptography", reason="the extra `encryption` is not installed")
    with RankPool(4, env={**HOSTS, **ENCRYPTED}) as pool:
        run = functools.partial(pool.run, programs.with_a_relay_in_python, in_python, timeout=TIMEOUT_S)
        assert run("at_random", 9, 100) == [0] * 4
        assert [len(said) for said in run("differ_and_go_on")] == [27] * 4
        assert all(run("long_calls"))


@pytest.mark.parametrize("size", [3, 4, 5])
def test_long_calls_are_the_same_bytes_with_and_without_the_compiled_parts(size: int) -> None:
    # In "mixed" ranks of both hosts talk to ranks of the other kind.
    found = [
        run_ranks(
            programs.with_a_relay_in_python,
            size,
            [rank for rank in IN_PYTHON[way] if rank < size],
            "long_calls",
            env={**HOSTS, "RANKWISE_NATIVE": WAYS[way]},
            timeout=TIMEOUT_S,
        )
        for way in WAYS
    ]
    assert found[0] == found[1] == found[2]


@pytest.mark.parametrize("victim", [0, 3])
@pytest.mark.parametrize("way", WAYS)
def test_long_calls_that_one_rank_aborts_end_on_all(way: str, victim: int) -> None:
    assert broken_off(way, "abort", victim) == [["GroupAbortedError"] * len(programs.LONG_CALLS)] * 4


@pytest.mark.parametrize("way", WAYS)
def test_long_calls_in_which_one_rank_is_late_end_on_all(way: str) -> None:
    time_is_up_on_all(broken_off(way, "late", 2))


def broken_off(way: str, how: str, victim: int) -> list[Any]:
    env, arguments = {**HOSTS, "RANKWISE_NATIVE": WAYS[way]}, ("breaks_off_in_the_middle", how, victim)
    return run_ranks(programs.with_a_relay_in_python, 4, IN_PYTHON[way], *arguments, env=env, timeout=TIMEOUT_S)


def test_hosts_without_boards_find_the_same() -> None:
    found = run_ranks(programs.with_a_relay_without_boards, 4, "at_random", 7, 60, env=HOSTS, timeout=TIMEOUT_S)
    assert found == [0] * 4
    said = run_ranks(programs.with_a_relay_without_boards, 4, "differ_and_go_on", env=HOSTS, timeout=TIMEOUT_S)
    assert [len(each) for each in said] == [27] * 4


def test_warm_calls_take_no_step_in_python(ranks: Ranks) -> None:
    # What waits for others for long goes on in Python, but not here.
    assert not [names for names in ranks.run("native", "modules_of_warm_calls") if {"relay", "one_host"} & {*names}]
    assert all({"relay", "one_host"} < {*names} for names in ranks.run("python", "modules_of_warm_calls"))


def test_mismatches_say_the_same_and_the_group_goes_on(ranks: Ranks) -> None:
    said = [ranks.run(way, "differ_and_go_on") for way in WAYS]
    assert said[0] == said[1] == said[2]
    assert len(said[0][0]) == 27


@pytest.mark.parametrize("count", [4, 50_000])
@pytest.mark.parametrize("way", WAYS)
def test_errors_are_the_same(ranks: Ranks, way: str, count: int) -> None:
    late = ranks.run(way, "one_is_late", count)[1:]
    assert len({said[0] for said in late}) == 1  # of the rank that has found it first, which also knows whom it misses
    # The last does not blame the first rank of its host, which waits for rank 0.
    assert [said[1:] for said in late if said[1:]] == [["0"]]
    assert ranks.run(way, "interrupted", count) == ["KeyboardInterrupt", *["GroupAbortedError"] * 3]
