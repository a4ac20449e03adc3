"""Ranks that make unequal calls, without RANKWISE_DEBUG: none waits past its time-out, whatever differs.

On one host all get the same error, which names the odd rank, nothing has moved, and the group goes on. With `apart` in
the arguments the ranks meet as they do on several hosts: there a call ends, well or badly, and so does what follows.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import rankwise as dist
from rankwise import ReduceOp
from rankwise_mpi.process.process import Process

APART = "apart" in sys.argv
TIMEOUT_S, LEEWAY_S = (0.4, 4.0) if APART else (30.0, 0.0)

if APART:
    Process.may_share_memory = lambda self, ranks: False  # type: ignore[method-assign]

dist.init_process_group("mpi", timeout=30)
rank, size = dist.get_rank(), dist.get_world_size()
odd = rank == 1
Call = Callable[[Any], object]


def parts(*sizes: int, of: Any = np.float64) -> list[Any]:
    return [np.ones(n, of) for n in sizes]


def more(count: int) -> list[int]:
    """Return how many elements each rank has to do with, of which the odd one says more than the others."""
    return [count + (odd and i == 1) for i in range(size)]


def cases(n: int) -> dict[str, Call]:
    """Return calls on about `n` elements in which one thing differs on the odd rank."""
    root, dtype = int(odd), np.int64 if odd else np.float64
    op = ReduceOp.MAX if odd else ReduceOp.SUM
    ones, mine = np.ones(n), more(n)
    return {
        "size of all_reduce": lambda g: dist.all_reduce(np.ones(n + odd), group=g),
        "dtype of all_reduce": lambda g: dist.all_reduce(np.ones(n, dtype), group=g),
        "op of all_reduce": lambda g: dist.all_reduce(ones, op, g),
        "shape of all_reduce": lambda g: dist.all_reduce(np.ones((n, 1) if odd else (1, n)), group=g),
        "size of broadcast": lambda g: dist.broadcast(np.ones(n + odd), 0, g),
        "dtype of broadcast": lambda g: dist.broadcast(np.ones(n, dtype), 0, g),
        "root of broadcast": lambda g: dist.broadcast(ones, root, g),
        "size of reduce": lambda g: dist.reduce(np.ones(n + odd), 0, group=g),
        "root of reduce": lambda g: dist.reduce(ones, root, group=g),
        "op of reduce": lambda g: dist.reduce(ones, 0, op, g),
        "size of all_gather": lambda g: dist.all_gather(parts(*mine), np.ones(mine[rank]), g),
        "dtype of all_gather": lambda g: dist.all_gather_single(np.ones(n * size, dtype), np.ones(n, dtype), g),
        "size of gather": lambda g: dist.gather(np.ones(n + odd), parts(*[n] * size) if rank == 0 else None, 0, g),
        "root of gather": lambda g: dist.gather(ones, parts(*[n] * size) if rank == root else None, root, g),
        "size of scatter": lambda g: dist.scatter(np.ones(n + odd), parts(*[n] * size) if rank == 0 else None, 0, g),
        "root of scatter": lambda g: dist.scatter(ones, parts(*[n] * size) if rank == root else None, root, g),
        "size of reduce_scatter": lambda g: dist.reduce_scatter(np.ones(mine[rank]), parts(*mine), group=g),
        "op of reduce_scatter": lambda g: dist.reduce_scatter(ones, parts(*[n] * size), op, g),
        "size of all_to_all": lambda g: dist.all_to_all(parts(*[n] * size), parts(n + odd, *[n] * (size - 1)), g),
        "dtype of all_to_all": lambda g: dist.all_to_all(parts(*[n] * size, of=dtype), parts(*[n] * size, of=dtype), g),
        "barrier and all_reduce": lambda g: dist.barrier(g) if odd else dist.all_reduce(ones, group=g),
        "broadcast and reduce": lambda g: dist.broadcast(ones, 0, g) if odd else dist.reduce(ones, 0, group=g),
    }


def all_are_told(what: str, call: Call) -> None:
    """One error for all, and the group is as good as before."""
    with pytest.raises(dist.CollectiveMismatchError) as caught:
        call(None)
    assert 1 in caught.value.odd_ranks, f"{what}: {caught.value}"
    told = [""] * size
    dist.all_gather_object(told, str(caught.value))
    assert len(set(told)) == 1, f"{what}: {told}"


def all_come_back(what: str, call: Call) -> None:
    """Nobody stands still, in the call or in the next."""
    group = dist.new_group()
    group.set_timeout(TIMEOUT_S)  # of its calls: on a busy machine it may take longer to make it
    ended = "well"
    begin = time.monotonic()
    try:
        call(group)
        dist.barrier(group)
    except dist.DistError as error:
        ended = str(error)
    took = time.monotonic() - begin
    assert took < 2 * TIMEOUT_S + LEEWAY_S, f"{what} took {took:.1f} s on rank {rank}: {ended}"
    dist.barrier()


for count in (8, 200_000):
    for what, call in cases(count).items():
        (all_come_back if APART else all_are_told)(what, call)
        array = np.ones(3)
        dist.all_reduce(array)
        assert (array == size).all(), what
print("fine", flush=True)
if not APART:
    dist.destroy_process_group()
sys.stdout.flush()
