"""`rankwise run` and `python -m rankwise_launch`, as a user meets them: processes, signals, exit codes."""

from __future__ import annotations

import os
import re
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from tests.command_line import Launcher, run_here
from tests.core import launch_programs as programs
from tests.core.launch_programs import ranks_of
from tests.processes import alive, wait_until

TIMEOUT_S = 30
LEEWAY_S = 1.5


def pids(launcher: Launcher) -> list[int]:
    return [int(word) for path in launcher.folder.glob("pids-*") for word in path.read_text().split()]


@pytest.fixture
def launcher(tmp_path: Path) -> Launcher:
    return Launcher(tmp_path, TIMEOUT_S)


def test_every_rank_finds_its_place_in_the_variables_of_torchrun(launcher: Launcher) -> None:
    names = (
        "RANK LOCAL_RANK WORLD_SIZE LOCAL_WORLD_SIZE GROUP_RANK GROUP_WORLD_SIZE ROLE_RANK ROLE_NAME ROLE_WORLD_SIZE "
        "MASTER_ADDR OMP_NUM_THREADS TORCHELASTIC_RESTART_COUNT TORCHELASTIC_MAX_RESTARTS TORCHELASTIC_RUN_ID"
    )
    result = launcher.run("-n", "2", "--run-id", "mine", *ranks_of(programs.tell, *names.split()))
    assert (result.returncode, result.stderr) == (0, "")
    assert sorted(result.stdout.splitlines()) == [
        f"[{rank}]: {rank} {rank} 2 2 0 1 {rank} default 2 127.0.0.1 1 0 0 mine" for rank in (0, 1)
    ]


def test_a_thread_count_that_is_set_is_left_alone(launcher: Launcher) -> None:
    result = launcher.run("-n", "2", *ranks_of(programs.tell, "OMP_NUM_THREADS"), env={"OMP_NUM_THREADS": "7"})
    assert sorted(result.stdout.splitlines()) == ["[0]: 7", "[1]: 7"]


def test_the_ranks_share_a_secret_that_nobody_can_see(launcher: Launcher) -> None:
    first, second = (launcher.run("-n", number, *ranks_of(programs.tell_secret)) for number in "21")
    lines = {line.split(": ", 1)[1] for line in first.stdout.splitlines()}
    assert len(lines) == 1, first
    assert lines.pop().startswith("32 False ")
    assert second.stdout.split()[-1] not in first.stdout


def test_the_port_is_free_for_rank_0_to_serve(launcher: Launcher) -> None:
    result = launcher.run("-n", "3", *ranks_of(programs.meet))
    assert (result.returncode, result.stdout.count("met")) == (0, 3), result


def test_lines_of_all_ranks_arrive_whole_and_on_their_own_stream(launcher: Launcher) -> None:
    result = launcher.run("-n", "4", *ranks_of(programs.say_in_pieces))
    for stream, mark in ((result.stdout, "o"), (result.stderr, "e")):
        lines = [line for line in stream.splitlines() if "no newline" not in line]
        assert len(lines) == 4 * 300
        assert all(re.fullmatch(rf"\[[0-3]\]: {mark}\d{{4}}{mark}{{3000}}", line) for line in lines)
    assert result.stdout.count("]: no newline\n") == 4


def test_colour_is_for_terminals_only_and_not_for_those_who_do_not_want_it(launcher: Launcher) -> None:
    shown = {}
    for no_color in ("", "1"):
        leader, follower = os.openpty()
        environment = {"TERM": "xterm", "NO_COLOR": no_color}
        with launcher.start("--no-python", "echo", "hello", env=environment, stdout=follower) as process:
            assert process.wait(TIMEOUT_S) == 0
        os.close(follower)
        shown[no_color] = os.read(leader, 4096)
        os.close(leader)
    assert shown == {"": b"\x1b[36m[0]:\x1b[0m hello\r\n", "1": b"[0]: hello\r\n"}


