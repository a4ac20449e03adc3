"""How commands end: by signals, and by arguments that make no sense."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests import warm
from tests.by_reference import command
from tests.command_line import run_here
from tests.core.launch_programs import make_groups, ranks_of
from tests.processes import alive, descendants, wait_until
from tests.threads import on_ranks, run_local

import rankwise as dist
from rankwise_launch.launching import run_launcher

TIMEOUT_S = 60


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGKILL])
def test_conformance_leaves_nothing_running(tmp_path: Path, number: int) -> None:
    few = ["--", "--ignore-glob=*/test_[!d]*"]  # so that not all are read
    words = ["-m", "rankwise", "conformance", "gloo", "--report", "r.json", *few]
    null = subprocess.DEVNULL
    with warm.start(words, cwd=tmp_path, stdout=null, stderr=null) as process:
        try:
            assert wait_until(lambda: len(descendants(process.pid)) >= 4, TIMEOUT_S), "it has started no ranks"
            started = descendants(process.pid)
            process.send_signal(number)
            code = process.wait(TIMEOUT_S)
            assert wait_until(lambda: not any(map(alive, started)), TIMEOUT_S), "something runs on"
        finally:
            process.kill()
    assert code == (-number if number == signal.SIGKILL else 128 + number)


def test_a_report_that_cannot_be_written_is_refused_at_once(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for report in (tmp_path / "missing" / "r.json", tmp_path):
        code, out, err = run_here(capsys, "conformance", "gloo", "--report", str(report))
        assert (code, out) == (2, "")
        assert str(report) in " ".join(err.split())
        assert "Traceback" not in err


def launch(words: list[str]) -> None:
    sys.exit(run_launcher(words, dict(os.environ)))


def foreign(program: str) -> warm.Process:
    return warm.start(command(launch, [sys.executable, "-Su", "-c", program])[1:])


@pytest.mark.parametrize(
    ("program", "code"),
    [("pass", 0), ("raise SystemExit(7)", 7), ("import os; os.kill(os.getpid(), 9)", 137)],
)
def test_a_foreign_launchers_end_is_passed_on(program: str, code: int) -> None:
    with foreign(program) as process:
        process.communicate(timeout=TIMEOUT_S)
    assert process.returncode == code


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
@pytest.mark.parametrize("its_code", [0, 1, None])
def test_a_signal_reaches_the_foreign_launcher_and_is_the_exit_code(number: int, its_code: int | None) -> None:
    handler = "signal.SIG_DFL" if its_code is None else f"lambda *_: sys.exit({its_code})"
    program = f"import signal, sys; signal.signal({int(number)}, {handler}); print('ready')\nwhile True: signal.pause()"
    with foreign(program) as process:
        assert process.stdout.readline() == "ready\n"  # type: ignore[union-attr]
        process.send_signal(number)
        process.communicate(timeout=TIMEOUT_S)
    assert process.returncode == 128 + number


def test_a_signal_for_ranks_reaches_the_foreign_launcher_and_ends_nothing() -> None:
    handler = "import signal, sys; signal.signal(signal.SIGUSR1, lambda *_: sys.exit(5))"
    with foreign(f"{handler}; print('ready'); signal.pause()") as process:
        assert process.stdout.readline() == "ready\n"  # type: ignore[union-attr]
        process.send_signal(signal.SIGUSR1)
        process.communicate(timeout=TIMEOUT_S)
    assert process.returncode == 5


@pytest.mark.parametrize("name", ["demo", "run"])
def test_far_too_many_processes_are_refused_at_once(capsys: pytest.CaptureFixture[str], name: str) -> None:
    code, out, err = run_here(capsys, name, "-n", "1000000", *(["program.py"] if name == "run" else []))
    assert (code, out) == (2, "")
    assert "can be started, not 1000000" in err


def test_a_foreign_launcher_does_not_outlive_this_one() -> None:
    with foreign("import os, signal; print(os.getpid())\nwhile True: signal.pause()") as process:
        pid = int(process.stdout.readline())  # type: ignore[union-attr]
        process.kill()
        assert wait_until(lambda: not alive(pid), TIMEOUT_S)


def test_explain_takes_no_latency_at_all(capsys: pytest.CaptureFixture[str]) -> None:
    code, told, _ = run_here(capsys, "explain", "all_reduce", "--backend", "derived", "--alpha-us", "0")
    assert (code, "Simulated with 0 us" in told) == (0, True)


def test_articles_fit_their_nouns() -> None:
    for value, words in ((object(), "an object is not"), ({}, "a dict is not")):
        with pytest.raises(TypeError, match=words):
            run_local(1, lambda value=value: dist.all_reduce(value))


@pytest.mark.parametrize("case", ["read-only", "not C-contiguous"])
@on_ranks(2)
def test_the_remedy_for_an_array_that_cannot_be_written_works(case: str) -> None:
    it = np.ones((4, 4))
    call: Callable[[Any], object] = dist.all_reduce
    if case == "read-only":
        it.flags.writeable = False
    else:
        it, call = it[:, ::2], lambda array: dist.all_reduce_multigpu([array])
    with pytest.raises(ValueError, match=case) as caught:
        call(it)
    assert "ascontiguousarray" not in str(caught.value)
    steps = str(caught.value).split("`")[1::2]  # what it says, done
    names = {"it": it, "numpy": np}
    exec(steps[0], names)
    dist.all_reduce(names["copy"])
    for step in steps[1:]:
        exec(step, names)
    result = names["copy"] if case == "read-only" else it
    assert bool((result == 2).all())


@pytest.mark.parametrize(
    ("dtype", "error", "words"),
    [
        ("int99", ValueError, r"no such dtype: 'int99'; did you mean 'int8'\?"),
        ("no such", ValueError, r"no such dtype: 'no such'; there are bool, int8"),
        (3, TypeError, r"3 is no dtype; pass what NumPy takes for one, or one of bool, int8"),
    ],
)
def test_supports_says_which_dtypes_there_are(dtype: object, error: type[Exception], words: str) -> None:
    with pytest.raises(error, match=words):
        dist.supports("all_reduce", "cpu", dtype)


def test_a_backend_in_a_message_is_its_name(monkeypatch: pytest.MonkeyPatch) -> None:
    from rankwise.backends import discovery
    from rankwise.backends.registry import Registry

    (point,) = discovery.points_of("gloo")
    points = [point, point._replace(distribution="acme-gloo")]
    monkeypatch.setattr(discovery, "quickly", lambda name: None)
    monkeypatch.setattr(discovery, "points_of", lambda name: points)
    fresh = Registry()
    with pytest.raises(dist.PluginError, match=r"^backend 'gloo' is claimed by"):
        fresh.get(dist.Backend("gloo"))
    assert "<Backend" not in fresh.availability(dist.Backend("gloo")).reason


@pytest.mark.parametrize("level", ["off", "info", "detail"])
def test_info_tells_what_is_chosen_and_why(tmp_path: Path, level: str) -> None:
    words, env = ["-m", "rankwise", "run", "-n", "2", *ranks_of(make_groups)], {**os.environ, "RANKWISE_DEBUG": level}
    run = warm.run(words, cwd=tmp_path, env=env, timeout_s=TIMEOUT_S)
    assert run.returncode == 0, run.stderr
    told = ["meets the others at TCPStore('127.0.0.1'", "with a job secret", "gloo for cpu"]
    for rank in range(2):
        mine = "\n".join(line for line in run.stderr.splitlines() if line.startswith(f"[{rank}]"))
        for words in (*told, f"rank {rank} of 2", f"rank {rank}: group 'pair' of ranks [0, 1]: gloo"):
            assert (words in mine) == (level != "off")
