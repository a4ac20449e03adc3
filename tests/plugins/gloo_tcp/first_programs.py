"""First calls of kinds that are wrong, or of arrays that compiled code does not take, and what ranks say of them."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from programs import begin, end

import rankwise as dist


def first_calls() -> list[str]:
    """Return what each of these calls has raised or left, all of them the first of their kinds."""
    begin(30.0)
    return [*_refused(), *_unlike(dist.get_rank()), *_unusual(dist.get_rank()), *_ended()]


def _said(call: Callable[[], object]) -> str:
    try:
        return str(call())
    except Exception as error:
        return f"{type(error).__name__}: {error}"


def _refused() -> list[str]:
    """Call what the table refuses."""
    op, ints, floats = dist.ReduceOp, np.ones(3, np.int32), np.ones(3, np.float32)
    return [
        _said(lambda: dist.all_reduce(ints, op.AVG)),
        _said(lambda: dist.reduce(floats, 0, op.BXOR)),
        _said(lambda: dist.reduce_scatter(floats, [floats, floats], op.BOR)),
    ]


def _unlike(rank: int) -> list[str]:
    """Make calls in which the ranks differ."""
    pair = [np.ones(2), np.ones(2)]
    return [
        _said(lambda: dist.all_reduce(np.ones(2 + rank, np.float32))),
        _said(lambda: dist.broadcast(np.ones(4, np.float32 if rank else np.int64), 0)),
        _said(lambda: dist.broadcast(np.ones(5), rank)),
        _said(lambda: dist.all_gather(pair, np.ones(2)) if rank else dist.all_reduce(np.ones(2))),
        _said(lambda: dist.gather(np.ones(2 + rank), None if rank else pair, 0)),
    ]


def _unusual(rank: int) -> list[str]:
    """Make calls that are asynchronous, on other memory than most, on another group, or in a block."""
    first, second = np.full(6, rank + 1.0), np.full(7, rank + 1.0)
    for array in (first, second, second):  # of the second kind a plan is known when the asynchronous call comes
        work = dist.all_reduce(array, async_op=array is not second or array[0] > 2)
        if work is not None:
            work.wait()
    transposed, unaligned = np.full((3, 4), rank + 1.0).T, np.ndarray(4, np.float64, bytearray(40), 1)
    unaligned[:] = rank + 1
    dist.all_reduce(transposed)
    dist.all_reduce(np.ones(4))
    dist.all_reduce(unaligned)
    other, block = np.full(3, rank + 1.0), np.full(9, rank + 1.0)
    dist.all_reduce(other, group=dist.new_group([0, 1]))
    with dist.coalescing():
        dist.all_reduce(block)
    return [str(array) for array in (first, second, transposed, unaligned, other, block)]


def _ended() -> list[str]:
    """Call on a group that has ended."""
    group = dist.group.WORLD
    end()
    return [_said(lambda: dist.all_reduce(np.ones(13), group=group))]
