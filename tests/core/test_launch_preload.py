"""`rankwise run --preload`: the ranks are forked, and behave as if each had been started by itself."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from tests.command_line import Launcher

import rankwise
from rankwise_launch import preloading
from rankwise_launch.config import LaunchError

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")

TIMEOUT_S = 60

#: Tells what a program can know of how it has been started.
TELLING = """
import json, os, sys, threading
OF_ONE_JOB = ("TORCHELASTIC_RUN_ID", "RANKWISE_STORE", "_")
main = sys.modules["__main__"]
print(json.dumps({
    "argv": sys.argv, "path": sys.path[0], "name": __name__, "file": __file__, "spec": main.__spec__ is None,
    "package": __package__, "loader": type(__loader__).__name__, "main": main.__dict__ is globals(),
    "environment": {k: v for k, v in os.environ.items() if "_PORT" not in k and k not in OF_ONE_JOB},
    "out": [sys.stdout.encoding, sys.stdout.errors, sys.stdout.line_buffering, sys.stdout.seekable()],
    "err": [sys.stderr.encoding, sys.stderr.errors, sys.stderr.line_buffering, sys.stderr.seekable()],
    "input": sys.stdin.read(), "threads": threading.active_count(), "folder": os.getcwd(),
    "leader": os.getsid(0) == os.getpid(), "signals": [str(__import__("signal").getsignal(n)) for n in (2, 13, 15)],
    "descriptors": len(os.listdir("/dev/fd")), "terminal": sys.stdout.isatty(),
}, sort_keys=True))
print("an error", file=sys.stderr)
"""

#: Ends in many ways.
ENDING = """
import os, signal, sys, atexit
def inner():
    how = sys.argv[1]
    if how == "raise": raise ValueError("on purpose")
    if how == "exit": sys.exit(7)
    if how == "text": sys.exit("a last word")
    if how == "kill": os.kill(os.getpid(), signal.SIGKILL)
    if how == "fault": import ctypes; ctypes.string_at(0)
    if how == "interrupt": raise KeyboardInterrupt
    if how == "hook":
        sys.excepthook = lambda kind, error, trace: print("hook", kind.__name__, trace.tb_lineno, file=sys.stderr)
        raise ValueError("on purpose")
atexit.register(print, "at the end")
inner()
"""


class Runner(Launcher):
    """Runs the launcher in a folder of its own, with and without `--preload`."""

    def script(self, text: str, name: str = "script.py") -> str:
        (self.folder / name).write_text(text)
        return name

    def start(self, *words: str, preload: str = "", **settings: Any) -> Any:
        return super().start(*(["--preload", preload] if preload else []), *words, **settings)

    def both(self, *words: str, **settings: Any) -> tuple[subprocess.CompletedProcess[str], ...]:
        return self.run(*words, **settings), self.run(*words, preload="json,rankwise", **settings)


@pytest.fixture
def runner(tmp_path: Path) -> Runner:
    made = Runner(tmp_path, TIMEOUT_S)
    made.environment["OMP_NUM_THREADS"] = "1"  # a library that starts threads cannot be preloaded
    return made


def lines(text: str) -> list[str]:
    return sorted(text.splitlines())


def without_places(text: str) -> list[str]:
    """Return the lines of a report without what differs from run to run."""
    return sorted(line for line in text.splitlines() if " pid " not in line and " after its start" not in line)


@pytest.mark.parametrize("words", [["-m", "script"], ["./script.py", "--an", "argument"], ["folder/../script.py"]])
def test_a_forked_rank_sees_what_it_would_see_by_itself(runner: Runner, words: list[str]) -> None:
    runner.script(TELLING)
    (runner.folder / "folder").mkdir()
    plain, forked = runner.both("-n", "2", *words, given="typed in")
    assert plain.returncode == forked.returncode == 0, forked.stderr
    assert lines(forked.stdout) == lines(plain.stdout)
    assert lines(forked.stderr) == lines(plain.stderr)
    assert "typed in" in plain.stdout


@pytest.mark.parametrize("how", ["raise", "exit", "text", "kill", "fault", "interrupt", "hook", "well"])
def test_a_forked_rank_ends_as_it_would_by_itself(runner: Runner, how: str) -> None:
    runner.script(ENDING)
    plain, forked = runner.both("script.py", how)
    assert forked.returncode == plain.returncode
    assert forked.stdout == plain.stdout
    if how == "fault":  # the frames of the process that it was forked from are below its own
        assert "Segmentation fault" in forked.stderr
        assert "script.py" in forked.stderr
    else:
        assert without_places(forked.stderr) == without_places(plain.stderr)


def test_a_file_that_is_no_python_fails_as_by_itself(runner: Runner) -> None:
    runner.script("def (\n")
    plain, forked = runner.both("script.py")
    assert forked.returncode == plain.returncode == 1
    assert without_places(forked.stderr) == without_places(plain.stderr)


def test_ranks_meet_restart_and_draw_their_own_numbers(runner: Runner) -> None:
    pytest.importorskip("rankwise_gloo_tcp")
    runner.script("""
