"""Other systems, played on Linux: what their Python lacks is taken away in a fresh interpreter (see `systems`)."""

import os
import re
import selectors
import subprocess
import sys
import threading
from functools import cache
from pathlib import Path
from signal import SIGKILL

import pytest

HERE = Path(__file__).parent
TIMEOUT_S = 60


def python(system, *arguments):
    """Run Python as another system's, without compiled parts."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("RANKWISE_", "PYTHON"))}
    return subprocess.run(
        [sys.executable, "-W", "error", *map(str, arguments)],
        env={**kept, "PYTHONPATH": str(HERE / "systems" / system), "RANKWISE_NATIVE": "off"},
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
    )


RUN = ("-m", "rankwise", "run", "-n", "2")


@pytest.mark.parametrize(
    ("system", "launch", "program", "code", "lines", "problem"),
    [
        ("macos", (), "both.py", 0, ["all of it"], "^$"),
        ("windows", (), "both.py", 0, ["all of it"], "^$"),
        ("macos", (), "spawned.py", 0, ["both have ended well"], "^$"),
        ("macos", RUN, "two.py", 0, ["[0]: rank 0 on Darwin", "[1]: rank 1 on Darwin"], ""),
        ("macos", RUN, "killed.py", 128 + SIGKILL, ["[0]: 1 PeerDiedError"], "rank 1 failed first: killed by SIGKILL"),
        ("windows", RUN, "two.py", 71, [], "^rankwise run: ranks are processes on Linux and macOS alone.*\n$"),
    ],
)
def test_a_program_ends_as_it_must(system, launch, program, code, lines, problem):
    done = python(system, *launch, HERE / "programs" / program)
    assert (done.returncode, sorted(done.stdout.splitlines())) == (code, lines), done.stderr
    assert re.search(problem, done.stderr), done.stderr


@pytest.mark.parametrize(("system", "name"), [("macos", "Darwin"), ("windows", "Windows")])
def test_what_is_taken_away_is_gone(system, name):
    left = "[name for name in ('sched_getaffinity', 'memfd_create', 'pipe2') if hasattr(os, name)]"
    more = "hasattr(select, 'epoll'), os.path.exists('/proc/self/stat')"
    done = python(system, "-c", f"import os, platform, select; print(platform.system(), {left}, {more})")
    assert (done.stdout, done.stderr) == (f"{name} [] False False\n", "")


def test_the_doctor_proves_gloo_on_macos():
    done = python("macos", "-m", "rankwise", "doctor")
    assert "gloo: two processes all_reduce 1 MiB on this machine: right" in done.stdout, done.stdout + done.stderr
    assert "memfd" in done.stdout


#: What cannot work, one after the other, and what is said of it.
STATEMENTS = {
    "windows": {
        "dist.spawn(print, nprocs=2)": "ranks are processes on Linux and macOS alone",
        "dist.init_process_group('gloo', rank=0, world_size=1)": "backend 'gloo' cannot run here: this system's",
        "dist.FileStore('store', 1)": "FileStore needs locks of open files, which Linux alone has; use TCPStore",
        "run_ranks(print, 2)": "local_world runs ranks as threads anywhere",
        "os.environ['RANKWISE_SOCKET_IFNAME'] = 'lo'; interface.outward_address()": "as far as this system tells",
        "os.environ['RANKWISE_SECRET_FILE'] = 'job.secret'; secret.load()": (
            "RANKWISE_SECRET_FILE=job.secret: this system does not tell who else can read a file"
        ),
    },
    "macos": {"dist.FileStore('store', 1)": "use TCPStore"},
}
TRY = """
import os, sys, rankwise as dist
from rankwise_network import interface, secret
from rankwise_testing import run_ranks
for statement in sys.argv[1:]:
    try:
        exec(statement)
    except Exception as error:
        print(error)
"""


@pytest.mark.parametrize("system", STATEMENTS)
def test_what_cannot_work_says_so_in_a_line(system):
    done = python(system, "-c", TRY, *STATEMENTS[system])
    for (statement, words), line in zip(STATEMENTS[system].items(), done.stdout.splitlines(), strict=True):
        assert words in line, statement


@cache
def listed(system):
    """Return what is listed of each backend on a system."""
    done = python(system, "-m", "rankwise", "backends")
    assert "Traceback" not in done.stdout + done.stderr
    return dict(re.findall(r"^  (\w+): (.*)$", done.stdout, re.MULTILINE))


ANSWERS = {
    ("mpi", "windows"): "ranks that wait for MPI need sched_yield, which Linux and macOS have; run it in WSL",
    ("nccl", "windows"): "NCCL runs on Linux, not on Windows",
    ("nccl", "macos"): "NCCL runs on Linux, not on macOS",
}


@pytest.mark.parametrize(("backend", "system"), ANSWERS)
def test_backends_say_in_a_line_why_they_cannot_run_on_other_systems(backend, system):
    pytest.importorskip(f"rankwise_{backend}")
    done = python(system, "-c", f"import rankwise as dist; dist.init_process_group({backend!r})")
    assert f"backend {backend!r} cannot run here: {ANSWERS[backend, system]}" in done.stderr.splitlines()[-1]
    assert listed(system)[backend].startswith(ANSWERS[backend, system])


def test_mpi_on_macos_is_missing_nothing_but_a_library():
    pytest.importorskip("rankwise_mpi")
    assert re.search("mpi4py.*pip install", listed("macos")["mpi"])


@pytest.mark.parametrize("kind", ["EpollSelector", "PollSelector", "SelectSelector"])
def test_a_poller_heeds_what_changes_while_it_sleeps(kind, monkeypatch):
    from socket import socketpair

    from rankwise_gloo_tcp.machine import poller

    monkeypatch.setattr(selectors, "DefaultSelector", getattr(selectors, kind))
    monkeypatch.delattr(poller.select, "epoll")
    ready = poller.make_poller()
    found = []
    asleep = threading.Event()

    def sleep():
        asleep.set()
        while not found:
            found.extend(ready.poll(TIMEOUT_S))

    mine, theirs = socketpair()
    with mine, theirs:
        thread = threading.Thread(target=sleep)
        thread.start()
        asleep.wait(TIMEOUT_S)
        ready.register(mine.fileno(), poller.READ | poller.WRITE)
        thread.join(TIMEOUT_S)
        assert found == [(mine.fileno(), poller.WRITE)]
        ready.modify(mine.fileno(), poller.READ)
        assert ready.poll(0) == []
        theirs.send(b"x")
        assert ready.poll(TIMEOUT_S) == [(mine.fileno(), poller.READ)]
        ready.unregister(mine.fileno())
        assert ready.poll(0) == []
    ready.close()
