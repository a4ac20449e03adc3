"""A rank that is killed with half a long frame on its way over a socket ends the other's call, and nothing is left."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from rankwise_testing import RankPool

sys.path.insert(0, str(Path(__file__).parents[2]))
import half_sockets as programs
from far_away import RANKS_A_HOST

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="it reads /proc")

#: Each rank in turn, if there is time for that.
VICTIMS = (0, 1) if os.environ.get("RANKWISE_STRESS") == "1" else (1,)
#: The group's time-out is ten times as long.
AT_ONCE_S = 2.0
#: What goes in one frame, and what goes in segments.
FRAME_NBYTES, LONG_NBYTES = 1 << 20, 16 << 20
CASES = [(op, FRAME_NBYTES) for op in ("send", "recv", "all_reduce", "root", "leaf")]
CASES += [(op, LONG_NBYTES) for op in ("all_reduce", "root", "leaf")]


@pytest.fixture(scope="module", params=["one host", "two hosts"])
def ranks(request: pytest.FixtureRequest, compiled: str) -> Iterator[RankPool]:
    """Two ranks, of which one sees the other's process end, or its connection alone."""
    env = {"RANKWISE_GLOO_TRANSPORT": "tcp", "RANKWISE_NATIVE": compiled}
    with RankPool(2, env=env | ({RANKS_A_HOST: "1"} if request.param == "two hosts" else {})) as pool:
        yield pool


@pytest.mark.parametrize("victim", VICTIMS)
@pytest.mark.parametrize(("op", "nbytes"), CASES)
def test_a_frame_breaks_off(ranks: RankPool, op: str, nbytes: int, victim: int) -> None:
    with TemporaryDirectory(dir="/dev/shm") as folder:
        found = ranks.run(programs.broken_off, victim, op, nbytes, folder, doomed=[victim])
    assert found[1 - victim] is not None
    (error, rank, after_s, clean), left = found[1 - victim]
    assert (error, rank, clean, left) == ("PeerDiedError", victim, True, "")
    assert after_s < AT_ONCE_S
