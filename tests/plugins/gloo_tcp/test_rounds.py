"""Long collectives among three hosts and more: the same bytes and errors, compiled and not."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("rankwise_native", reason="rankwise-native is not installed")

from rankwise_testing import run_ranks

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE.parents[1]))
sys.path.insert(0, str(HERE))
import wire_programs as programs  # noqa: E402
from far_away import RANKS_A_HOST  # noqa: E402

TIMEOUT_S = 120.0
HOSTS = {RANKS_A_HOST: "2"}
#: Which of six ranks, or fewer, are without the compiled parts between hosts.
WAYS: dict[str, list[int]] = {"native": [], "python": [0, 1, 2, 3, 4, 5], "mixed": [0, 3]}


def run(way: str, size: int, program: str, *args: Any, env: dict[str, str] | None = None) -> list[Any]:
    """Run one of `wire_programs` on hosts of two ranks each, of which the last may have one."""
    given = [rank for rank in WAYS[way] if rank < size], program, *args
    return run_ranks(
        programs.with_a_relay_in_python, size, *given, env={**HOSTS, **(env or {})}, timeout=TIMEOUT_S
    )


@pytest.mark.parametrize("size", [5, 6])
def test_long_calls_are_the_same_bytes_with_and_without_the_compiled_parts(size: int) -> None:
    found = [run(way, size, "long_calls") for way in WAYS]
    assert found[0] == found[1] == found[2]
