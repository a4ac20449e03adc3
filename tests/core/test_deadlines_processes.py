"""Beginnings that cannot be: the error comes at the deadline, and names the rank that is missing."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests import warm
from tests.by_reference import command, returned
from tests.processes import free_port

import rankwise as dist

LIMIT_S, PATIENCE_S = 2.0, 60.0
#: What is still in time on a machine that does other things too.
LEEWAY_S = 5.0


def begin(rank: int, port: int, timeout: float = PATIENCE_S) -> None:
    dist.init_process_group("gloo", f"tcp://127.0.0.1:{port}", rank=rank, world_size=2, timeout=timeout)


def timed(told: Any, act: Callable[[], object]) -> None:
    """Tell how long an act took, and what it raised."""
    began = time.monotonic()
    try:
        act()
    except dist.DistTimeoutError as error:
        told.send((time.monotonic() - began, str(error)))
    else:
        told.send((0.0, "no error"))


def alone(rank: int, port: int, told: Any) -> None:
    timed(told, lambda: begin(rank, port, LIMIT_S))
    os._exit(0)


def one_makes_a_group(rank: int, port: int, told: Any, which: int) -> None:
    begin(rank, port)
    if rank == which:
        timed(told, lambda: dist.new_group(timeout=LIMIT_S))
        os._exit(0)
    signal.pause()


def one_stands_still(rank: int, port: int, told: Any, which: int) -> None:
    begin(rank, port)
    dist.barrier()
    if rank != which:
        os.kill(os.getpid(), signal.SIGSTOP)
    timed(told, lambda: dist.new_group(timeout=LIMIT_S))
    os._exit(0)


@pytest.mark.parametrize(
    ("act", "which", "expected"),
    [
        (alone, 0, "rank 1 of 2"),
        (one_makes_a_group, 0, "rank 1 of 2"),
        (one_makes_a_group, 1, "rank 0 of 2"),
        (one_stands_still, 0, "rank 1 of 2"),
        (one_stands_still, 1, "rank 0, which serves the store of the job"),
    ],
)
def test_the_error_comes_at_the_deadline_and_names_the_missing(
    act: Callable[..., None], which: int, expected: str
) -> None:
    context = get_context("fork")
    port = free_port()
    reader, writer = context.Pipe(duplex=False)
    ranks = [which] if act is alone else [0, 1]
    more = () if act is alone else (which,)
    started = [context.Process(target=act, args=(rank, port, writer, *more), daemon=True) for rank in ranks]
    for process in started:
        process.start()
    try:
        assert reader.poll(PATIENCE_S)
        took_s, text = reader.recv()
    finally:
        for process in started:
            process.kill()
            process.join()
    assert expected in text
    assert LIMIT_S <= took_s < LIMIT_S + LEEWAY_S


class Broken(Exception):
    def __str__(self) -> str:
        raise ZeroDivisionError


def leave_well() -> None:
    dist.destroy_process_group()
    sys.exit(0)


#: How rank 1 ends: what it raises, or calls.
ENDS: dict[str, BaseException | Callable[[], object]] = {
    "ZeroDivisionError": ZeroDivisionError("division by zero"),
    "RuntimeError": RuntimeError(),
    "two lines": ValueError("one\ntwo" + 9999 * "\u20ac"),
    "a long line": ValueError(9999 * "\u20ac"),
    "KeyboardInterrupt": KeyboardInterrupt(),
    "a broken error": Broken(),
    "exit": lambda: sys.exit(0),
    "destroy": leave_well,
}


def crash(address: str, rank: int, end: str) -> str | None:
    """Be one of two ranks, the second of which ends in some way; return what the first is told."""
    dist.init_process_group("gloo", address, rank=rank, world_size=2, timeout=30)
    dist.barrier()
    if rank == 1:
        ending = ENDS[end]
        if isinstance(ending, BaseException):
            raise ending
        ending()
    try:
        dist.all_reduce(np.ones(3))
    except dist.PeerDiedError as error:
        return str(error)
    return None


TOLD = {
    "ZeroDivisionError": "rank 1 on {host} is gone: its process ended: ZeroDivisionError: division by zero",
    "RuntimeError": "its process ended: RuntimeError",
    "two lines": "its process ended: ValueError: one",
    "a long line": "its process ended: ValueError: " + 250 * "\u20ac",
    "KeyboardInterrupt": "its process ended: KeyboardInterrupt",
    "a broken error": "its process ended: Broken",
    "exit": "its process ended without destroying the group",
    "destroy": "it has destroyed the group",
}
#: What an error says of itself is told alike over every transport; that a rank is gone is seen in each its own way.
BY_TCP = ("ZeroDivisionError", "exit", "destroy")


@pytest.mark.parametrize(("end", "intra"), [*((end, "") for end in TOLD), *((end, "tcp") for end in BY_TCP)])
def test_a_rank_that_crashed_has_not_destroyed_the_group(end: str, intra: str, tmp_path: Path) -> None:
    # Without a launcher, which stops the others a moment after a rank has failed.
    env = {**os.environ, **({"RANKWISE_GLOO_TRANSPORT": intra} if intra else {})}
    ranks = [warm.start(command(crash, f"file://{tmp_path}/store", rank, end)[1:], env=env) for rank in range(2)]
    try:
        out, err = ranks[0].communicate(timeout=PATIENCE_S)
    finally:
        for process in ranks:
            process.kill()
            process.communicate()
    assert TOLD[end].replace("{host}", socket.gethostname()) in str(out and returned(out)), err


CHILDREN = """
import multiprocessing, sys, numpy as np, rankwise as dist

def run(rank, address):
    dist.init_process_group("gloo", address, rank=rank, world_size=2, timeout=30)
    dist.barrier()
    if rank == 1:
        raise ValueError("no such file")
    try:
        dist.all_reduce(np.ones(3))
    except dist.PeerDiedError as error:
        print(error, flush=True)

if __name__ == "__main__":
    address, how, method = sys.argv[1:]
    if how == "spawn":
        dist.spawn(run, (address,), 2, join=False, start_method=method).join(grace_period=60)
    else:
        context = multiprocessing.get_context(method)
        ranks = [context.Process(target=run, args=(rank, address)) for rank in range(2)]
        for rank in ranks:
            rank.start()
        for rank in ranks:
            rank.join()
"""


@pytest.mark.parametrize("method", ["spawn", "fork", "forkserver"])
@pytest.mark.parametrize("how", ["spawn", "Process"])
def test_a_crash_has_the_same_words_in_a_process_of_multiprocessing(how: str, method: str, tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text(CHILDREN, encoding="utf-8")
    command = [sys.executable, str(program), f"file://{tmp_path}/store", how, method]
    done = subprocess.run(command, capture_output=True, text=True, timeout=2 * PATIENCE_S)
    assert "is gone: its process ended: ValueError: no such file" in done.stdout, done.stderr
