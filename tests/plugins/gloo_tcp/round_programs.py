"""Long calls among three hosts and more, of which some ranks have the compiled parts between hosts and some do not."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from typing import Any

import numpy as np
import wire_programs

import rankwise as dist

#: What the ranks of a host pass on at once, what ends within the first segment, and what takes several rounds.
_LENGTHS = (30_011, 120_001, 262_144, 1_000_003)
_DTYPES = (np.float32, np.float32, np.complex64, np.float64)


def some_in_python(ranks: list[int], program: str, *args: Any) -> Any:
    """Run one of these programs, or of `wire_programs`, on ranks of which some do without C what goes between hosts."""
    vars(wire_programs).setdefault(program, globals().get(program))
    return wire_programs.with_a_relay_in_python(ranks, program, *args)


def rounds() -> str:
    """Make long calls of each kind, and return what has come of them."""
    rank, size = wire_programs.begin()
    seen = hashlib.sha256()
    for place, (count, dtype) in enumerate(zip(_LENGTHS, _DTYPES, strict=True)):
        data = [_data(peer, count, dtype) for peer in range(size)]
        for found, expected in _reduced(rank, (place + 1) % size, data):
            assert np.allclose(found, expected, rtol=1e-3, atol=1e-3)
            seen.update(found)
        parts = [np.zeros(count - peer, dtype) for peer in range(size)]
        dist.all_gather(parts, data[rank][: count - rank].copy())
        assert all((part == each[: part.size]).all() for part, each in zip(parts, data, strict=True))
    dist.destroy_process_group()
    return seen.hexdigest()


def _data(rank: int, count: int, dtype: Any) -> Any:
    """Return what a rank has: numbers whose sum depends on the order in which they are added."""
    return (np.random.default_rng(rank).integers(-4, 4, count) / 3).astype(dtype)


def _reduced(rank: int, root: int, data: list[Any]) -> Iterator[tuple[Any, Any]]:
    """Return what has come of a rank's calls, and what should have."""
    size = len(data)
    op = dist.ReduceOp.AVG if data[0].dtype == np.float64 else dist.ReduceOp.SUM
    total = sum(data) / (size if op == dist.ReduceOp.AVG else 1)
    arrays = [data[rank].copy() for _ in range(4)]
    dist.all_reduce(arrays[0], op)
    dist.reduce(arrays[1], root, op)
    dist.broadcast(arrays[2], root)
    dist.reduce_scatter(arrays[3], [data[rank].copy() for _ in range(size)], op)
    yield from zip(arrays, (total, total if rank == root else data[rank], data[root], total), strict=True)
