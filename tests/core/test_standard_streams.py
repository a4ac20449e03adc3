"""Standard streams that are closed, or that nobody reads: nothing of ours takes their places."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from itertools import chain, combinations
from pathlib import Path

import pytest
from tests.by_reference import command
from tests.core import stream_programs as programs
from tests.processes import alive, wait_until

from rankwise_launch.sink import Sink

PATIENCE_S = 60.0
CLOSED = list(chain.from_iterable(combinations(("<&-", ">&-", "2>&-"), count) for count in range(4)))


def run(closed: tuple[str, ...], *command: str, folder: Path) -> subprocess.CompletedProcess[bytes]:
    """Run a command without some of its standard streams."""
    shell = f'exec "$@" {" ".join(closed)}'
    words = ["sh", "-c", shell, "sh", *command]
    return subprocess.run(words, stdin=subprocess.DEVNULL, capture_output=True, timeout=PATIENCE_S, cwd=folder)


@pytest.mark.parametrize("closed", CLOSED, ids="".join)
def test_no_descriptor_of_ours_takes_the_place_of_a_standard_stream(closed: tuple[str, ...], tmp_path: Path) -> None:
    told = tmp_path / "told"
    done = run(closed, *command(programs.look, str(told)), folder=tmp_path)
    assert done.returncode == 0, done
    places = told.read_text().splitlines()
    assert len(places) == 6
    assert all(place.startswith(("/dev/null", "pipe:")) for place in places), places


@pytest.mark.parametrize("closed", [each for each in CLOSED if len(each) in (1, 3)], ids="".join)
def test_no_descriptor_of_the_launcher_takes_the_place_of_a_stream(closed: tuple[str, ...], tmp_path: Path) -> None:
    look = 'found=$(for n in 0 1 2; do readlink "/proc/$$/fd/$n"; done); echo "$found" > "told-$RANK"'
    words = ["-m", "rankwise", "run", "-n", "2", "--no-python", "sh", "-c", look]
    done = run(closed, sys.executable, *words, folder=tmp_path)
    assert done.returncode == 0, done
    for rank in range(2):
        places = (tmp_path / f"told-{rank}").read_text().splitlines()
        assert [place.partition("[")[0] for place in places] == ["/dev/null", "pipe:", "pipe:"]


@pytest.mark.parametrize("words", [["--version"], ["backends"], ["secret", "new", "key"], ["run", "nothing.py"]])
def test_the_command_ends_as_it_does_with_its_streams(words: list[str], tmp_path: Path) -> None:
    codes = set()
    for number, closed in enumerate([(), ("<&-", ">&-", "2>&-")]):
        command = [word.replace("key", f"key{number}") for word in words]
        codes.add(run(closed, sys.executable, "-m", "rankwise", *command, folder=tmp_path).returncode)
    assert len(codes) == 1
    assert codes <= {0, 127}


def test_the_job_secret_is_no_rank_s_standard_input(tmp_path: Path) -> None:
    command = ["-m", "rankwise", "run", "-n", "1", "--no-python", "readlink", "/proc/self/fd/0"]
    done = run(("<&-",), sys.executable, *command, folder=tmp_path)
    assert done.stdout.split() == [b"[0]:", b"/dev/null"]


# ---------------------------------------------------------------------- a reader that does not read


def test_a_sink_never_waits_for_its_reader_and_loses_nothing() -> None:
    reader, writer = os.pipe()
    with os.fdopen(writer, "w") as stream:
        sink = Sink(stream)
        expected = b""
        while not sink.full:
            data = b"%d " % len(expected) * 1000
            sink.write(data)
            expected += data
        sink.finish(0.05)  # which gives up
        assert sink.waiting
        found = b""
        while len(found) < len(expected):
            found += os.read(reader, 1 << 16)
            sink.drain()
        assert found == expected
        assert not sink.waiting
        assert not sink.full
    os.close(reader)


def test_a_sink_says_that_its_reader_is_gone() -> None:
    reader, writer = os.pipe()
    with os.fdopen(writer, "w") as stream:
        sink = Sink(stream)
        os.close(reader)
        with pytest.raises(BrokenPipeError):
            sink.write(b"text")


@pytest.mark.parametrize("end", [signal.SIGINT, signal.SIGTERM, None])
def test_a_launcher_whose_output_nobody_reads_obeys_signals_and_hears_of_deaths(
    end: signal.Signals | None, tmp_path: Path
) -> None:
    told, held = tmp_path / "told", tmp_path / "held"
    os.mkfifo(held)
    words = [sys.executable, "-m", "rankwise", "run", "-n", "2", *command(programs.chatter, str(told), str(held))[1:]]
    job = subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    try:
        assert job.stdout is not None
        job.stdout.read(1000)
        assert wait_until(lambda: told.exists() and asleep_in_write(int(told.read_text() or 0)), PATIENCE_S)
        if end is not None:
            # However often it comes.
            assert wait_until(lambda: job.send_signal(end) or job.poll() is not None, PATIENCE_S)
            assert job.returncode == 128 + end
        else:
            chatty = int(told.read_text())
            held.write_text("3")  # rank 1 ends, and rank 0 is stopped although nobody reads
            assert wait_until(lambda: not alive(chatty), PATIENCE_S)
            assert job.poll() is None  # what it has to tell is for the reader
            assert b"x" * 1000 in job.stdout.read()
            assert job.wait(PATIENCE_S) == 3
    finally:
        job.kill()
        job.wait()
        if job.stdout is not None:
            job.stdout.close()


def state(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return "Z"


def asleep_in_write(pid: int) -> bool:
    """Tell whether a process has waited in the kernel at several looks in a row."""
    looks = []
    for _ in range(5):
        looks.append(state(pid) if pid else "")
        time.sleep(0.02)
    return looks == ["S"] * 5
