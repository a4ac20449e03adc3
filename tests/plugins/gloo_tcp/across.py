"""What the ranks of the tests between hosts run."""

from __future__ import annotations

import os
import select
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from failing import Heard, error_of, heard
from long_programs import everyones_call, in_the_middle
from programs import around, begin, end, until, wait_for, works_as_before
from tests.by_reference import say

import rankwise as dist
from rankwise.errors import DistError
from rankwise.groups.world import current
from rankwise_watch.heartbeat import Beats

SMALL, LARGE = 10, 300_001


def _numbers(rank: int, count: int) -> Any:
    return np.arange(count, dtype=np.float32) % 1000 + rank


def _few(count: int) -> list[Any]:
    """Make some of the calls, compare with what NumPy says, and return what each rank has begun with."""
    rank, size = dist.get_rank(), dist.get_world_size()
    all_of = [_numbers(peer, count) for peer in range(size)]
    a = all_of[rank].copy()
    dist.all_reduce(a)
    assert (a == np.sum(all_of, axis=0)).all()
    dist.broadcast(a, 0)
    around(all_of[rank], a)
    assert (a == all_of[rank - 1]).all()
    return all_of


def a_few(large: int, timeout_s: float) -> str:
    """Run some of the calls, small and large."""
    begin(timeout_s)
    for count in (SMALL, large):
        _few(count)
    end()
    return "right"


def everything(large: int = LARGE, timeout_s: float = 30.0) -> str:
    """Run every collective and messages, small and large, and compare with what NumPy says."""
    rank, size = begin(timeout_s)
    for count in (SMALL, large):
        all_of = _few(count)
        total = np.sum(all_of, axis=0)
        a = all_of[rank].astype(np.float16) / 1000
        dist.all_reduce(a, dist.ReduceOp.AVG)
        assert a.dtype == np.float16
        for root in range(size):
            a = all_of[rank].copy()
            dist.broadcast(a, root)
            assert (a == all_of[root]).all()
            a = all_of[rank].copy()
            dist.reduce(a, root)
            assert (a == (total if rank == root else all_of[rank])).all()
        parts = [np.empty_like(a) for _ in range(size)]
        dist.all_gather(parts, all_of[rank])
        assert all((part == other).all() for part, other in zip(parts, all_of, strict=True))
        a = np.empty_like(total)
        dist.reduce_scatter(a, [_numbers(peer + rank, count) for peer in range(size)])
        assert (a == sum(_numbers(peer + rank, count) for peer in range(size))).all()
        dist.all_to_all(parts, [_numbers(10 * rank + peer, count) for peer in range(size)])
        assert all((part == _numbers(10 * peer + rank, count)).all() for peer, part in enumerate(parts))
        dist.barrier()
    end()
    return "right"


def addresses() -> list[str]:
    """Return where this rank listens for other hosts."""
    begin()
    listeners = current().default.communicators()[0].engine.peers.acceptor.listeners
    found = [str(sock.getsockname()[0]) for sock in listeners if sock.family != socket.AF_UNIX]
    dist.barrier()
    end()
    return found


def addresses_by(choices: list[tuple[str, str]]) -> list[list[str]]:
    """Return the same for each variable and value that chooses an interface."""
    found = []
    for variable, value in choices:
        os.environ[variable] = value
        found.append(addresses())
        del os.environ[variable]
    return found


def in_turn(*names: str) -> list[Any]:
    """Run some of these programs, one after the other, and return what each returns."""
    return [globals()[name]() for name in names]


def _raised(call: Callable[[], object]) -> tuple[str, str, float]:
    """Return what a call raises, in words too, and how long that took."""
    start = time.perf_counter()
    try:
        call()
    except (DistError, ValueError) as error:
        return type(error).__name__, str(error), time.perf_counter() - start
    return "right", "", 0.0


def trouble(in_a_call: bool = False) -> str:
    """Return why the group cannot be made, or what a call says when the others' addresses lead nowhere."""

    def trial() -> None:
        begin(16)  # half of it for a silent connection
        if in_a_call:
            dist.barrier()

    return ": ".join(_raised(trial)[:2])


def walled_off(timeout_s: float, warm: bool) -> tuple[str, str, float]:
    """Call once the test has put up a wall, before or after the first call; live until the test has heard from all."""
    begin(60.0)
    group = dist.new_group(timeout=timeout_s)  # for the calls behind the wall: to begin may take longer
    a = np.ones(1000, np.float32)
    if warm:
        dist.all_reduce(a, group=group)
    print("ready", flush=True)
    sys.stdin.readline()
    # A rank that can reach both others may finish the first.
    found = _raised(lambda: [dist.all_reduce(a, group=group) for _ in range(3)])
    print("said", flush=True)
    sys.stdin.readline()
    say(found)
    os._exit(0)


