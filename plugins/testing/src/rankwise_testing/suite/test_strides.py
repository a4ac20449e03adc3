"""Arrays of the host whose elements do not lie in order are filled as others are, on whichever ranks they lie so."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import rankwise as dist
from rankwise_testing.suite.arrays import plain
from rankwise_testing.suite.expect import begun, error_of, still_usable
from rankwise_testing.suite.plugin import Kit, needs

_SHAPE = (4, 3)
#: Empty arrays of a shape, by how their elements lie; rank r has the r-th next layout.
_LAYOUTS: tuple[Callable[[tuple[int, ...]], Any], ...] = (
    lambda shape: np.zeros(shape, plain()),
    lambda shape: np.zeros(shape, plain(), order="F"),
    lambda shape: np.zeros((*shape, 2), plain())[..., 1],
    lambda shape: np.zeros(shape, plain())[::-1, ::-1],
)


def values(rank: int, shape: tuple[int, ...] = _SHAPE) -> Any:
    """Return small whole numbers, as one rank has them."""
    return ((np.arange(np.prod(shape)) + rank) % 7 + rank).astype(plain()).reshape(shape)


class Rank:
    """One rank that makes a call of each kind.

    Args:
        layout: Which layout rank 0 has.
        is_async: Whether the calls return works.
    """

    def __init__(self, layout: int, is_async: bool) -> None:
        self.rank, self.size = dist.get_rank(), dist.get_world_size()
        self.layout = layout + self.rank
        self.terms: dict[str, Any] = {"async_op": True} if is_async else {}

    def make(self, content: Any, step: int = 0) -> Any:
        array = _LAYOUTS[(self.layout + step) % len(_LAYOUTS)](content.shape)
        array[...] = content
        return array

    def several(self, contents: list[Any]) -> list[Any]:
        return [self.make(content, step) for step, content in enumerate(contents)]

    def end(self, work: Any) -> None:
        if self.terms:
            assert begun(work).wait()

    def everyones(self) -> list[Any]:
        return [values(rank) for rank in range(self.size)]

    def total(self, shape: tuple[int, ...] = _SHAPE) -> Any:
        return sum(values(rank, shape) for rank in range(self.size))

    def broadcast(self) -> None:
        array = self.make(values(self.rank))
        self.end(dist.broadcast(array, 1, **self.terms))
        same(array, values(1))

    def all_reduce(self) -> None:
        array = self.make(values(self.rank))
        self.end(dist.all_reduce(array, **self.terms))
        same(array, self.total())

    def reduce(self) -> None:
        array = self.make(values(self.rank))
        self.end(dist.reduce(array, 1, **self.terms))
        same(array, self.total() if self.rank == 1 else values(self.rank))

    def all_gather(self) -> None:
        outs = self.several([np.zeros(_SHAPE)] * self.size)
        self.end(dist.all_gather(outs, self.make(values(self.rank)), **self.terms))
        same(outs, self.everyones())
        whole = self.make(np.zeros((self.size * _SHAPE[0], _SHAPE[1])))
        self.end(dist.all_gather_single(whole, self.make(values(self.rank)), **self.terms))
        same(whole, np.concatenate(self.everyones()))

    def gather(self) -> None:
        outs = self.several([np.zeros(_SHAPE)] * self.size) if self.rank == 1 else None
        self.end(dist.gather(self.make(values(self.rank)), outs, 1, **self.terms))
        same(outs or [], self.everyones() if outs else [])

    def scatter(self) -> None:
        array, parts = self.make(np.zeros(_SHAPE)), self.several(self.everyones()) if self.rank == 1 else None
        self.end(dist.scatter(array, parts, 1, **self.terms))
        same(array, values(self.rank))

    def reduce_scatter(self) -> None:
        array, parts = self.make(np.zeros(_SHAPE)), self.several([values(self.rank)] * self.size)
        self.end(dist.reduce_scatter(array, parts, **self.terms))
        same(array, self.total())
        shape = (self.size * _SHAPE[0], _SHAPE[1])
        self.end(dist.reduce_scatter_single(array, self.make(values(self.rank, shape)), **self.terms))
        same(array, np.split(self.total(shape), self.size)[self.rank])

    def all_to_all(self) -> None:
        outs = self.several([np.zeros(_SHAPE)] * self.size)
        self.end(dist.all_to_all(outs, self.several([values(self.rank + to) for to in range(self.size)]), **self.terms))
        same(outs, [values(rank + self.rank) for rank in range(self.size)])
        shape = (self.size * _SHAPE[0], _SHAPE[1])
        whole = self.make(np.zeros(shape))
        self.end(dist.all_to_all_single(whole, self.make(values(self.rank, shape)), **self.terms))
        mine = [np.split(values(rank, shape), self.size)[self.rank] for rank in range(self.size)]
        same(whole, np.concatenate(mine))

    def send(self) -> None:
        right, left = (self.rank + 1) % self.size, (self.rank - 1) % self.size
        array, single = self.make(np.zeros(_SHAPE)), self.make(np.zeros(_SHAPE), 1)
        receiving = begun(dist.irecv(array, left))
        batch = [dist.P2POp(dist.isend, self.make(values(self.rank)), right)]
        batch += [dist.P2POp(dist.irecv, single, left, tag=1)] if self.terms else []
        works = dist.batch_isend_irecv(batch)
        dist.isend(values(self.rank), right, tag=1)
        if not self.terms:
            assert dist.recv(single, left, tag=1) == left
        for work in (receiving, *works):
            work.wait()
        assert receiving.source_rank() == left
        same([array, single], [values(left)] * 2)


def same(arrays: Any, wanted: Any) -> None:
    """Raise unless arrays hold what is wanted, and nothing of what lies between their elements has changed."""
    for array, want in zip(*([arrays], [wanted]) if isinstance(arrays, np.ndarray) else (arrays, wanted), strict=True):
        assert np.array_equal(array, want), f"strides {array.strides}: {array} instead of {want}"
        if array.base is not None and array.base.shape == (*array.shape, 2):
            assert not array.base[..., 0].any(), "elements between those of the array were written to"


_OPS = ("broadcast", "all_reduce", "reduce", "all_gather", "gather", "scatter", "reduce_scatter", "all_to_all", "send")


@pytest.mark.parametrize("op", [pytest.param(op, marks=needs(op)) for op in _OPS])
@pytest.mark.parametrize("is_async", [False, pytest.param(True, marks=needs("async"))], ids=["sync", "async"])
def test_arrays_in_any_order_are_filled(kit: Kit, op: str, is_async: bool) -> None:
    kit.on_host_only("arrays on a GPU must lie in order")
    if op == "send" and (reason := kit.lacks("recv") or kit.lacks("tags")):
        pytest.skip(reason)
    kit.run(3, filled, op, is_async)


def filled(op: str, is_async: bool) -> None:
    for layout in range(len(_LAYOUTS)):
        getattr(Rank(layout, is_async), op)()


@needs("all_gather")
def test_outputs_that_overlap_are_refused_in_any_order(kit: Kit) -> None:
    kit.on_host_only("arrays on a GPU must lie in order")
    kit.run(2, overlapping)


def overlapping() -> None:
    whole = np.zeros((4, 4), plain())
    for outs in ([whole[:, 0], whole[:, 0]], [whole[::2, 0], whole[2:, 0]], [whole[0], whole[:, 0]]):
        error = error_of(ValueError, dist.all_gather, outs, np.zeros(outs[0].size, plain()))
        assert "shares memory" in str(error), error
    columns = [whole[:, 0], whole[:, 1]]
    dist.all_gather(columns, np.full(4, dist.get_rank(), plain()))
    assert np.array_equal(whole[:, :2], [[0, 1]] * 4)
    still_usable()