import os, numpy as np, rankwise as dist
dist.init_process_group("gloo")
drawn = [None] * 3
dist.all_gather_object(drawn, int(np.random.randint(1 << 62)))
dist.barrier()
dist.destroy_process_group()
if os.environ["TORCHELASTIC_RESTART_COUNT"] == "0": os._exit(3)
if os.environ["RANK"] == "0": print(len(set(drawn)))
""")
    done = runner.run("-n", "3", "--max-restarts", "1", "script.py", preload="numpy,rankwise")
    assert done.returncode == 0, done.stderr
    assert done.stdout.endswith("[0]: 3\n")


def test_modules_are_imported_once_and_what_they_print_is_shown(runner: Runner) -> None:
    runner.script("import os; print('imported', flush=True); PID = os.getpid()", "once.py")
    runner.script("import once; print(once.PID)")
    done = runner.run("-n", "4", "script.py", preload="once")
    assert done.returncode == 0, done.stderr
    assert (done.stdout + done.stderr).count("imported") == 1
    assert len({line.split()[1] for line in done.stdout.splitlines() if line.startswith("[")}) == 1


@pytest.mark.parametrize(
    ("text", "code", "told"),
    [
        ("import threading, time; threading.Thread(target=time.sleep, args=(99,), daemon=True, name='mine').start()",
         71, "starts threads (mine)"),
        ("1 / 0", 71, "ZeroDivisionError"),
        ("import os; os._exit(5)", 71, "has ended"),
        ("import nothing_of_this_name", 127, "nothing_of_this_name"),
    ],
)  # fmt: skip
def test_what_cannot_be_preloaded_says_so(runner: Runner, text: str, code: int, told: str) -> None:
    runner.script(text, "odd.py")
    runner.script("print('ran')")
    done = runner.run("script.py", preload="odd")
    assert done.returncode == code
    assert told in done.stderr
    assert "ran" not in done.stdout


def test_only_python_files_are_preloaded_for(runner: Runner) -> None:
    (runner.folder / "folder").mkdir()
    runner.script("", "folder/__main__.py")
    assert "is no Python file" in runner.run("folder", preload="json").stderr
    assert "--no-python" in runner.run("--no-python", "true", preload="json").stderr
    assert "must be modules" in runner.run("script.py", preload="json;os").stderr


def test_ctrl_c_and_the_death_of_the_launcher_leave_nothing(runner: Runner) -> None:
    runner.script("import os, time; print(os.getpid(), flush=True); time.sleep(60)")
    for number in (signal.SIGINT, signal.SIGKILL):
        with runner.start("-n", "2", "script.py", preload="json") as launcher:
            pids = [int(launcher.stdout.readline().split()[-1]) for _ in range(2)]
            descriptors = [os.pidfd_open(pid) for pid in pids] if hasattr(os, "pidfd_open") else []
            launcher.send_signal(number)
            launcher.communicate(timeout=TIMEOUT_S)
            assert launcher.returncode == (130 if number == signal.SIGINT else -signal.SIGKILL)
        for descriptor in descriptors:
            import select

            poll = select.poll()
            poll.register(descriptor, select.POLLIN)
            assert poll.poll(1000 * TIMEOUT_S)
            os.close(descriptor)


def test_with_rankwise_comes_all_that_a_first_group_loads(runner: Runner) -> None:
    pytest.importorskip("rankwise_gloo_tcp")
    runner.script("""
