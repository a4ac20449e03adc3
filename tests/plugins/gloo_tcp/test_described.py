"""Collectives that a third party describes in steps: on every layout the same bits and errors as over messages."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("rankwise_native", reason="rankwise-native is not installed")

sys.path.insert(0, str(Path(__file__).parent))
import described_programs as programs
from random_programs import LAUNCH, MOST_RANKS, NATIVE

from rankwise.errors import DistTimeoutError
from rankwise_testing import RankPool

#: On which host each rank is.
LAYOUTS = ("00", "000", "01", "012", "0011", "0111", "01012")
TIMEOUT_S = 120.0


@pytest.fixture(scope="module")
def pools() -> Iterator[dict[str, RankPool]]:
    """The ranks, for each way of having the compiled parts; none is forked, as it must know the collectives first."""
    launch = ("sh", "-c", LAUNCH, "sh")
    with ExitStack() as stack:
        yield {
            way: stack.enter_context(RankPool(MOST_RANKS, launch=launch, env={"NATIVE_RANKS": NATIVE[way]}))
            for way in ("on", "mixed")
        }


@pytest.fixture
def run(pools: dict[str, RankPool]) -> Callable[..., list[Any]]:
    """Run a program on the ranks of a layout."""

    def run(layout: str, function: Callable[..., Any], *args: Any, way: str = "on") -> list[Any]:
        return pools[way].run(function, layout, *args, size=len(layout), timeout=TIMEOUT_S)

    return run


@pytest.mark.parametrize("layout", LAYOUTS)
def test_they_give_the_same_bits_as_over_messages(run: Callable[..., list[Any]], layout: str) -> None:
    over_messages = run(layout, programs.bits_over_messages)
    in_python: Sequence[int]
    for in_python in ((), (0, 2), range(len(layout))):
        assert run(layout, programs.bits, in_python) == over_messages, in_python
    assert run(layout, programs.bits, way="mixed") == over_messages


@pytest.mark.parametrize("layout", ["00", "01", "001"])
@pytest.mark.parametrize("in_python", [(), (1,)])
def test_ranks_that_disagree_are_all_told_and_go_on(
    run: Callable[..., list[Any]], layout: str, in_python: Sequence[int]
) -> None:
    for first, second, *others in run(layout, programs.disagree, in_python):
        assert first == second == "None"
        assert all("did not make the same call" in text for text in others)


@pytest.mark.parametrize("layout", ["000", "012", "001"])
def test_a_rank_that_is_late_ends_the_call_of_all(run: Callable[..., list[Any]], layout: str) -> None:
    assert run(layout, programs.late, 2) == [DistTimeoutError.__name__] * 2 + [""]


def test_the_steps_are_taken_in_c_on_all_layouts(run: Callable[..., list[Any]]) -> None:
    """Or else the other tests say little."""
    for layout in LAYOUTS:
        assert run(layout, programs.taken_in_c) == [[]] * len(layout), layout
        assert run(layout, programs.taken_in_c, range(5)) == [programs.NAMES] * len(layout), layout
