"""A long message is copied by both ranks: by the receiver, and by a sender that waits for it."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

pytest.importorskip("rankwise_gloo_tcp", reason="rankwise-gloo-tcp is not installed")
pytest.importorskip("rankwise_native", reason="rankwise-native is not installed: there may be no compiler")

from rankwise_gloo_tcp.machine import peer_memory
from rankwise_testing import RankPool

sys.path.insert(0, str(Path(__file__).parent))
import joint_programs as programs

_HERE = Path(__file__).parent
_COMPILER = os.environ.get("CC", "cc")
TIMEOUT_S = 60.0

pytestmark = pytest.mark.skipif(shutil.which(_COMPILER) is None, reason="there is no C compiler")
BOTH = pytest.mark.skipif(
    not peer_memory.available() or len(os.sched_getaffinity(0)) < 2,
    reason="nobody reads another process's memory here, or both ranks have one processor",
)


def test_every_piece_is_copied_once_in_all_orders(tmp_path: Path) -> None:
    program = tmp_path / "joint"
    subprocess.run([_COMPILER, "-std=gnu11", "-O2", _HERE / "joint.c", "-o", program], check=True, timeout=TIMEOUT_S)
    done = subprocess.run([program], text=True, capture_output=True, check=False, timeout=TIMEOUT_S)
    assert done.returncode == 0, done.stdout


@pytest.fixture(scope="module")
def pool(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RankPool]:
    """Ranks whose writes into each other's memory are counted."""
    library = tmp_path_factory.mktemp("writes") / "writes.so"
    command = [_COMPILER, "-shared", "-fPIC", "-O2", str(_HERE / "writes.c"), "-o", str(library)]
    subprocess.run(command, check=True, timeout=TIMEOUT_S)
    env = {"RANKWISE_NATIVE": "on", "LD_PRELOAD": f"{os.environ.get('LD_PRELOAD', '')} {library}".strip()}
    with RankPool(2, env=env, fork=False) as made:
        yield made


@BOTH
@pytest.mark.parametrize("way", programs.WAYS)
def test_the_sender_copies_too(pool: RankPool, way: str) -> None:
    pieces, told = pool.run(programs.plainly, way, timeout=TIMEOUT_S)
    assert pieces == told > 0


@BOTH
@pytest.mark.parametrize("program", [programs.shorter_and_odd, programs.by_two_threads])
def test_the_sender_copies_messages_of_any_kind(pool: RankPool, program: Callable[[], int]) -> None:
    pieces, told = pool.run(program, timeout=TIMEOUT_S)
    assert pieces == told > 0


@BOTH
@pytest.mark.parametrize("at", [1, 3])
def test_what_the_sender_may_not_write_the_receiver_reads(pool: RankPool, at: int) -> None:
    pieces, told = pool.run(programs.refused, at, timeout=TIMEOUT_S)
    assert pieces == told
    assert all(pieces)


@BOTH
def test_an_owner_that_may_not_write_has_all_read(pool: RankPool) -> None:
    assert pool.run(programs.refused_in_a_collective, timeout=TIMEOUT_S) == [(1, 0)] * 2


@BOTH
@pytest.mark.parametrize("at", [1, 5])
@pytest.mark.parametrize("way", ["message", "broadcast"])
def test_the_receiver_hears_of_a_sender_that_is_killed_in_a_piece(pool: RankPool, way: str, at: int) -> None:
    _, told = pool.run(programs.killed, way, at, timeout=TIMEOUT_S, doomed={0})
    assert "killed by SIGKILL" in told


@BOTH
@pytest.mark.parametrize("way", ["message", "broadcast"])
def test_a_receive_from_a_sender_that_stands_still_in_a_piece_can_be_interrupted(pool: RankPool, way: str) -> None:
    told = pool.run(programs.stopped, way, timeout=TIMEOUT_S)
    assert told == ["the group has ended", "interrupted and the array stays"]


@BOTH
def test_a_broadcast_whose_owner_stands_still_in_a_piece_is_late_in_time(pool: RankPool) -> None:
    assert pool.run(programs.stopped_for_long, timeout=TIMEOUT_S) == ["the group has ended", "late: (0,)"]
