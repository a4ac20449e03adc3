"""Long calls among three hosts and more, of which some ranks have the compiled parts between hosts and some do not."""

from __future__ import annotations

import hashlib
from typing import Any

import numpy as np
import wire_programs

import rankwise as dist

#: What the ranks of a host pass on at once, what ends within the first segment, what ends with one, and what takes several rounds.
_LENGTHS = (30_011, 120_001, 262_144, 1_000_003)


def some_in_python(ranks: list[int], program: str, *args: Any) -> Any:
    """Run one of these programs on ranks of which some do in Python what goes between hosts."""
    vars(wire_programs)[program] = globals().get(program, vars(wire_programs).get(program))
    return wire_programs.with_a_relay_in_python(ranks, program, *args)


def rounds() -> str:
    """Make long calls of each kind, and return what has come of them."""
    rank, size = wire_programs.begin()
    seen = hashlib.sha256()
    for place, (count, dtype) in enumerate(zip(_LENGTHS, (np.float32, np.float32, np.complex64, np.float64), strict=True)):
        data = [np.random.default_rng(peer).integers(-4, 4, count).astype(dtype) / 3 for peer in range(size)]
        data = [np.ascontiguousarray(each, dtype) for each in data]
        op = dist.ReduceOp.AVG if dtype == np.float64 else dist.ReduceOp.SUM
        total = sum(data) / (size if op == dist.ReduceOp.AVG else 1)
        root = (place + 1) % size
        for call, expected in (
            (lambda a: dist.all_reduce(a, op), total),
            (lambda a: dist.reduce(a, root, op), total if rank == root else data[rank]),
            (lambda a: dist.broadcast(a, root), data[root]),
            (lambda a: dist.reduce_scatter(a, [each.copy() for each in [data[rank]] * size], op), total),
        ):
            array = data[rank].copy()
            call(array)
            assert np.allclose(array, expected, rtol=1e-3, atol=1e-3)
            seen.update(array if rank == root else np.zeros(0))
        parts = [np.zeros(count - peer, dtype) for peer in range(size)]
        dist.all_gather(parts, data[rank][: count - rank].copy())
        assert all((part == each[: part.size]).all() for part, each in zip(parts, data, strict=True))
    dist.destroy_process_group()
    return seen.hexdigest()
