"""Two ranks prove that a backend works: run by `rankwise doctor`, once per rank."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from typing import Any

import numpy as np

import rankwise as dist

_NBYTES = 1 << 20
_REPEATS = 20


def main(backend: str, op: str, dtype: str, reduce_op: str) -> None:
    """Do one thing with known arrays some times, check the results, and let rank 0 say how fast it was."""
    dist.init_process_group(backend, timeout=30.0)
    rank, size = dist.get_rank(), dist.get_world_size()
    given = [_array(np.dtype(dtype), giver) for giver in range(size)]
    fastest_s = float("inf")
    for _ in range(_REPEATS):
        array, gathered = given[rank].copy(), [np.empty_like(given[0]) for _ in range(size)]
        call = _call(op, array, gathered, reduce_op)
        begin = time.perf_counter()
        call()
        fastest_s = min(fastest_s, time.perf_counter() - begin)
    if not _is_right(op, array, gathered, given, reduce_op):
        raise SystemExit(f"the result of {op} is wrong")
    dist.destroy_process_group()
    if rank == 0:
        print(f"right, in {fastest_s * 1e6:.0f} us")


def _array(dtype: np.dtype[Any], rank: int) -> Any:
    return (np.arange(_NBYTES // dtype.itemsize) % 5 + rank + 1).astype(dtype)


def _call(op: str, array: Any, gathered: list[Any], reduce_op: str) -> Callable[[], object]:
    if op == "all_reduce":
        return lambda: dist.all_reduce(array, dist.ReduceOp(reduce_op))
    if op == "broadcast":
        return lambda: dist.broadcast(array, src=0)
    if op == "all_gather":
        return lambda: dist.all_gather(gathered, array)
    if op == "recv":
        return lambda: dist.send(array, 1) if dist.get_rank() == 0 else dist.recv(array, 0)
    return dist.barrier


def _is_right(op: str, array: Any, gathered: list[Any], given: list[Any], reduce_op: str) -> bool:
    if op == "all_gather":
        return all(map(np.array_equal, gathered, given))
    if op == "all_reduce":
        reduce = dist.ReduceOp(reduce_op)
        total = reduce.accumulator(given[0])
        for other in given[1:]:
            reduce.combine(total, other)
        expected = np.empty_like(given[0])
        reduce.finish(total, expected, len(given))
        return np.array_equal(array, expected)
    return op == "barrier" or np.array_equal(array, given[0])


if __name__ == "__main__":
    main(*sys.argv[1:])
