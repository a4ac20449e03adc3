"""What the ranks of the tests between hosts run."""

from __future__ import annotations

import socket
import sys
import time
from typing import Any

import numpy as np

import rankwise as dist
from rankwise.errors import DistError
from rankwise.world import current

SMALL, LARGE = 10, 300_001


def _begin(timeout_s: float = 30.0) -> tuple[int, int]:
    dist.init_process_group("gloo", timeout=timeout_s)
    return dist.get_rank(), dist.get_world_size()


def _numbers(rank: int, count: int) -> Any:
    return np.arange(count, dtype=np.float32) % 1000 + rank


def everything(large: int = LARGE, timeout_s: float = 30.0) -> str:
    """Run every collective and messages, small and large, and compare with what NumPy says."""
    rank, size = _begin(timeout_s)
    for count in (SMALL, large):
        all_of = [_numbers(peer, count) for peer in range(size)]
        total = np.sum(all_of, axis=0)
        a = all_of[rank].copy()
        dist.all_reduce(a)
        assert (a == total).all()
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
        work = dist.isend(all_of[rank], (rank + 1) % size)
        dist.recv(a, (rank - 1) % size)
        work.wait()
        assert (a == all_of[rank - 1]).all()
        dist.barrier()
    dist.destroy_process_group()
    return "right"


def addresses() -> list[str]:
    """Return where this rank listens for other hosts."""
    _begin()
    listeners = current().default.communicators()[0].engine._listeners
    found = [str(sock.getsockname()[0]) for sock in listeners if sock.family != socket.AF_UNIX]
    dist.barrier()
    dist.destroy_process_group()
    return found


def refused() -> str:
    """Return why the group cannot be made."""
    try:
        _begin(5)
    except (DistError, ValueError) as error:
        return f"{type(error).__name__}: {error}"
    return ""


def unreachable() -> str:
    """Return what a call says when the others' addresses lead nowhere."""
    try:
        _begin(5)
        dist.barrier()
    except DistError as error:
        return f"{type(error).__name__}: {error}"
    return ""


def parted(timeout_s: float) -> tuple[str, str, float]:
    """Wait until the test has cut the link, then call, and return what is raised and how long that took."""
    rank, _ = _begin(timeout_s)
    a = np.ones(4, np.float32)
    dist.all_reduce(a)
    print("ready", flush=True)
    sys.stdin.readline()
    start = time.perf_counter()
    try:
        dist.all_reduce(a)
    except DistError as error:
        return type(error).__name__, str(error), time.perf_counter() - start
    return "", "", 0.0
