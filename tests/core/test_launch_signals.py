"""What signals do to `rankwise run`: those that end it, those that are its ranks', and those that it is to ignore."""

from __future__ import annotations

import os
import shlex
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from tests.command_line import Launcher
from tests.core import launch_programs as programs
from tests.core.launch_programs import ranks_of
from tests.processes import wait_until

from rankwise.basics.systems import process_stat
from rankwise_launch import guard
from rankwise_launch import preload as forking
from rankwise_launch.interrupts import ENDING, FOR_RANKS, SUSPENDING

TIMEOUT_S = 30
#: By when a launcher has ended that is told so while it starts ranks.
LEEWAY_S = 5.0


@pytest.fixture
def launcher(tmp_path: Path) -> Launcher:
    return Launcher(tmp_path, TIMEOUT_S)


def came(launcher: Launcher, pattern: str, count: int) -> bool:
    """Tell whether so many files come."""
    return wait_until(lambda: len(list(launcher.folder.glob(pattern))) == count, TIMEOUT_S)


@pytest.mark.parametrize("preload", [[], ["--preload", "json"]], ids=["started", "forked"])
def test_signals_that_are_for_ranks_reach_each_of_them_and_the_job_goes_on(
    launcher: Launcher, preload: list[str]
) -> None:
    """As those by which schedulers announce a preemption."""
    with launcher.start("-n", "2", *preload, *ranks_of(programs.note_signals, *map(int, FOR_RANKS))) as process:
        assert came(launcher, "ready-*", 2)
        for number in FOR_RANKS:
            process.send_signal(number)
            assert came(launcher, f"got-*-{int(number)}", 2), number
        (launcher.folder / "end").touch()
        out, err = process.communicate(timeout=TIMEOUT_S)
    assert (process.returncode, err) == (0, "")
    got = " ".join(str(int(number)) for number in FOR_RANKS)
    assert sorted(out.splitlines()) == [f"[{rank}]: {got}" for rank in (0, 1)]


def handled_by(pid: int) -> set[int]:
    """Return the signals that a process ignores or has a handler for."""
    status = dict(line.split(":", 1) for line in Path(f"/proc/{pid}/status").read_text().splitlines())
    mask = int(status["SigIgn"], 16) | int(status["SigCgt"], 16)
    return {number for number in range(1, 64) if mask >> (number - 1) & 1}


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="needs /proc")
@pytest.mark.parametrize("preload", [[], ["--preload", "json"]], ids=["started", "forked"])
def test_a_signal_to_every_process_of_a_job_is_for_its_ranks_alone(launcher: Launcher, preload: list[str]) -> None:
    """As Slurm sends one: the guard and the process that ranks are forked from stay, and forked ranks heed it."""
    numbers = (*ENDING, *FOR_RANKS)
    with launcher.start("-n", "2", *preload, *ranks_of(programs.note_signals, *map(int, FOR_RANKS))) as process:
        try:
            assert came(launcher, "ready-*", 2)
            ranks = {int(path.read_text()) for path in launcher.folder.glob("ready-*")}
            children = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
            helpers = {int(child) for child in children} - ranks
            assert len(helpers) == (2 if preload else 1)
            for helper in helpers:
                assert wait_until(lambda helper=helper: set(map(int, numbers)) <= handled_by(helper), TIMEOUT_S)
                for number in numbers:
                    os.kill(helper, number)
            for number in FOR_RANKS:
                process.send_signal(number)
                assert came(launcher, f"got-*-{int(number)}", 2), number
            assert all(process_stat(helper)[0] in "RS" for helper in helpers)
        finally:
            (launcher.folder / "end").touch()
        _, err = process.communicate(timeout=TIMEOUT_S)
    assert (process.returncode, err) == (0, "")


def test_both_helpers_let_the_same_signals_pass_as_the_launcher_takes() -> None:
    names = [number.name for number in (*ENDING, *FOR_RANKS)]
    assert list(guard.NOT_OURS) == list(forking.NOT_OURS) == names


@contextmanager
def ignoring(launcher: Launcher, numbers: tuple[signal.Signals, ...], *words: str) -> Iterator[subprocess.Popen[str]]:
    """Start a launcher with some signals ignored, as nohup does."""
    names = " ".join(number.name.removeprefix("SIG") for number in numbers)
    command = shlex.join([sys.executable, "-m", "rankwise", "run", *words])
    variables = {**launcher.environment, "PYTHONPATH": os.pathsep.join(launcher.path)}
    with subprocess.Popen(
        ["sh", "-c", f"trap '' {names}; exec {command}"],
        cwd=launcher.folder, env=variables, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    ) as process:  # fmt: skip
        try:
            yield process
        finally:
            process.kill()


def test_signals_that_are_ignored_when_the_launcher_starts_stay_ignored(launcher: Launcher) -> None:
    numbers = (*ENDING, *FOR_RANKS, *SUSPENDING)
    with ignoring(launcher, numbers, "-n", "2", *ranks_of(programs.note_signals)) as process:
        assert came(launcher, "ready-*", 2)
        for number in numbers:
            process.send_signal(number)
        (launcher.folder / "end").touch()
        _, err = process.communicate(timeout=TIMEOUT_S)
    assert (process.returncode, err) == (0, "")


def test_a_suspended_launcher_has_its_ranks_wait_until_it_goes_on(launcher: Launcher) -> None:
    def all_are(state: str) -> bool:
        return wait_until(lambda: {process_stat(pid)[0] for pid in pids} <= set(state), TIMEOUT_S)

    with launcher.start("-n", "2", *ranks_of(programs.note_signals)) as process:
        assert came(launcher, "ready-*", 2)
        pids = [process.pid, *(int(path.read_text()) for path in launcher.folder.glob("ready-*"))]
        process.send_signal(signal.SIGTSTP)
        assert all_are("T")
        process.send_signal(signal.SIGCONT)
        assert all_are("RS")
        (launcher.folder / "end").touch()
        process.communicate(timeout=TIMEOUT_S)
    assert process.returncode == 0


@pytest.mark.parametrize(("then", "code"), [("", 143), ("exit 3", 3)], ids=["signal", "failure"])
def test_what_happens_while_ranks_are_started_is_seen_between_two_of_them(
    launcher: Launcher, then: str, code: int
) -> None:
    with launcher.start("-n", "60000", "--no-python", "sh", "-c", f"touch started; {then}") as process:
        assert came(launcher, "started", 1)
        if not then:
            process.send_signal(signal.SIGTERM)
        process.communicate(timeout=LEEWAY_S)
    assert process.returncode == code
