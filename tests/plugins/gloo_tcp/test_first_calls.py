"""First calls of kinds: those that compiled code chooses for end as in Python, with the same errors."""

from __future__ import annotations

import first_programs
import pytest

from rankwise_testing import run_ranks

PATIENCE_S = 60.0
WAYS = {"on": "on", "mixed": "{rank}"}


@pytest.mark.parametrize("way", WAYS)
def test_first_calls_end_as_in_python(way: str) -> None:
    pytest.importorskip("rankwise_native", reason="rankwise-native is not installed: there may be no compiler")
    found = {
        native: run_ranks(
            first_programs.first_calls,
            2,
            env={"RANKWISE_GLOO_TRANSPORT": "shm", "RANKWISE_NATIVE": native},
            timeout=PATIENCE_S,
        )
        for native in ("off", WAYS[way])
    }
    assert found[WAYS[way]] == found["off"]
    assert [text.partition(":")[0] for text in found["off"][0][:8]] == [
        *["UnsupportedOperationError"] * 3,
        *["CollectiveMismatchError"] * 5,
    ]
