"""Calls that are bound to their arguments: what they do is what the public functions do, without Python between."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("rankwise_gloo_tcp", reason="rankwise-gloo-tcp is not installed")
pytest.importorskip("rankwise_arrays", reason="rankwise-arrays is not installed")
pytest.importorskip("rankwise_native", reason="rankwise-native is not installed: there may be no compiler")

from rankwise_testing import RankPool, run_ranks

sys.path.insert(0, str(Path(__file__).parent))
import bound_programs as programs

TIMEOUT_S = 60.0
#: A call is bound to its arguments, or made by the public function, or by what compiled code stands in front of.
WAYS = ("plan", "plain", "behind")
both = pytest.mark.parametrize("way", WAYS)


@pytest.fixture(scope="module", params=["shm on", "tcp on", "shm off"])
def pool(request: pytest.FixtureRequest) -> Iterator[RankPool]:
    """Two ranks, which share a board or are connected; the last have no compiled parts."""
    transport, native = request.param.split()
    with RankPool(2, env={"RANKWISE_GLOO_TRANSPORT": transport, "RANKWISE_NATIVE": native}) as made:
        yield made


def alike(found: list[Any]) -> Any:
    """Return what has been found in each way."""
    first, *others = found
    assert [first] * len(others) == others
    return first


def told(pool: RankPool, what: Callable[..., Any], *args: Any) -> list[Any]:
    return pool.run(what, *args, timeout=TIMEOUT_S)


def test_a_plan_of_each_call_fills_the_same_and_has_no_frame_of_python_in_c(pool: RankPool) -> None:
    for is_compiled, frames in told(pool, programs.frames_of_plans):
        assert frames.keys() == programs.CALLS.keys()
        assert not is_compiled or not any(frames.values()), frames


@pytest.mark.parametrize("what", [programs.changed_arrays, programs.changed_lists, programs.in_order])
def test_a_run_is_the_call_with_what_its_arrays_are_then(pool: RankPool, what: Callable[[], None]) -> None:
    told(pool, what)


def test_the_recorder_sees_what_it_sees_of_plain_calls(pool: RankPool) -> None:
    first = alike([told(pool, programs.noted, way) for way in WAYS])[0]
    assert {(where, *rest) for _, where, _, _, *rest in first} == {("noted", True, "", 1, 1, 0, 0)} | {
        ("noted", True, "", 1, 1, 0, nbytes) for _, _, _, nbytes, *_ in first
    }


@both
def test_a_call_is_seen_while_it_waits(pool: RankPool, way: str) -> None:
    assert told(pool, programs.seen_while_waiting, way)[0] == (1, "all_reduce", 16)


def test_ranks_that_make_different_calls_hear_the_same(pool: RankPool) -> None:
    found = [told(pool, programs.failed_calls, way) for way in WAYS]
    for errors, entries in alike([[[[*map(same, texts)] for texts in rank] for rank in each] for each in found]):
        assert len(errors) == 2
        assert entries[-1] == "all_reduce  True"


@pytest.mark.parametrize(
    ("how", "kind"), [("destroyed", "ValueError"), ("aborted", "GroupAbortedError"), ("died", "PeerDiedError")]
)
def test_a_call_says_how_its_group_has_ended(how: str, kind: str) -> None:
    found = [run_ranks(programs.ended, 2, way, how, timeout=TIMEOUT_S) for way in WAYS]
    said = alike([[[same(text) for text in each] for each in one] for one in found])
    assert all(text.startswith(kind) for each in said for text in each)


def same(text: str) -> str:
    """Return an error without what is another each time: its group, numbers, and how a rank has been seen."""
    return re.sub(r"'group-\d+'|#\d+|number \d+|(?<=rank 1), which .*", "", text)


@pytest.mark.parametrize("what", [programs.late, programs.late_of_its_own])
def test_a_call_whose_time_is_up_names_the_late(pool: RankPool, what: Callable[..., str]) -> None:
    said = alike([[same(text) for text in told(pool, what, way)] for way in WAYS])
    assert said[0].startswith("DistTimeoutError")


@pytest.mark.parametrize("kind", [KeyboardInterrupt, ValueError])
def test_an_interrupt_ends_the_group_of_the_call_that_waits(pool: RankPool, kind: type[BaseException]) -> None:
    found = [told(pool, programs.interrupted, way, kind) for way in WAYS]
    (mine, later), (theirs,) = alike([[[same(text) for text in each] for each in one] for one in found])
    assert mine == f"{kind.__name__}: by hand"
    for text in (later, theirs):
        assert text.startswith("GroupAbortedError: all_reduce")
        assert f"was interrupted by {kind.__name__}" in text


def test_two_threads_may_make_the_calls_of_one_plan(pool: RankPool) -> None:
    assert told(pool, programs.by_two_threads, "plan") == [400, 400]


@both
def test_a_call_outlives_the_default_group(way: str) -> None:
    found = run_ranks(programs.default_group_ended, 2, way, timeout=TIMEOUT_S)
    assert {text for text, _ in found} == {
        "ValueError: all_reduce: there is no default process group; call init_process_group first"
    }
    assert {filled for _, filled in found} == {2.0}