def test_the_first_failure_stops_the_others_within_a_second_and_comes_last(launcher: Launcher) -> None:
    result = launcher.run("-n", "4", *ranks_of(programs.stay_beside_a_failure))
    ended = time.time()
    failed = float(re.findall(r"\[2\]: ([\d.]+)\n", result.stdout)[0])
    assert result.returncode == 1
    assert ended - failed < LEEWAY_S  # a second, and the interpreters' ends
    assert wait_until(lambda: not any(map(alive, pids(launcher))), 0.5)
    report = result.stderr[result.stderr.index("=" * 80) :]
    for words in ("rank 2 failed first: exit code 1", "rank 3 had ended with exit code 0", "ranks 0, 1 were stopped"):
        assert words in report
    assert report.index("ZeroDivisionError") < report.index("ValueError: the cause\n" + "=" * 80)
    assert result.stderr.endswith("=" * 80 + "\n")


@pytest.mark.parametrize(
    ("ranks", "program", "code", "words"),
    [
        # One that fell over another is not the one to blame, and may say so before it is stopped.
        (2, [programs.fall_over_another], 9, ["rank 1 failed first: exit code 9", "rank 0 failed too: exit code 1"]),
        (2, [programs.say_last_words], 3, ["[1]: the last words", "rank 1 failed too: exit code 1"]),
        (2, [programs.end_as, 42], 42, ["rank 1 failed first: exit code 42"]),
        (2, [programs.end_as, -9], 128 + 9, ["rank 1 failed first: killed by SIGKILL (signal 9)"]),
        (1, [programs.fault], 128 + 11, ["rank 0 failed first: killed by SIGSEGV (signal 11)"]),
        (3, [programs.stay_longer], 0, ["ranks 1, 2 ended with exit code 0 some time ago; still running: rank 0."]),
    ],
    ids=lambda value: value[0].__name__ if isinstance(value, list) and callable(value[0]) else "",
)
def test_how_ranks_end_is_passed_on_and_told(
    launcher: Launcher, ranks: int, program: list[Any], code: int, words: list[str]
) -> None:
    result = launcher.run("-n", str(ranks), *ranks_of(*program))
    assert result.returncode == code, result.stderr
    assert [each for each in words if each not in result.stderr] == []


@pytest.mark.parametrize("what", ["gone", "late"])
def test_a_rank_that_ends_well_but_too_early_is_the_one_to_blame(launcher: Launcher, what: str) -> None:
    result = launcher.run("-n", "3", *ranks_of(programs.miss_one, what))
    assert result.returncode == 104, result.stderr
    report = result.stderr[result.stderr.index("=" * 80) :]
    assert "rank 1 ended too early: with exit code 0, " in report
    assert re.search(r"rank 1 ended too early.*\nrank [02] failed first: exit code 1", report)
    assert report.endswith("=" * 80 + "\n")


@pytest.mark.parametrize(
    ("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143), (signal.SIGKILL, -9)], ids=["INT", "TERM", "KILL"]
)
def test_no_process_outlives_the_launcher(launcher: Launcher, number: int, code: int) -> None:
    """Neither ranks nor what they have started, even if the launcher itself is killed."""
    with launcher.start("-n", "2", *ranks_of(programs.stay)) as process:
        assert {process.stdout.readline() for _ in range(2)} == {"[0]: ready\n", "[1]: ready\n"}
        started = pids(launcher)
        assert len([pid for pid in started if alive(pid)]) == 4
        process.send_signal(number)
        process.communicate(timeout=TIMEOUT_S)
    assert process.returncode == code
    assert wait_until(lambda: not any(map(alive, started)), 2.0)


def test_ranks_can_clean_up_after_a_signal(launcher: Launcher) -> None:
    with launcher.start(*ranks_of(programs.clean_up)) as process:
        process.stdout.readline()
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=TIMEOUT_S)
    assert (process.returncode, out) == (130, "[0]: cleaned up\n")
    assert "Ctrl-C: stopping all ranks" in err
    assert "Traceback" not in err


