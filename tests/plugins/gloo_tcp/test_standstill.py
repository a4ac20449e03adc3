"""A rank that stands still while it connects, as one whose process is stopped, costs no group whose ranks all live."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from rankwise_gloo_tcp.transport import openssl
from rankwise_testing import run_ranks

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE.parents[1]), str(HERE)]
import standstill_programs as programs  # noqa: E402
from far_away import RANKS_A_HOST  # noqa: E402

TIMEOUT_S = 60.0
#: Before which steps of who connects the other still waits: for its proof, or for the end of its encryption.
STEPS = {
    "full": [("_record", 1)],
    "encrypted": [("_record", 1), ("_is_welcome", 1), ("_encrypt", 1), ("_encrypt", 2)],
}
CASES = [(integrity, *step) for integrity, steps in STEPS.items() for step in steps]

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="hosts are pretended there alone")


@pytest.mark.parametrize(("integrity", "step", "number"), CASES)
def test_a_rank_that_is_stopped_connects_again(integrity: str, step: str, number: int, compiled: str) -> None:
    if integrity == "encrypted" and not openssl.is_usable():
        pytest.skip("nothing is encrypted here")
    env = {RANKS_A_HOST: "1", "RANKWISE_GLOO_INTEGRITY": integrity, "RANKWISE_NATIVE": compiled}
    assert run_ranks(programs.stand_still, 2, step, number, env=env, timeout=TIMEOUT_S) == [[2.0] * 3] * 2
