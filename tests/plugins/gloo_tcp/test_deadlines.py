"""In whichever way C leaves a call to Python, what is left of its time goes with it."""

from __future__ import annotations

import sys
from collections import Counter
from pathlib import Path

import pytest

pytest.importorskip("rankwise_native", reason="rankwise-native is not installed")

from rankwise_testing import run_ranks

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE.parents[1]), str(HERE)]
import deadline_programs as programs  # noqa: E402
from far_away import RANKS_A_HOST  # noqa: E402

TIMEOUT_S = 90.0
#: How many ranks there are, how many on each host, and in which ways C leaves their calls to Python.
LAYOUTS = {
    "one host": (2, 0, {"wait", "failed", "mismatch"}),
    "two hosts": (2, 1, {"finish", "stream", "failed", "mismatch"}),
    "three hosts": (3, 1, {"finish", "exchange", "failed", "mismatch"}),
    "hosts of two": (4, 2, {"wait", "finish", "stream", "failed", "mismatch"}),
    "hosts that differ": (3, 2, {"wait", "finish", "stream", "failed", "mismatch"}),
}


@pytest.mark.parametrize("layout", LAYOUTS)
def test_each_way_out_of_c_keeps_the_time_out_of_the_call(layout: str) -> None:
    size, of_a_host, ways = LAYOUTS[layout]
    env = {"RANKWISE_NATIVE": "on", RANKS_A_HOST: str(of_a_host)}
    found = run_ranks(programs.left_to_python, size, bool(of_a_host), env=env, timeout=TIMEOUT_S)
    assert not [wrong for _, wrongs, _ in found for wrong in wrongs]
    assert all(ends == found[0][2] for _, _, ends in found)
    assert Counter(found[0][2]) == {"done": 11, "CollectiveMismatchError": 2}
    assert {way for reached, _, _ in found for way in reached} >= ways