def test_what_a_rank_leaves_running_is_ended_with_the_job(launcher: Launcher) -> None:
    result = launcher.run("-n", "1", *ranks_of(programs.have_child))
    assert result.returncode == 0
    assert wait_until(lambda: not any(map(alive, pids(launcher))), 0.5)


def test_a_failed_job_is_started_again(launcher: Launcher) -> None:
    good = launcher.run("--max-restarts", "2", *ranks_of(programs.attempt, 1))
    assert (good.returncode, good.stdout) == (0, "[0]: attempt 0 of 2\n[0]: attempt 1 of 2\n")
    assert "starting all ranks again (1 of 2 restarts left)" in good.stderr
    bad = launcher.run("--max-restarts", "1", *ranks_of(programs.attempt, 9))
    assert (bad.returncode, bad.stdout.count("attempt")) == (3, 2)


def test_log_files_take_what_they_are_told_to(launcher: Launcher) -> None:
    words = ("-n", "2", "--log-dir", "logs", "--run-id", "x", "--redirects", "1:3", "--tee", "0:1")
    result = launcher.run(*words, *ranks_of(programs.tell_both_ways))
    logs = {str(p.relative_to(launcher.folder)): p.read_text() for p in launcher.folder.rglob("*.log")}
    assert logs == {
        "logs/x/attempt_0/0/stdout.log": "out\n",
        "logs/x/attempt_0/1/stdout.log": "out\n",
        "logs/x/attempt_0/1/stderr.log": "err\n",
    }
    assert result.stdout == "[0]: out\n"
    assert [line for line in result.stderr.splitlines() if "logs in" not in line] == ["[0]: err"]
    launcher.run("--log-dir", "both", "--run-id", "y", *ranks_of(programs.tell_both_ways))
    assert (launcher.folder / "both/y/attempt_0/0/stderr.log").read_text() == "err\n"


def test_modules_and_programs_run_too(launcher: Launcher) -> None:
    (launcher.folder / "mine.py").write_text("import sys; print(__name__, sys.argv[1:])")
    assert launcher.run("-m", "mine", "--flag", "-n").stdout == "[0]: __main__ ['--flag', '-n']\n"
    assert launcher.run("--no-python", "sh", "-c", "echo $RANK of $WORLD_SIZE").stdout == "[0]: 0 of 1\n"


def test_the_older_command_line_tells_the_local_rank(launcher: Launcher) -> None:
    script = "script.py"
    (launcher.folder / script).write_text("import os, sys; print(os.environ['LOCAL_RANK'], *sys.argv[1:])")
    result = launcher.run("--nproc_per_node=2", script, "--lr", "1", module="rankwise_launch")
    assert sorted(result.stdout.splitlines()) == [f"[{i}]: {i} --local_rank={i} --lr 1" for i in (0, 1)]
    result = launcher.run("--nproc_per_node", "1", "--use_env", script, module="rankwise_launch")
    assert result.stdout == "[0]: 0\n"


def test_only_rank_0_reads_the_standard_input(launcher: Launcher) -> None:
    result = launcher.run("-n", "2", *ranks_of(programs.tell_input), given="text")
    assert sorted(result.stdout.splitlines()) == ["[0]: 'text'", "[1]: ''"]


def test_a_reader_that_goes_away_ends_the_job(launcher: Launcher) -> None:
    with launcher.start("-n", "2", *ranks_of(programs.say_without_end)) as process:
        process.stdout.readline()
        process.stdout.close()
        assert process.wait(TIMEOUT_S) == 141
        assert 'Traceback (most recent call last):\n  File "<frozen' not in process.stderr.read()


