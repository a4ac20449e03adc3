"""Inputs are only read: they may be read-only, keep their content, and may lie within the output."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import rankwise as dist
from rankwise_testing.suite.arrays import plain
from rankwise_testing.suite.expect import begun, error_of, still_usable
from rankwise_testing.suite.plugin import Kit, needs
from rankwise_testing.suite.worlds import LARGE_SIZES

_SIZES = (2, 3, LARGE_SIZES[0])
#: Elements of float32: in one piece, and beyond where algorithms change.
_COUNTS = (3, 9_000, 30_000, 270_001)
_INPUTS = ("broadcast", "reduce", "all_gather", "gather", "scatter", "reduce_scatter", "all_to_all", "send")


def numbers(count: int, salt: int) -> Any:
    """Return small whole numbers as float32, whose sums are exact."""
    return ((np.arange(count) + 7 * salt) % 101).astype(plain())


def fixed(count: int, salt: int) -> Any:
    """Return the numbers in an array that cannot be written to."""
    array = numbers(count, salt)
    array.flags.writeable = False
    return array


def _params(ops: tuple[str, ...]) -> pytest.MarkDecorator:
    marks = {op: needs(op, "recv") if op == "send" else needs(op) for op in ops}
    return pytest.mark.parametrize("op", [pytest.param(op, marks=mark) for op, mark in marks.items()])


@pytest.mark.parametrize("size", _SIZES)
@_params(_INPUTS)
def test_an_input_may_be_read_only(kit: Kit, op: str, size: int) -> None:
    kit.on_host_only("arrays on a GPU are never read-only")
    kit.run(size, read_only, op)


def read_only(op: str) -> None:
    for count in _COUNTS:
        for root in (0, dist.get_world_size() - 1):
            _READ_ONLY[op](count, root)


def _same(array: Any, want: Any) -> None:
    assert np.array_equal(array, want), f"element {np.flatnonzero(array != want)[0]} of {array.size} is wrong"


def _broadcast(count: int, root: int) -> None:
    array = fixed(count, root) if dist.get_rank() == root else np.zeros(count, plain())
    dist.broadcast(array, root)
    _same(array, numbers(count, root))


def _reduce(count: int, root: int) -> None:
    rank, size = dist.get_rank(), dist.get_world_size()
    array = numbers(count, rank) if rank == root else fixed(count, rank)
    dist.reduce(array, root)
    _same(array, sum(numbers(count, r) for r in range(size)) if rank == root else numbers(count, rank))


def _all_gather(count: int, root: int) -> None:
    rank, size = dist.get_rank(), dist.get_world_size()
    array, parts = fixed(count, rank), list(np.zeros((size, count), plain()))
    dist.all_gather(parts, array)
    for source, part in enumerate(parts):
        _same(part, numbers(count, source))
    _same(array, numbers(count, rank))


def _gather(count: int, root: int) -> None:
    rank, size = dist.get_rank(), dist.get_world_size()
    array, parts = fixed(count, rank), list(np.zeros((size, count), plain()))
    dist.gather(array, parts if rank == root else None, dst=root)
    for source, part in enumerate(parts if rank == root else ()):
        _same(part, numbers(count, source))
    _same(array, numbers(count, rank))


def _scatter(count: int, root: int) -> None:
    rank, size = dist.get_rank(), dist.get_world_size()
    parts, array = [fixed(count, to) for to in range(size)], np.zeros(count, plain())
    dist.scatter(array, parts if rank == root else None, src=root)
    _same(array, numbers(count, rank))
    for to, part in enumerate(parts):
        _same(part, numbers(count, to))


def _reduce_scatter(count: int, root: int) -> None:
    rank, size = dist.get_rank(), dist.get_world_size()
    parts, array = [fixed(count, rank + 3 * to) for to in range(size)], np.zeros(count, plain())
    dist.reduce_scatter(array, parts)
    _same(array, sum(numbers(count, source + 3 * rank) for source in range(size)))
    for to, part in enumerate(parts):
        _same(part, numbers(count, rank + 3 * to))


def _all_to_all(count: int, root: int) -> None:
    rank, size = dist.get_rank(), dist.get_world_size()
    ins, outs = [fixed(count, rank + 3 * to) for to in range(size)], list(np.zeros((size, count), plain()))
    dist.all_to_all(outs, ins)
    for source, out in enumerate(outs):
        _same(out, numbers(count, source + 3 * rank))
    for to, part in enumerate(ins):
        _same(part, numbers(count, rank + 3 * to))


def _send(count: int, root: int) -> None:
    rank, size = dist.get_rank(), dist.get_world_size()
    mine, array = fixed(count, rank), np.zeros(count, plain())
    work = begun(dist.isend(mine, (rank + 1) % size))
    dist.recv(array, (rank - 1) % size)
    work.wait()
    _same(array, numbers(count, (rank - 1) % size))


_READ_ONLY = {
    "broadcast": _broadcast,
    "reduce": _reduce,
    "all_gather": _all_gather,
    "gather": _gather,
    "scatter": _scatter,
    "reduce_scatter": _reduce_scatter,
    "all_to_all": _all_to_all,
    "send": _send,
}


@pytest.mark.parametrize("size", _SIZES)
@_params(("all_gather", "gather", "reduce_scatter", "scatter", "all_to_all"))
def test_an_input_that_lies_within_the_output_is_read_before_it_is_written(kit: Kit, op: str, size: int) -> None:
    """But all_to_all refuses it: each input would have to be copied."""
    kit.on_host_only("the order of a stream decides")
    kit.run(size, overlapping, op)


def overlapping(op: str) -> None:
    size = dist.get_world_size()
    for count in _COUNTS:
        for shift in (0, 1, size - 1):
            _OVERLAPPING[op](count, shift)
        if op != "all_to_all":
            _OVERLAPPING[op](count, 0.5)  # half in one slot, half in the next
    still_usable()


def _slot(whole: Any, shift: float) -> Any:
    """Return the part of a flat array of parts that is `shift` slots after this rank's own."""
    size, count = dist.get_world_size(), len(whole) // dist.get_world_size()
    begin = int((dist.get_rank() + shift) % size * count)
    begin = min(begin, count * (size - 1))
    return whole[begin : begin + count]