def silent_for_a_while(timeout_s: float) -> str:
    """Call behind a wall that the test takes away once this rank's connection has fallen silent."""
    rank, _ = begin(60.0)
    group = dist.new_group(timeout=timeout_s)
    a = np.ones(1000, np.float32)
    dist.all_reduce(a, group=group)
    print("ready", flush=True)
    sys.stdin.readline()
    work = dist.all_reduce(a, group=group, async_op=True)
    engine, deadline = group.communicators()[0].engine, time.monotonic() + timeout_s
    while rank == 0 and "fallen silent" not in str(engine.troubles([1])) and time.monotonic() < deadline:
        time.sleep(0.01)
    print("silent", flush=True)
    work.wait()
    assert (a == 4).all(), a
    end()
    return "right"


def parted(timeout_s: float) -> tuple[str, str, float]:
    """Wait until the test has cut the link, then call, and return what is raised and how long that took."""
    begin(timeout_s)
    a = np.ones(4, np.float32)
    dist.all_reduce(a)
    print("ready", flush=True)
    sys.stdin.readline()
    return _raised(lambda: dist.all_reduce(a))


def through_an_outage(timeout_s: float) -> tuple[str, str, float]:
    """Call again and again until the test says to rank 0 that it is over; return what is raised, if anything, and when.

    All wait until the test has heard from all.
    """
    rank, size = begin(timeout_s)
    a = np.ones(1000, np.float32)
    dist.all_reduce(a)
    print("ready", flush=True)

    def calls() -> None:
        while a[0] >= 0:
            a[:] = 1
            if rank == 0 and select.select([sys.stdin], [], [], 0.02)[0]:
                sys.stdin.readline()
                a[0] = -size
            dist.all_reduce(a)
            assert (a[1:] == size).all(), a

    found = _raised(calls)
    print("said", flush=True)
    sys.stdin.readline()
    say(found)
    os._exit(0)


def with_a_man_in_the_middle(count: int, calls: int) -> list[tuple[str, str, float]]:
    """Whenever the test has told him what to do, make some calls; return what each of them has come to."""
    rank, size = begin(30.0)
    dist.all_reduce(np.ones(count, np.int32))
    print("ready", flush=True)

    def given(of: int, number: int) -> np.ndarray:
        """Of a sum of floats a changed bit may be rounded away."""
        return np.random.default_rng(of + number).integers(1 << 30, size=count, dtype=np.int32)

    def sums() -> None:
        wrong = 0
        for number in range(calls):
            a = given(rank, number)
            dist.all_reduce(a)
            wrong += int((a != sum(given(peer, number) for peer in range(size))).sum())
        if wrong:
            raise ValueError(f"{wrong} elements are wrong")

    found = []
    while sys.stdin.readline() == "go\n":
        found.append(_raised(sums))
        print("said", flush=True)
    say(found)
    os._exit(0)


def cut_off_while_making_a_group(timeout_s: float | None, mute: bool = False) -> tuple[str, str, float]:
    """Make a group while the test cuts the link; return what is raised and how long that took.

    Args:
        timeout_s: The group's.
        mute: Whether the last rank, which is cut off, has not even sent its first heartbeat.
    """
    if mute and int(os.environ["RANK"]) == int(os.environ["WORLD_SIZE"]) - 1:
        key = Beats._key
        Beats._key = lambda self, of: "unsent" if of == self._rank else key(self, of)  # type: ignore[method-assign]
    rank, size = begin(30.0)
    dist.barrier()
    print("ready", flush=True)
    if rank == size - 1:
        sys.stdin.readline()  # the others wait for this one when the link is cut
    return _raised(lambda: dist.new_group(list(range(size)), timeout=timeout_s))