@pytest.fixture
def script(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Be in a folder with a script, and on no node of a cluster."""
    (tmp_path / "script.py").touch()
    monkeypatch.chdir(tmp_path)
    for name in ("PET_NODE_RANK", "SLURM_NODEID", "LWS_WORKER_INDEX", "JOB_COMPLETION_INDEX"):
        monkeypatch.delenv(name, raising=False)


@pytest.mark.usefixtures("script")
@pytest.mark.parametrize(
    ("arguments", "code", "sentence"),
    [
        (["missing.py"], 127, "there is no script 'missing.py' in "),
        (["ls"], 127, "add --no-python"),
        (["-m", "no_such_module_at_all"], 127, "there is no Python module 'no_such_module_at_all'"),
        (["--no-python", "./script.py"], 126, "cannot be executed; run `chmod +x"),
        (["--no-python", "no-such-program"], 127, "there is no program 'no-such-program'"),
        (["-n", "0", "script.py"], 2, "at least 1 process per node is needed, not 0"),
        (["-n", "1000000", "script.py"], 2, "at most 65536 processes per node can be started, not 1000000"),
        ("--nnodes 1000000 --node-rank 1 --master-addr x script.py".split(), 2, "at most 65536 nodes can be started"),
        (["-n", "many", "script.py"], 2, "'many' must be a number, or auto, cpu or gpu"),
        (["--nnodes", "2", "script.py"], 2, "several nodes need --master-addr"),
        (["--nnodes", "2", "--master-addr", "127.0.0.1", "script.py"], 2, "several nodes need --master-port"),
        (["--node-rank", "1", "--nnodes", "1", "--tee", "5", "script.py"], 2, "must be 0 to 3"),
        (["--master-port", "70000", "script.py"], 2, "must be 1 to 65535"),
        (["--master-addr", "192.0.2.1", "script.py"], 98, "192.0.2.1 is not an address of this machine"),
        (["--bogus", "script.py"], 2, "--bogus"),
        ([], 2, "SCRIPT"),
    ],
)
def test_bad_input_gets_a_sentence_and_an_exit_code(
    capsys: pytest.CaptureFixture[str], arguments: list[str], code: int, sentence: str
) -> None:
    ended, _, shown = run_here(capsys, "run", *arguments)
    assert ended == code
    assert sentence in shown.replace("\n", " ")
    assert "Traceback" not in shown


def test_a_port_in_use_is_told_before_anything_starts(launcher: Launcher) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = str(server.getsockname()[1])
        result = launcher.run("--master-port", port, *ranks_of(programs.say, "started"))
    assert (result.returncode, result.stdout) == (98, "")
    assert f"port {port} on 127.0.0.1 is in use" in result.stderr


@pytest.mark.usefixtures("script")
@pytest.mark.parametrize("name", ["..", ".", "../outside", "/tmp/outside", "a/b"])
def test_a_run_s_name_leads_to_no_other_folder(name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, _, told = run_here(capsys, "run", "--log-dir", "logs", "--run-id", name, "-n", "1", "script.py")
    assert (code, "--run-id" in told) == (2, True)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["script.py"]


@pytest.mark.parametrize(
    "words",
    ["-m rankwise run -n 1 script.py", "-m rankwise doctor", "-m rankwise conformance gloo", "../spawns.py"],
)
def test_a_folder_that_has_been_removed_is_named(words: str, tmp_path: Path) -> None:
    (tmp_path / "gone").mkdir()
    (tmp_path / "spawns.py").write_text("import rankwise\nif __name__ == '__main__':\n    rankwise.spawn(print)\n")
    shell = f'cd gone && rmdir ../gone && exec "{sys.executable}" {words.replace("..", str(tmp_path))}'
    done = subprocess.run(["sh", "-c", shell], cwd=tmp_path, capture_output=True, text=True, timeout=2 * TIMEOUT_S)
    assert done.returncode not in (0, None)
    assert " ".join((done.stdout + done.stderr).split()).count("folder in which this was started has been removed") == 1
