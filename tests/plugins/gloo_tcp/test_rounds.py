"""Long collectives among three hosts and more: the same bytes and errors, compiled and not."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("rankwise_native", reason="rankwise-native is not installed")

from rankwise_gloo_tcp.machine import peer_memory
from rankwise_testing import run_ranks

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE.parents[1]))
sys.path.insert(0, str(HERE))
import round_programs as programs  # noqa: E402
from far_away import RANKS_A_HOST  # noqa: E402
from long_programs import LONG_CALLS, time_is_up_on_all  # noqa: E402

TIMEOUT_S = 120.0
#: Which ranks are without the compiled parts between hosts; in "mixed" ranks of both kinds talk to each other.
WAYS: dict[str, list[int]] = {"native": [], "python": [0, 1, 2, 3, 4, 5], "mixed": [0, 3]}


def run(way: str, size: int, program: str, *args: Any, **env: str) -> list[Any]:
    """Run a program on hosts of two ranks each, of which the last may have one."""
    given = [rank for rank in WAYS[way] if rank < size], program, *args
    return run_ranks(programs.some_in_python, size, *given, env={RANKS_A_HOST: "2", **env}, timeout=TIMEOUT_S)


@pytest.mark.parametrize("size", [5, 6])
def test_long_calls_are_the_same_bytes_with_and_without_the_compiled_parts(size: int) -> None:
    found = [run(way, size, "rounds") for way in WAYS]
    assert found[0] == found[1] == found[2]


@pytest.mark.parametrize("size", [4, 5, 6])
@pytest.mark.parametrize("way", WAYS)
def test_kinds_of_long_calls_do_the_same_each_time(way: str, size: int) -> None:
    found = run(way, size, "again_and_again")
    assert found == [set() if rank in WAYS[way] else set(LONG_CALLS) for rank in range(size)]


@pytest.mark.parametrize("way", WAYS)
def test_credit_comes_back_where_data_goes_one_way(way: str) -> None:
    assert run(way, 6, "one_way") == [0] * 6


def test_encrypted_calls_give_what_they_must() -> None:
    pytest.importorskip("cryptography", reason="the extra `encryption` is not installed")
    assert all(run("mixed", 6, "rounds", RANKWISE_GLOO_INTEGRITY="encrypted"))


@pytest.mark.parametrize("way", WAYS)
def test_long_calls_that_one_rank_aborts_end_on_all(way: str) -> None:
    found = run(way, 6, "breaks_off_in_the_middle", "abort", 3)
    assert found == [["GroupAbortedError"] * len(LONG_CALLS)] * 6


@pytest.mark.parametrize("way", ["native", "mixed"])
def test_long_calls_in_which_one_rank_is_late_end_on_all(way: str) -> None:
    time_is_up_on_all(run(way, 6, "breaks_off_in_the_middle", "late", 2))


@pytest.mark.skipif(not peer_memory.available(), reason="nobody reads another process's memory here")
@pytest.mark.parametrize("way", ["native", "python"])
def test_memory_that_cannot_be_read_in_a_long_call_is_passed_on(way: str) -> None:
    assert run(way, 4, "out_of_sight", 1) == [[1.0, 2.0, 3.0, 4.0]] * 4


def test_c_takes_nothing_that_it_cannot_do() -> None:
    assert run("native", 6, "refused") == [[]] * 6
