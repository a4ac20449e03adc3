"""First calls of kinds: those that compiled code chooses for end as in Python, with the same errors."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack

import first_programs
import pytest
from random_programs import LAUNCH, NATIVE

from rankwise_testing import RankPool, run_ranks

PATIENCE_S = 60.0
WAYS = {"on": "on", "mixed": "{rank}"}


@pytest.mark.parametrize("transport", ["shm", "tcp"])
@pytest.mark.parametrize("way", WAYS)
def test_first_calls_end_as_in_python(way: str, transport: str) -> None:
    pytest.importorskip("rankwise_native", reason="rankwise-native is not installed: there may be no compiler")
    found = {
        native: run_ranks(
            first_programs.first_calls,
            2,
            env={"RANKWISE_GLOO_TRANSPORT": transport, "RANKWISE_NATIVE": native},
            timeout=PATIENCE_S,
        )
        for native in ("off", WAYS[way])
    }
    assert found[WAYS[way]] == found["off"]
    assert [text.partition(":")[0] for text in found["off"][0][:8]] == [
        *["UnsupportedOperationError"] * 3,
        *["CollectiveMismatchError"] * 5,
    ]


#: On which host each rank is.
LAYOUTS = ("01", "012", "0011", "0111")
#: How many functions of Python the first call of a new size calls at the most. Where hosts have several ranks, Python
#: notes the steps of calls in which each rank knows only its own parts.
NEW_SIZE, NOTED = 8, ("gather", "scatter", "all_to_all")


@pytest.fixture
def pools() -> Iterator[Callable[[str], RankPool]]:
    """Makes ranks that have the compiled parts, or some of which have."""
    pytest.importorskip("rankwise_native", reason="rankwise-native is not installed: there may be no compiler")
    with ExitStack() as stack:
        yield lambda way: stack.enter_context(
            RankPool(6, launch=("sh", "-c", LAUNCH, "sh"), env={"NATIVE_RANKS": NATIVE[way]})
        )


@pytest.mark.parametrize("way", ["on", "mixed"])
def test_ranks_with_and_without_the_compiled_parts_choose_alike(pools: Callable[[str], RankPool], way: str) -> None:
    pool = pools(way)
    for layout in LAYOUTS:
        found = pool.run(first_programs.on_both_sides, layout, size=len(layout), timeout=PATIENCE_S)
        assert found == [[]] * len(layout), layout


def test_new_sizes_are_chosen_in_c_on_all_layouts(pools: Callable[[str], RankPool]) -> None:
    pool = pools("on")
    for layout in LAYOUTS:
        for found in pool.run(first_programs.counted_on, layout, size=len(layout), timeout=PATIENCE_S):
            several = len(set(layout)) < len(layout)
            over = {name for name, count in found.items() if count > NEW_SIZE}
            assert over == (set(NOTED) if several else set()), (layout, found)