def told_by_one_that_is_stopped(for_s: float, folder: str) -> str:
    """Stop the rank that tells of the second host, while the first host waits for another rank of it.

    Args:
        for_s: How long it is stopped.
        folder: Where rank 0 makes a file once the ranks behind the second host's first have been told of, and that one
            another when it goes on. The others wait for them in no call: a rank that waits for others sends its
            heartbeats by itself, and nobody may wait for the one that is stopped.
    """
    are_told, is_awake = Path(folder, "told"), Path(folder, "awake")
    rank, size = begin()
    watcher, behind = current().watcher, range(2, size)
    if rank == 0:
        told: set[int] = set()  # one of them may send a heartbeat of its own now and then

        def look() -> None:
            time.sleep(0.05)
            told.update(peer for peer, beat in watcher._beats.read(behind).items() if beat.is_told)

        until(lambda: len(told) == len(behind), look)
        are_told.touch()
    until(are_told.exists)
    dist.barrier()
    a = np.ones(4, np.float32)
    if rank == 0:
        dist.recv(a, 2)
    elif rank == 1:
        wake_up = f"sleep {for_s}; kill -CONT {os.getpid()}"
        with subprocess.Popen(["sh", "-c", wake_up], start_new_session=True):
            os.kill(os.getpid(), signal.SIGSTOP)
        is_awake.touch()
    else:
        until(is_awake.exists)  # it is busy with something else
    if rank == 2:
        dist.send(2 * a, 0)
    dist.barrier()
    end()
    return f"{a[0]:g}"


def with_a_child(timeout_s: float) -> Heard:
    """Leave a child behind that sleeps, and be killed; return what the other hears."""
    rank, _ = begin(timeout_s)
    a = np.ones(4, np.float32)
    dist.all_reduce(a)
    if rank == 1:
        if os.fork() == 0:
            os.closerange(0, 3)  # the test reads what its parent prints until nobody can print any more
            time.sleep(timeout_s)
            os._exit(0)
        os.kill(os.getpid(), signal.SIGKILL)
    return heard(dist.all_reduce, a)


def shape() -> tuple[list[int], bool]:
    """Return the ranks with whom this one shares memory, and whether it does."""
    begin()
    comm = current().default.communicators()[0]
    found = list(comm.strategy.local.context.global_ranks), comm.strategy.local.board is not None
    dist.barrier()
    end()
    return found


def between_nbytes() -> int:
    """Return how many bytes this rank has sent to other hosts for an all_reduce of 4 MiB."""
    begin()
    a = np.ones(1 << 20, np.float32)
    dist.all_reduce(a)
    before = _sent_nbytes()
    dist.barrier()
    dist.all_reduce(a)
    dist.barrier()
    sent = _sent_nbytes() - before
    dist.barrier()
    end()
    return sent


def _sent_nbytes() -> int:
    with open("/sys/class/net/eth0/statistics/tx_bytes", encoding="ascii") as file:
        return int(file.read())


def disagree() -> list[str]:
    """Return what the ranks hear when one of them makes another call, and whether the group is as good as before."""
    rank, size = begin()
    told = []
    for odd, count in ((1, 3), (size - 1, 100_000)):
        a = np.ones(count, np.float32)
        error: Any = error_of(partial(dist.all_reduce, a, dist.ReduceOp.MAX if rank == odd else dist.ReduceOp.SUM))
        told.append(f"{error} {error.odd_ranks}")
        works_as_before(count)
    end()
    return told


def somebody_dies(victim: int, name: str = "") -> tuple[str, int] | None:
    """Return whom the survivors of a rank hear of that kills itself, perhaps once a long call of a name is compared."""
    rank, _ = begin()
    a = np.ones(10, np.float32)

    def kill() -> None:
        print("None", flush=True)
        os.kill(os.getpid(), signal.SIGKILL)

    try:
        if name:
            everyones_call(name)
            if rank == victim:
                in_the_middle(kill)
            everyones_call(name)
        else:
            dist.all_reduce(a)
            if rank == victim:
                kill()
        for _ in range(1000):
            dist.all_reduce(a)
    except DistError as error:
        return type(error).__name__, getattr(error, "rank", -1)
    return None


def at_once_and_in_groups() -> str:
    """Run asynchronous collectives, and groups that cut through the hosts."""
    rank, size = begin()
    arrays = [np.full(count, rank, np.float32) for count in (5, 70_000, 3, 500_000)]
    wait_for([dist.all_reduce(array, async_op=True) for array in arrays])
    assert all((array == sum(range(size))).all() for array in arrays)
    groups = [(dist.new_group(list(ranks)), ranks) for ranks in ((0, 2), (0, 1), (0, 1, 3))]
    for group, members in groups:
        if rank in members:
            a = np.full(60_000, rank, np.float64)
            dist.all_reduce(a, group=group)
            assert (a == sum(members)).all()
    end()
    return "right"
