"""Strangers at every door of a job that begins: they know nothing but where it listens, and it begins all the same."""

from __future__ import annotations

import contextlib
import importlib
import os
import re
import resource
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from time import monotonic, sleep

import numpy as np
import pytest
from tests.by_reference import command, returned

import rankwise as dist
from rankwise_network import secret
from rankwise_stores.tcp import accepting

pytest.importorskip("rankwise_gloo_tcp")
pytestmark = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="the kernel's tables are Linux's")

PATIENCE_S = 60.0
#: More than the doors have places for, and than a rank has descriptors.
DESCRIPTORS, STRANGERS = 1024, 1500


#: Where rank 1 stops until the strangers have come: before what it calls there.
STAGES = {
    "before the store": "rankwise:init_process_group",
    "before the cards": "rankwise_gloo_tcp.setup.cards:exchange",
    "before the memory": "rankwise_gloo_tcp.setup.handing:fetch",
    "before the first call": "rankwise:all_reduce",
}


def begin(stage: str, slow_s: float) -> str:
    """Begin as a rank with few descriptors, and say "well" when all have met.

    The thread that serves the store comes so late to each look at who stands there.
    """
    resource.setrlimit(resource.RLIMIT_NOFILE, (DESCRIPTORS, DESCRIPTORS))
    module, _, name = stage.partition(":")
    if slow_s:
        look = accepting.Accepting.look
        accepting.Accepting.look = lambda self: (sleep(slow_s), look(self))[1]  # type: ignore[method-assign]
    if os.environ["RANK"] == "1":
        place = importlib.import_module(module)
        setattr(place, name, partial(_stopped, getattr(place, name)))
    dist.init_process_group("gloo", timeout=PATIENCE_S / 2)
    array = np.ones(4)
    dist.all_reduce(array)
    dist.destroy_process_group()
    return "well" if array[0] == 2 else "wrong"


def _stopped(call: Callable[..., object], *args: object, **more: object) -> object:
    os.kill(os.getpid(), signal.SIGSTOP)
    return call(*args, **more)


def doors_of(pid: int) -> set[str]:
    """Return where a process listens, as any user can read it: names of abstract Unix sockets, and ports."""
    mine = set()
    with contextlib.suppress(OSError):
        for link in Path(f"/proc/{pid}/fd").iterdir():
            with contextlib.suppress(OSError):
                mine.update(re.findall(r"socket:\[(\d+)\]", os.readlink(link)))
    unix = [row.split() for row in Path("/proc/net/unix").read_text().splitlines()[1:]]
    found = {row[7] for row in unix if len(row) == 8 and row[6] in mine and row[7].startswith("@")}
    for row in Path("/proc/net/tcp").read_text().splitlines()[1:]:
        _, local, _, state, *_, inode = row.split()[:10]
        if state == "0A" and inode in mine:
            found.add(str(int(local.split(":")[1], 16)))
    return found


def at(door: str) -> tuple[socket.socket, str | tuple[str, int]]:
    if door.startswith("@"):
        return socket.socket(socket.AF_UNIX), "\0" + door[1:]
    return socket.socket(), ("127.0.0.1", int(door))


def besiege(door: str, word: bytes, told: int) -> int:
    """Have strangers come to a door, as another user where there is one; return their process.

    They say once that they have come. Those that were turned away come again; those that were not stay.
    """
    pid = os.fork()
    if pid:
        return pid
    with contextlib.suppress(BaseException):
        signal.alarm(int(2 * PATIENCE_S))
        resource.setrlimit(resource.RLIMIT_NOFILE, (STRANGERS + 100,) * 2)
        if os.getuid() == 0:
            os.setgroups([])
            os.setuid(65534)
        held: list[socket.socket] = []
        for number in range(2 * STRANGERS):
            sock, where = at(door)
            sock.setblocking(False)
            with contextlib.suppress(OSError):
                sock.connect_ex(where)
                sock.send(word)
            held.append(sock)
            if len(held) == STRANGERS:
                held.pop(0).close()
            if number == STRANGERS:
                os.write(told, b"x")
        signal.pause()
    os._exit(0)


@contextlib.contextmanager
def ranks(folder: Path, stage: str, slow_s: float) -> Iterator[list[subprocess.Popen[str]]]:
    secret.new_file(folder / "secret")
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port = probe.getsockname()[1]
    common = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "WORLD_SIZE": "2", "RANKWISE_METRICS_PORT": "0"}
    env = {**os.environ, **common, "RANKWISE_SECRET_FILE": str(folder / "secret")}
    with contextlib.ExitStack() as stack:
        job = []
        for rank in range(2):
            own = {**env, "RANK": str(rank)}
            job.append(subprocess.Popen(command(begin, stage, slow_s), env=own, stdout=subprocess.PIPE, text=True))
            stack.callback(job[-1].communicate)
            stack.callback(job[-1].kill)
        yield job


def wait_until(true: Callable[[], object]) -> None:
    deadline = monotonic() + PATIENCE_S
    while not true():
        assert monotonic() < deadline
        os.sched_yield()


def is_stopped(pid: int) -> bool:
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "T"


#: What strangers say: nothing, the beginning of a hello, and rubbish.
WORDS = {"nothing": b"", "half": b"RKW2\1\0\0", "rubbish": bytes(range(1, 256)) * 2}


@pytest.mark.parametrize("word", WORDS.values(), ids=WORDS)
@pytest.mark.parametrize("stage", STAGES.values(), ids=STAGES)
def test_a_job_begins_whoever_stands_at_its_doors(tmp_path: Path, stage: str, word: bytes) -> None:
    assert_begins(tmp_path, stage, word)


def test_a_job_begins_on_a_machine_too_busy_to_send_strangers_away_at_once(tmp_path: Path) -> None:
    """They hold all descriptors of rank 0 meanwhile."""
    assert_begins(tmp_path, STAGES["before the cards"], WORDS["nothing"], 0.05)


def assert_begins(folder: Path, stage: str, word: bytes, slow_s: float = 0.0) -> None:
    readable, told = os.pipe()
    with contextlib.ExitStack() as stack:
        stack.callback(os.close, readable)
        stack.callback(os.close, told)
        rank0, rank1 = stack.enter_context(ranks(folder, stage, slow_s))
        wait_until(lambda: is_stopped(rank1.pid))
        wait_until(lambda: doors_of(rank0.pid))
        found = doors_of(rank0.pid)
        for door in found:
            pid = besiege(door, word, told)
            stack.callback(os.waitpid, pid, 0)
            stack.callback(os.kill, pid, signal.SIGKILL)
        for _ in found:
            os.read(readable, 1)
        os.kill(rank1.pid, signal.SIGCONT)
        said = [returned(rank.communicate(timeout=PATIENCE_S)[0]) for rank in (rank0, rank1)]
    assert said == ["well", "well"]
