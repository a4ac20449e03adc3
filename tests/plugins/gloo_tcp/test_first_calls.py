"""First calls of kinds: those that compiled code chooses for end as in Python, with the same errors."""

from __future__ import annotations

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


@pytest.mark.parametrize("way", ["on", "mixed"])
def test_ranks_with_and_without_the_compiled_parts_choose_alike(way: str) -> None:
    pytest.importorskip("rankwise_native", reason="rankwise-native is not installed: there may be no compiler")
    with RankPool(6, launch=("sh", "-c", LAUNCH, "sh"), env={"NATIVE_RANKS": NATIVE[way]}) as pool:
        for layout in LAYOUTS:
            found = pool.run(first_programs.on_both_sides, layout, size=len(layout), timeout=PATIENCE_S)
            assert found == [[]] * len(layout), layout