def _gather_over(count: int, shift: float) -> None:
    rank, size = dist.get_rank(), dist.get_world_size()
    for single in (False, True):
        whole = np.zeros(size * count, plain())
        mine = _slot(whole, shift)
        mine[:] = numbers(count, rank)
        if single:
            dist.all_gather_into_tensor(whole, mine)
        else:
            dist.all_gather(list(whole.reshape(size, count)), mine)
        _same(whole, np.concatenate([numbers(count, source) for source in range(size)]))


def _gather_to_root_over(count: int, shift: float) -> None:
    rank, size = dist.get_rank(), dist.get_world_size()
    for root in (0, size - 1):
        whole = np.zeros(size * count, plain())
        mine = _slot(whole, shift)
        mine[:] = numbers(count, rank)
        dist.gather(mine, list(whole.reshape(size, count)) if rank == root else None, dst=root)
        if rank == root:
            _same(whole, np.concatenate([numbers(count, source) for source in range(size)]))


def _reduce_scatter_over(count: int, shift: float) -> None:
    rank, size = dist.get_rank(), dist.get_world_size()
    whole = np.concatenate([numbers(count, rank + 3 * to) for to in range(size)])
    out = _slot(whole, shift)
    dist.reduce_scatter(out, list(whole.reshape(size, count)))
    _same(out, sum(numbers(count, source + 3 * rank) for source in range(size)))


def _scatter_over(count: int, shift: float) -> None:
    rank, size = dist.get_rank(), dist.get_world_size()
    for root in (0, size - 1):
        whole = np.concatenate([numbers(count, to) for to in range(size)])
        out = _slot(whole, shift) if rank == root else np.zeros(count, plain())
        dist.scatter(out, list(whole.reshape(size, count)) if rank == root else None, src=root)
        _same(out, numbers(count, rank))


def _all_to_all_over(count: int, shift: float) -> None:
    size = dist.get_world_size()
    parts = list(np.zeros((size, count), plain()))
    _refused(dist.all_to_all, parts, [parts[int(to + shift) % size] for to in range(size)])


def _refused(call: Any, *args: Any, **terms: Any) -> None:
    error = error_of(ValueError, call, *args, **terms)
    assert "shares memory" in str(error), error


_OVERLAPPING: dict[str, Any] = {
    "all_gather": _gather_over,
    "gather": _gather_to_root_over,
    "reduce_scatter": _reduce_scatter_over,
    "scatter": _scatter_over,
    "all_to_all": _all_to_all_over,
}
