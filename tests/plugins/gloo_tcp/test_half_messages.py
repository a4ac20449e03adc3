"""A rank that is killed with half a message on its way ends the other's call at once, and never with garbage."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from tempfile import TemporaryDirectory

import half_programs as programs
import pytest

from rankwise_testing import RankPool

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="shared memory needs Linux")

#: Each rank in turn, if there is time for that.
VICTIMS = (0, 1) if os.environ.get("RANKWISE_STRESS") == "1" else (1,)
#: The group's time-out is ten times as long.
AT_ONCE_S = 2.0


@pytest.fixture(scope="module")
def make_pool(compiled: str) -> Iterator[dict[str, RankPool]]:
    """Two ranks, by whether they may read each other's memory."""
    env = {"RANKWISE_GLOO_TRANSPORT": "shm", "RANKWISE_NATIVE": compiled}
    pools = {reading: RankPool(2, env={**env, "RANKWISE_GLOO_PEER_MEMORY": reading}) for reading in ("on", "off")}
    with pools["on"], pools["off"]:
        yield pools


@pytest.fixture
def folder() -> Iterator[str]:
    """In memory: where disks are slow, so is a process that writes to what is on its way to one."""
    with TemporaryDirectory(dir="/dev/shm") as made:
        yield made


def _check(found: list[programs.Found | None], victim: int) -> None:
    survivor = found[1 - victim]
    assert survivor is not None
    error, rank, after_s, clean = survivor
    assert (error, rank, clean) == ("PeerDiedError", victim, True)
    assert after_s < AT_ONCE_S


@pytest.mark.parametrize("victim", VICTIMS)
@pytest.mark.parametrize("sends", [True, False], ids=["sender", "receiver"])
def test_half_a_stream(make_pool: dict[str, RankPool], folder: str, sends: bool, victim: int) -> None:
    _check(make_pool["off"].run(programs.streamed, victim, sends, folder, doomed=[victim]), victim)


@pytest.mark.skipif(not os.path.exists("/proc/self/mem"), reason="nobody reads another process's memory here")
@pytest.mark.parametrize("victim", VICTIMS)
@pytest.mark.parametrize("op", ["send", "recv", "broadcast", "all_to_all"])
def test_half_a_copy(make_pool: dict[str, RankPool], folder: str, op: str, victim: int) -> None:
    _check(make_pool["on"].run(programs.copied, victim, op, folder, doomed=[victim]), victim)