import sys
import numpy as np, rankwise as dist
from rankwise.basics import entry_points
before, declared, looks = set(sys.modules), entry_points.declared_by, []
entry_points.declared_by = lambda group: looks.append(group) or declared(group)
dist.init_process_group("gloo")
dist.all_reduce(np.ones(4))
late = sorted(set(sys.modules) - before)
dist.destroy_process_group()
print(len(looks), len(late), *late)
""")
    for words, few in ((["-n", "2"], False), (["-n", "2", "--preload", "numpy,rankwise"], True)):
        done = runner.run(*words, "script.py")
        assert done.returncode == 0, done.stderr
        for line in done.stdout.splitlines():
            looks, late = map(int, line.split()[1:3])
            assert ((looks == 0), (late < 12)) == (few, few), line


SPAWNING = """
import os, sys
import rankwise

def tell(rank, folder):
    assert "once" in sys.modules
    import once
    with open(f"{folder}/{rank}", "w") as file:
        file.write(f"{once.PID} {os.environ['RANK']}")

if __name__ == "__main__":
    rankwise.spawn(tell, (sys.argv[1],), 3, start_method="forkserver", preload=["once"])
    found = [open(f"{sys.argv[1]}/{rank}").read().split() for rank in range(3)]
    assert len({pid for pid, _ in found}) == 1 and [rank for _, rank in found] == ["0", "1", "2"]
    print("well")
"""


def test_spawn_has_the_fork_server_import_modules_once(runner: Runner) -> None:
    runner.script("import os; PID = os.getpid()", "once.py")
    words = [sys.executable, runner.script(SPAWNING, "spawning.py"), str(runner.folder)]
    env = {**runner.environment, "PYTHONPATH": os.pathsep.join(runner.path)}
    done = subprocess.run(words, cwd=runner.folder, env=env, capture_output=True, text=True, timeout=TIMEOUT_S)
    assert done.stdout == "well\n", done.stderr


def test_spawn_preloads_for_the_fork_server_alone() -> None:
    with pytest.raises(ValueError, match="preload is a list of modules for start_method='forkserver'"):
        rankwise.spawn(print, preload=["json"])
    with pytest.raises(ValueError, match="not 'json'"):
        rankwise.spawn(print, start_method="forkserver", preload="json")


@pytest.mark.parametrize("read_nbytes", [0, 2, 4, 9])
def test_an_interrupt_within_an_answer_leaves_nobody_waiting_for_the_rest(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, read_nbytes: int
) -> None:
    """What is left of the answer would be taken for the next: its length for that of a long one that never comes."""

    def interrupted(line: socket.socket, most_descriptors: int) -> Any:
        if read_nbytes:
            line.recv(read_nbytes)
        raise KeyboardInterrupt

    with preloading.Preloaded([], dict(os.environ), str(tmp_path)) as preloaded:
        code = "import time; time.sleep(600)"
        (tmp_path / "sleeping.py").write_text(code)
        forked = preloaded.fork(["sleeping"], {**os.environ, "PYTHONPATH": str(tmp_path)}, None)
        with monkeypatch.context() as patch:
            patch.setattr(preloading, "read", interrupted)
            with pytest.raises(KeyboardInterrupt):
                forked.poll()
        assert not preloaded.is_ready()
        os.kill(forked.pid, signal.SIGKILL)
        assert forked.wait() is None  # nobody knows, and nobody waits
        with pytest.raises(LaunchError, match="interrupt"):
            preloaded.fork(["sleeping"], dict(os.environ), None)
        for stream in (forked.stdout, forked.stderr):
            assert stream is not None
            stream.close()
