"""The ranks' output where there is too much of it, or nowhere to put it."""

from __future__ import annotations

import resource
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from tests import warm
from tests.by_reference import command
from tests.command_line import Shell
from tests.core import launch_programs as programs
from tests.core.launch_programs import ranks_of

from rankwise.cli import main
from rankwise_launch.config import STDERR, STDOUT
from rankwise_launch.output import _LONGEST_LINE_NBYTES, Console, LineStream, Tail
from rankwise_launch.sink import LogFile

TIMEOUT_S = 60


class Recorder(Console):
    """A console that keeps what it is to show."""

    def __init__(self) -> None:
        super().__init__(1)
        self.lines: list[bytes] = []
        self.said: list[str] = []

    def rank_line(self, rank: int, stream: int, line: bytes) -> None:
        self.lines.append(line)

    def say(self, text: str) -> None:
        self.said.append(text)


def run(folder: Path, *arguments: str, **settings: Any) -> subprocess.CompletedProcess[str]:
    return Shell(folder, TIMEOUT_S).run("run", *arguments, **settings)


def test_output_without_newlines_is_bounded_and_passed_on_in_full() -> None:
    console = Recorder()
    stream = LineStream(0, STDERR, console, True, None)
    total = 0
    for number in range(500):
        data = bytes([65 + number % 26]) * (64 << 10)
        total += len(data)
        stream.feed(data)
        assert stream._begun_nbytes < _LONGEST_LINE_NBYTES
    stream.close()
    assert sum(map(len, stream.tail)) <= 256 << 10
    assert max(map(len, console.lines)) <= _LONGEST_LINE_NBYTES + 1
    assert sum(len(line) - 1 for line in console.lines) == total


@pytest.mark.parametrize("nbytes", [0, 10, 1000, 20_000, 1 << 20])
def test_the_tail_is_bounded_whatever_the_lines(nbytes: int) -> None:
    tail = Tail()
    for number in range(2000):
        tail.append(b"%d" % number + bytes(nbytes))
        assert sum(map(len, tail)) <= 256 << 10
    assert 10 < len(list(tail)) <= 400
    assert next(reversed(list(tail))).startswith(b"1999")


def test_lines_come_out_as_they_went_in_however_they_were_cut() -> None:
    text = b"first\n\nsecond line\nlast without end"
    for step in range(1, len(text) + 1):
        console = Recorder()
        stream = LineStream(0, STDOUT, console, True, None)
        for begin in range(0, len(text), step):
            stream.feed(text[begin : begin + step])
        stream.close()
        assert b"".join(console.lines) == text + b"\n"
        assert list(stream.tail) == text.split(b"\n")


def test_a_log_on_a_full_disk_is_named_once_and_given_up() -> None:
    said: list[str] = []
    log = LogFile(Path("/dev/full"), said.append)
    for _ in range(5):
        log.write(b"something")
    log.close()
    log.close()
    assert not log.works
    assert said == [
        "rankwise: cannot write to /dev/full: the disk is full (No space left on device); the rank goes on without "
        "this log"
    ]


def test_a_log_that_cannot_even_be_opened_is_given_up(tmp_path: Path) -> None:
    said: list[str] = []
    (tmp_path / "file").touch()
    log = LogFile(tmp_path / "file" / "stdout.log", said.append)
    log.write(b"something")
    assert not log.works
    assert str(tmp_path / "file" / "stdout.log") in said[0]


@pytest.mark.parametrize("shown", [True, False], ids=["tee", "redirect"])
def test_what_the_log_does_not_take_is_on_the_console(shown: bool) -> None:
    console = Recorder()
    stream = LineStream(0, STDOUT, console, shown, LogFile(Path("/dev/full"), console.say))
    stream.feed(b"one\ntwo\n")
    assert console.lines == [b"one\n", b"two\n"]


def run_in_little_room(words: list[str]) -> None:
    resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, 20_000))
    sys.exit(main(words))


@pytest.mark.parametrize("option", ["--tee", "--redirects"])
def test_a_disk_that_fills_up_does_not_end_the_ranks(tmp_path: Path, option: str) -> None:
    words = ["run", "-n", "2", "--log-dir", "logs", "--run-id", "r", option, "3", *ranks_of(programs.say_much, 300)]
    result = warm.run(command(run_in_little_room, words)[1:], cwd=tmp_path, timeout_s=TIMEOUT_S)
    assert result.returncode == 0, result.stderr
    for rank in (0, 1):
        path = tmp_path / "logs" / "r" / "attempt_0" / str(rank) / "stdout.log"
        assert 0 < path.stat().st_size <= 20_000
        why = "a file or shared memory would be larger than this process may make it (its limit is 20000 bytes; raise"
        assert result.stderr.count(f"cannot write to {path}: {why}") == 1
        assert result.stderr.count("the rank goes on without this log") == 2
        assert f"[{rank}]: the end" in result.stdout


@pytest.mark.parametrize("sink", ["stdout", "stderr"])
def test_a_console_on_a_full_disk_does_not_end_the_ranks(tmp_path: Path, sink: str) -> None:
    with open("/dev/full", "w") as full:
        result = run(tmp_path, *ranks_of(programs.count_up_both_ways), **{sink: full.fileno()})
    assert (tmp_path / "ended").exists()
    assert result.returncode == 0, (result.stdout, result.stderr)
    if sink == "stdout":
        assert result.stderr.count("cannot write to standard output: the disk is full") == 1


def test_two_runs_of_one_name_have_logs_of_their_own(tmp_path: Path) -> None:
    for text in ("first", "second", "third"):
        result = run(tmp_path, "--log-dir", "logs", "--run-id", "same", *ranks_of(programs.say, text))
        assert result.returncode == 0
    logs = {str(path.relative_to(tmp_path / "logs")): path.read_text() for path in tmp_path.rglob("stdout.log")}
    tail = "attempt_0/0/stdout.log"
    assert logs == {f"same/{tail}": "first\n", f"same.2/{tail}": "second\n", f"same.3/{tail}": "third\n"}
    assert "logs in" in result.stderr
    assert "same.3" in result.stderr


@pytest.mark.parametrize("name", ["SIGSEGV", "SIGFPE", "SIGBUS", "SIGABRT"])
def test_a_rank_that_a_fault_ends_says_where_it_was(tmp_path: Path, name: str) -> None:
    result = run(tmp_path, *ranks_of(programs.deep_inside, name))
    report = result.stderr[result.stderr.index("=" * 20) :]
    assert name in report
    assert "in deep_inside" in report
    assert "has written nothing" not in report
    assert "Fatal Python error" in report
