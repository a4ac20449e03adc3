"""`rankwise.spawn`."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest
from tests.core.launch_programs import fail_beside, wait_for, write_place
from tests.threads import within

import rankwise
from rankwise.errors import ProcessExitedException, ProcessRaisedException
from rankwise_launch.processes import hand_down
from rankwise_network import secret

PATIENCE_S = 20.0
LEEWAY_S = 5.0


@pytest.fixture(autouse=True)
def no_job_around_us(no_secret: None, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT"):
        monkeypatch.delenv(name, raising=False)


def test_each_process_has_its_place_and_the_secret_of_the_job(tmp_path: Path) -> None:
    assert rankwise.spawn(write_place, (str(tmp_path),), nprocs=2) is None
    places = [(tmp_path / str(i)).read_text().split() for i in range(2)]
    assert [place[:4] for place in places] == [["0", "0", "2", "127.0.0.1"], ["1", "1", "2", "127.0.0.1"]]
    assert places[0][4:] == places[1][4:]
    assert len(places[0][5]) == 2 * secret.SECRET_NBYTES


def test_a_program_that_arranges_for_itself_is_left_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MASTER_ADDR", "10.1.2.3")
    rankwise.spawn(write_place, (str(tmp_path),), nprocs=1)
    assert (tmp_path / "0").read_text() == "- - - 10.1.2.3 - None"


def test_the_secret_of_a_rank_is_passed_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    known = secret.new()
    descriptor = hand_down(known)
    monkeypatch.setenv("RANKWISE_SECRET_FD", str(descriptor))
    monkeypatch.setenv("MASTER_ADDR", "127.0.0.1")
    try:
        rankwise.spawn(write_place, (str(tmp_path),), nprocs=1)
    finally:
        os.close(descriptor)
    assert (tmp_path / "0").read_text().split()[-1] == known.hex()


def test_the_traceback_of_a_failed_process_is_raised_and_the_others_are_stopped(tmp_path: Path) -> None:
    with pytest.raises(ProcessRaisedException, match=r"(?s)Process 1 failed.*ValueError: the cause") as caught:
        rankwise.spawn(fail_beside, ("raise", str(tmp_path)), nprocs=2)
    assert caught.value.error_index == 1
    pids = [int((tmp_path / f"pid-{i}").read_text()) for i in range(2)]
    assert caught.value.error_pid == pids[1]
    for pid in pids:
        with pytest.raises(ProcessLookupError):
            os.kill(pid, 0)


@pytest.mark.parametrize(
    ("how", "words", "code", "name"),
    [("exit", "ended with exit code 5", 5, None), ("kill", "ended by SIGKILL", -signal.SIGKILL, "SIGKILL")],
)
def test_exit_codes_and_signals_are_told(tmp_path: Path, how: str, words: str, code: int, name: str | None) -> None:
    with pytest.raises(ProcessExitedException, match=f"process 1 .*{words}") as ended:
        rankwise.spawn(fail_beside, (how, str(tmp_path)), nprocs=2)
    assert (ended.value.exit_code, ended.value.signal_name) == (code, name)


@pytest.mark.parametrize("method", ["spawn", "forkserver"])
def test_without_join_a_context_waits(tmp_path: Path, method: str) -> None:
    context = rankwise.spawn(wait_for, (str(tmp_path / "go"),), 2, join=False, start_method=method)
    assert len(set(context.pids)) == 2
    with within(LEEWAY_S):
        assert context.join(timeout=0.05) is False
    (tmp_path / "go").touch()
    assert context.join(timeout=PATIENCE_S) is True
    assert context.join() is True


@pytest.mark.parametrize(
    ("count", "words"), [(0, "nprocs must be at least 1, not 0"), (1 << 20, "at most 65536 processes can be started")]
)
def test_no_processes_and_far_too_many_are_refused(count: int, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        rankwise.spawn(print, nprocs=count)
