"""What the ranks of the tests of the compiled parts run."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from functools import lru_cache
from typing import Any

import ml_dtypes
import numpy as np

import rankwise as dist
from rankwise.basics import native
from rankwise.basics.reduce_op import REDUCE_OPS, ReduceOp
from rankwise.groups.world import current

_INTS = [f"{sign}int{bits}" for sign in ("", "u") for bits in (8, 16, 32, 64)]
DTYPES = [np.dtype(name) for name in ("bool", *_INTS, "float16", "float32", "float64", ml_dtypes.bfloat16)]
#: One block and several, with remainders; all of them are whole numbers of no slot.
COUNTS = (1, 2, 7, 1000, 70_001, 400_003)


def begin() -> tuple[int, int]:
    if not dist.is_initialized():
        dist.init_process_group("gloo", timeout=30)
    return dist.get_rank(), dist.get_world_size()


def in_use() -> tuple[bool, str]:
    """Return whether this rank uses the compiled parts: its recorder, its board and its shortcuts."""
    begin()
    dist.barrier()  # with its first call a group has shortcuts
    group = dist.group.WORLD
    board = type(group.communicators()[0].board).__name__
    return native.state()[0], f"{type(group.trail).__name__} {board} {type(group.shortcuts.all_reduce).__name__}"


@lru_cache(4)  # one dtype and count after the other, for many ops
def bit_patterns(dtype: np.dtype[Any], count: int, seed: int) -> Any:
    """Return an array of all kinds of values, NaN of every kind, infinities and both zeros among them."""
    rng = np.random.default_rng(seed)
    if dtype.kind == "b":
        return rng.integers(0, 2, count).astype(bool)
    array = rng.integers(0, 256, count * dtype.itemsize, dtype=np.uint8).view(dtype)
    if dtype.kind in "fV":
        special = np.array([0.0, -0.0, np.inf, -np.inf, np.nan, -np.nan, 1.0, 1e-40, 6e-8, 65504, 3e38], np.float64)
        with np.errstate(all="ignore"):
            array[::3] = rng.choice(special, len(array[::3])).astype(dtype)
    return array


def _cases() -> Iterator[tuple[np.dtype[Any], ReduceOp, int]]:
    ops = [getattr(ReduceOp, name) for name in REDUCE_OPS if name != "PREMUL_SUM"]
    return ((dtype, op, count) for dtype in DTYPES for count in COUNTS for op in ops if op.defined_for(dtype))


def _say(array: Any, op: ReduceOp | None = None) -> str:
    if op is not None and op.name in ("SUM", "AVG", "PRODUCT") and array.dtype.kind in "fV":
        # Whose payload the sum of two NaNs has depends on the place in the array, with NumPy too.
        array[np.isnan(array)] = np.nan
    return hashlib.sha256(array.tobytes()).hexdigest()[:16]


def reductions() -> dict[str, str]:
    """Return what every reduction of every dtype gives, as digests; each twice, as the first prepares the second."""
    (rank, size), told = begin(), {}
    for dtype, op, count in _cases():
        for again in range(2):
            array = bit_patterns(dtype, count, 17 * rank + count).copy()
            dist.all_reduce(array, op)
            told[f"all_reduce {dtype} {op} {count} {again}"] = _say(array, op)
        parts = [bit_patterns(dtype, count, 31 * rank + peer) for peer in range(size)]
        for again in range(2):
            out = np.zeros(count, dtype)
            dist.reduce_scatter(out, parts, op)
            told[f"reduce_scatter {dtype} {op} {count} {again}"] = _say(out, op)
    return told


def movements() -> dict[str, str]:
    """Return what everything that moves arrays gives, as digests."""
    (rank, size), told = begin(), {}
    for dtype in DTYPES:
        for count in COUNTS:
            for again in range(2):
                array, mine = (bit_patterns(dtype, count, seed + rank).copy() for seed in (5, 50))
                dist.broadcast(array, src=size - 1)
                parts = [np.zeros(count, dtype) for _ in range(size)]
                dist.all_gather(parts, mine)
                whole, out = np.zeros((2, size, count), dtype)
                whole[rank] = mine
                dist.all_gather_single(whole, whole[rank])
                dist.all_to_all_single(out, np.stack([mine] * size))
                ins = [bit_patterns(dtype, count + 3 * (peer + rank), peer * size + rank) for peer in range(size)]
                outs = [np.zeros(count + 3 * (peer + rank), dtype) for peer in range(size)]
                dist.all_to_all(outs, ins)
                is_root = rank == size - 1
                got, piece = [np.zeros(count, dtype) for _ in range(size)], np.zeros(count, dtype)
                dist.gather(mine, got if is_root else None, size - 1)
                dist.scatter(piece, parts if is_root else None, size - 1)
                found = {"broadcast": [array], "all_gather": parts, "all_gather_single": whole}
                found |= {"all_to_all": outs, "all_to_all_single": out, "gather": got, "scatter": [piece]}
                told |= {f"{op} {dtype} {count} {again}": _say(np.concatenate(arrays)) for op, arrays in found.items()}
    return told


def noted() -> list[tuple[str, int, int, bool]]:
    """Return what the recorder says of some calls: operation, number, bytes, and whether they have ended."""
    begin()
    array = np.ones(4, np.float32)
    for _ in range(3):
        dist.all_reduce(array)
        dist.barrier()
    work = dist.all_reduce(array, async_op=True)
    assert work is not None
    work.wait()
    return [(e.op, e.number, e.nbytes, e.ended_ns >= e.began_ns > 0) for e in current().recorder.entries()[-7:]]


def places() -> set[tuple[str, int]]:
    """Return where the recorder says that calls were made: by the slow path, and by a shortcut."""
    from rankwise_watch.recorder import site

    begin()
    array = np.ones(5, np.float32)
    for _ in range(3):
        dist.all_reduce(array)
    return {(site(entry)[2], site(entry)[1]) for entry in current().recorder.entries()[-3:]}
