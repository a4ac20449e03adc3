"""First calls of kinds that are wrong, or of arrays that compiled code does not take, and what ranks say of them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np
from counted_programs import new_sizes
from described_programs import on_host
from programs import begin, end
from tests.python_calls import called

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


def counted_on(layout: str) -> dict[str, int]:
    """Return how many functions of Python first calls of new sizes call on these hosts."""
    with on_host(layout):
        return new_sizes()


def on_both_sides(layout: str) -> list[tuple[str, str, int]]:
    """Return which calls have gone wrong, of as many bytes as may go along on these hosts and of one element more.

    So has a second call that C leaves to Python although it knows that kind of call.
    """
    wrong = []
    with on_host(layout):
        strategy: Any = dist.group.WORLD.communicators()[0].strategy  # type: ignore[union-attr]
        for name, call in _CALLS.items():
            op = name.removesuffix(" of uneven parts")
            most, many = max(strategy.along_nbytes(op), 0), dist.get_world_size() if op in _IN_PARTS else 1
            for dtype in (np.dtype(np.float16), np.dtype(np.float32)):
                # What is summed travels in float32 between hosts of several ranks.
                for count in sorted({most // many // nbytes + more for nbytes in (2, 4) for more in (0, 1)}):
                    outcome, left = call(count, dtype), _left_to_python(partial(call, count, dtype))
                    if left or not all((got == expected).all() for got, expected in outcome):
                        wrong.append((name, str(dtype), count))
    return wrong


def _left_to_python(call: Callable[[], object]) -> bool:
    """Make a call, and tell whether C has left it to Python as one of a kind that it knows."""
    return any(frame.f_code.co_name == "run_in_python" for frame in called(call))


def _contribution(count: int, dtype: Any, rank: int) -> Any:
    return np.full(count, rank + 1, dtype)


#: What a call has left, and what it must have.
_Outcome = Sequence[tuple[Any, Any]]


def _reduced(call: Callable[[Any], object], count: int, dtype: Any, here: bool = True) -> _Outcome:
    array, size = _contribution(count, dtype, dist.get_rank()), dist.get_world_size()
    call(array)
    return [(array, size * (size + 1) // 2)] if here else []


def _gathered(call: Callable[[Any, Any], object], count: int, dtype: Any, here: bool = True, more: int = 0) -> _Outcome:
    """Gather parts, each of so many elements more than that of the rank before."""
    outs = [np.empty(count + more * peer, dtype) for peer in range(dist.get_world_size())] if here else None
    call(outs, _contribution(count + more * dist.get_rank(), dtype, dist.get_rank()))
    return [(out, peer + 1) for peer, out in enumerate(outs or ())]


def _spread(call: Callable[[Any, Any], object], count: int, dtype: Any, total: int, here: bool = True) -> _Outcome:
    parts = [_contribution(count, dtype, peer) for peer in range(dist.get_world_size())] if here else None
    out = np.empty(count, dtype)
    call(out, parts)
    return [(out, (dist.get_rank() + 1) * total)]


def _traded(count: int, dtype: Any) -> _Outcome:
    rank, size = dist.get_rank(), dist.get_world_size()
    outs = [np.empty(count, dtype) for _ in range(size)]
    dist.all_to_all(outs, [_contribution(count, dtype, rank + peer) for peer in range(size)])
    return [(out, rank + peer + 1) for peer, out in enumerate(outs)]


def _sent(count: int, dtype: Any) -> _Outcome:
    array = _contribution(count, dtype, dist.get_rank())
    dist.broadcast(array, 1)
    return [(array, 2)]


_CALLS: dict[str, Callable[[int, Any], _Outcome]] = {
    "all_reduce": lambda count, dtype: _reduced(dist.all_reduce, count, dtype),
    "reduce": lambda count, dtype: _reduced(lambda own: dist.reduce(own, 1), count, dtype, dist.get_rank() == 1),
    "broadcast": _sent,
    "all_gather": lambda count, dtype: _gathered(dist.all_gather, count, dtype),
    "all_gather of uneven parts": lambda count, dtype: _gathered(dist.all_gather, count // 4, dtype, more=1),
    "gather": lambda count, dtype: _gathered(
        lambda outs, own: dist.gather(own, outs, 1), count, dtype, dist.get_rank() == 1
    ),
    "scatter": lambda count, dtype: _spread(
        lambda out, parts: dist.scatter(out, parts, 1), count, dtype, 1, dist.get_rank() == 1
    ),
    "reduce_scatter": lambda count, dtype: _spread(dist.reduce_scatter, count, dtype, dist.get_world_size()),
    "all_to_all": _traded,
}
_IN_PARTS = {"all_gather", "reduce_scatter"}
