"""Inputs live as long as what reads them: programs may drop the arrays and lists of a call as soon as it has returned.

Each array lies in memory that is filled with garbage when the last reference to it is gone, and that must then be left
alone. On a GPU the memory goes back to the pool, from which garbage takes it.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import rankwise as dist
from rankwise.kits import Work
from rankwise_testing.suite.arrays import device, on_device, plain, same
from rankwise_testing.suite.expect import begun, still_usable
from rankwise_testing.suite.plugin import Kit, needs

#: How long the array of each pair of ranks is.
_COUNTS = (5, 3000, 200_001)
_GARBAGE = 0xDB


class _Memory:
    """Memory for an array, as NumPy is told of it; it is gone with the last array that lies there."""

    def __init__(self, raw: Any) -> None:
        self.__array_interface__ = raw.__array_interface__


class _Here:
    """One rank's side of a call. It holds those arrays alone whose content is looked at in the end."""

    def __init__(self, count: int, dtype: str = "", reduce: str = "SUM") -> None:
        self.rank, self.size = dist.get_rank(), dist.get_world_size()
        self.root = self.size - 1
        self.count, self.dtype, self.reduce = count, np.dtype(dtype) if dtype else plain(), reduce
        self.results: list[tuple[Any, Any]] = []
        self._perished: list[Any] = []

    def value(self, source: int, to: int = 0) -> Any:
        """Return what a rank sends to another: small whole numbers."""
        return ((np.arange(self.count) * 3 + 5 * source + 7 * to) % 13).astype(self.dtype)

    def reduced(self, to: int = 0) -> Any:
        """Return what the values of all ranks reduce to."""
        total = sum(self.value(source, to) for source in range(self.size))
        return (total * (2 if self.reduce == "PREMUL_SUM" else 1)).astype(self.dtype)

    def op(self) -> dist.ReduceOp:
        """Return the reduce op."""
        return dist.ReduceOp.PREMUL_SUM(2.0) if self.reduce == "PREMUL_SUM" else dist.ReduceOp.SUM

    def given(self, *values: Any) -> Any:
        """Return an array of values, one after the other, that perishes with the last reference to it."""
        content = np.concatenate(values)
        if device() != "cpu":
            return on_device(content)
        raw = np.frombuffer(content.tobytes(), np.uint8).copy()
        memory = _Memory(raw)
        weakref.finalize(memory, _perish, raw, self._perished)
        return np.asarray(memory).view(content.dtype)

    def room(self, *wanted: Any) -> Any:
        """Return an array to be filled with values."""
        return self._looked_at(self.given(*(np.zeros_like(part) for part in wanted)), np.concatenate(wanted))

    def parts(self) -> list[Any]:
        """Return what this rank sends to each."""
        return [self.given(self.value(self.rank, to)) for to in range(self.size)]

    def rooms(self, to: int | None = None) -> list[Any]:
        """Return room for what comes from each rank, which may be what it sends to one alone."""
        return [self.room(self.value(source, to or 0)) for source in range(self.size)]

    def own(self, filled: bool = True) -> Any:
        """Return this rank's part of a reduction, which holds the result in the end."""
        array = self.given(self.value(self.rank))
        return self._looked_at(array, self.reduced()) if filled else array

    def overwrite(self) -> None:
        """Let the program go on, and use the memory that was given back."""
        for _ in range(4):
            on_device(np.full(self.count * self.size, 97, self.dtype))

    def check(self) -> None:
        """Raise unless the results are right, and nothing was written to what had been given back."""
        for array, want in self.results:
            same(array, want)
        assert all((raw == _GARBAGE).all() for raw in self._perished), "written to memory that nobody held any more"

    def _looked_at(self, array: Any, want: Any) -> Any:
        self.results.append((array, want))
        return array


def _perish(raw: Any, perished: list[Any]) -> None:
    raw[:] = _GARBAGE
    perished.append(raw)


# ------------------------------------------------------------------ the calls


def _emptied(call: Callable[..., Work | None], *lists: list[Any]) -> Work | None:
    """Make a call with lists, which are empty as soon as it has returned."""
    work = call(*lists)
    for each in lists:
        each.clear()
    return work


def _broadcast(here: _Here) -> Work | None:
    want = here.value(here.root)
    return dist.broadcast(here.given(want) if here.rank == here.root else here.room(want), here.root, async_op=True)


def _all_reduce(here: _Here) -> Work | None:
    return dist.all_reduce(here.own(), here.op(), async_op=True)


def _reduce(here: _Here) -> Work | None:
    return dist.reduce(here.own(here.rank == here.root), here.root, here.op(), async_op=True)


def _all_gather(here: _Here) -> Work | None:
    return _emptied(lambda outs: dist.all_gather(outs, here.given(here.value(here.rank)), async_op=True), here.rooms())


def _all_gather_into_tensor(here: _Here) -> Work | None:
    whole = here.room(*map(here.value, range(here.size)))
    return dist.all_gather_into_tensor(whole, here.given(here.value(here.rank)), async_op=True)


def _gather(here: _Here) -> Work | None:
    if here.rank != here.root:
        return dist.gather(here.given(here.value(here.rank)), dst=here.root, async_op=True)
    return _emptied(
        lambda outs: dist.gather(here.given(here.value(here.rank)), outs, dst=here.root, async_op=True), here.rooms()
    )


def _scatter(here: _Here) -> Work | None:
    out = here.room(here.value(here.root, here.rank))
    if here.rank != here.root:
        return dist.scatter(out, src=here.root, async_op=True)
    return _emptied(lambda ins: dist.scatter(out, ins, src=here.root, async_op=True), here.parts())


def _reduce_scatter(here: _Here) -> Work | None:
    out = here.room(here.reduced(here.rank))
    return _emptied(lambda ins: dist.reduce_scatter(out, ins, here.op(), async_op=True), here.parts())


def _reduce_scatter_tensor(here: _Here) -> Work | None:
    whole = here.given(*(here.value(here.rank, to) for to in range(here.size)))
    return dist.reduce_scatter_tensor(here.room(here.reduced(here.rank)), whole, here.op(), async_op=True)


def _all_to_all(here: _Here) -> Work | None:
    return _emptied(lambda outs, ins: dist.all_to_all(outs, ins, async_op=True), here.rooms(here.rank), here.parts())


def _all_to_all_single(here: _Here) -> Work | None:
    whole = here.given(*(here.value(here.rank, to) for to in range(here.size)))
    out = here.room(*(here.value(source, here.rank) for source in range(here.size)))
    return dist.all_to_all_single(out, whole, async_op=True)


def _all_reduce_coalesced(here: _Here) -> Work | None:
    return _emptied(
        lambda arrays: dist.all_reduce_coalesced(arrays, here.op(), async_op=True), [here.own() for _ in range(3)]
    )


def _all_gather_coalesced(here: _Here) -> Work | None:
    return _emptied(
        lambda lists, ins: dist.all_gather_coalesced(lists, ins, async_op=True),
        [here.rooms(), here.rooms()],
        [here.given(here.value(here.rank)) for _ in range(2)],
    )


def _coalescing(here: _Here) -> Work | None:
    with dist.coalescing(async_ops=True):
        _reduce_scatter(here)
        _all_gather(here)
        return _all_reduce(here)


_CALLS: dict[str, tuple[Callable[[_Here], Work | None], tuple[str, ...]]] = {
    "broadcast": (_broadcast, ("broadcast",)),
    "all_reduce": (_all_reduce, ("all_reduce",)),
    "reduce": (_reduce, ("reduce",)),
    "all_gather": (_all_gather, ("all_gather",)),
    "all_gather_into_tensor": (_all_gather_into_tensor, ("all_gather",)),
    "gather": (_gather, ("gather",)),
    "scatter": (_scatter, ("scatter",)),
    "reduce_scatter": (_reduce_scatter, ("reduce_scatter",)),
    "reduce_scatter_tensor": (_reduce_scatter_tensor, ("reduce_scatter",)),
    "all_to_all": (_all_to_all, ("all_to_all",)),
    "all_to_all_single": (_all_to_all_single, ("all_to_all",)),
    "all_reduce_coalesced": (_all_reduce_coalesced, ("all_reduce",)),
    "all_gather_coalesced": (_all_gather_coalesced, ("all_gather",)),
    "coalescing": (_coalescing, ("reduce_scatter", "all_gather", "all_reduce")),
}
_REDUCING = ("all_reduce", "reduce", "reduce_scatter")
#: As they are, in a wider dtype, and multiplied before.
_REDUCTIONS = (("float32", "SUM"), ("float16", "SUM"), ("float32", "PREMUL_SUM"))


def _reducing(name: str) -> list[str]:
    return [op for op in _CALLS[name][1] if op in _REDUCING]


def _cases() -> list[Any]:
    usual = [
        pytest.param(name, "float32" if _reducing(name) else "", "SUM", marks=needs(*ops))
        for name, (_, ops) in _CALLS.items()
    ]
    return usual + [pytest.param(name, *how, marks=needs(name)) for name in _REDUCING for how in _REDUCTIONS[1:]]


@needs("async", "send", "recv")
@pytest.mark.parametrize(("name", "dtype", "reduce"), _cases())
def test_arrays_and_lists_of_an_asynchronous_collective_may_be_dropped(
    kit: Kit, name: str, dtype: str, reduce: str
) -> None:
    if dtype:  # else any that the backend moves will do
        kit.require(dtype, *_reducing(name), reduce=reduce)
    kit.run(3, collective, name, dtype, reduce)


def collective(name: str, dtype: str, reduce: str) -> None:
    rank, size = dist.get_rank(), dist.get_world_size()
    for count in _COUNTS:
        for first in range(size):
            # What the first rank has begun cannot end before it has dropped everything and told the others.
            token = on_device(np.zeros(1, plain()))
            if rank != first:
                dist.recv(token, first)
            here = _Here(count, dtype, reduce)
            works = [begun(_CALLS[name][0](here))]
            if rank == first and count == _COUNTS[1]:  # nor does anybody hold these
                works.clear()
                here.results.clear()
            here.overwrite()
            if rank == first:
                for peer in range(size):
                    if peer != first:
                        dist.send(token, peer)
            for work in works:
                work.wait()
            still_usable()  # all have ended
            here.check()


@needs("async", "send", "recv", "barrier")
def test_so_may_those_of_messages(kit: Kit) -> None:
    kit.run(3, messages)


def messages() -> None:
    rank, size = dist.get_rank(), dist.get_world_size()
    right, left = (rank + 1) % size, (rank - 1) % size
    for count in _COUNTS:
        for first in range(size):
            here = _Here(count)
            if rank == first:
                work = dist.irecv(here.room(here.value(left)), left)
            dist.isend(here.given(here.value(rank)), right)  # nobody holds its work either
            here.overwrite()
            dist.barrier()  # all have dropped what they send
            if rank != first:
                work = dist.irecv(here.room(here.value(left)), left)
            begun(work).wait()
            dist.barrier()
            here.check()


@needs("async", "send", "recv", "barrier")
def test_so_may_those_of_a_batch(kit: Kit) -> None:
    kit.run(3, batch)


def batch() -> None:
    rank, size = dist.get_rank(), dist.get_world_size()
    right, left = (rank + 1) % size, (rank - 1) % size
    for count in _COUNTS:
        here = _Here(count)
        calls = [
            dist.P2POp(dist.isend, here.given(here.value(rank)), right),
            dist.P2POp(dist.irecv, here.room(here.value(left)), left),
        ]
        if rank == 0:  # the others' messages wait meanwhile
            dist.barrier()
        received = dist.batch_isend_irecv(calls)[1]
        calls.clear()
        here.overwrite()
        if rank != 0:
            dist.barrier()
        received.wait()
        dist.barrier()
        here.check()


@needs("async", "all_reduce", "sparse", "send", "recv")
def test_so_may_a_sparse_array(kit: Kit) -> None:
    pytest.importorskip("scipy.sparse", reason="sparse arrays are scipy's")
    kit.require("float64", "all_reduce", "send", "recv", reduce="SUM")
    kit.run(3, sparse)


def sparse() -> None:
    import scipy.sparse

    rank, size = dist.get_rank(), dist.get_world_size()
    for first in range(size):
        shares = [np.where(np.arange(3000) % (r + 2) == 0, r + 1.5, 0.0)[None, :] for r in range(size)]
        token = np.zeros(1)
        if rank != first:
            dist.recv(token, first)
        work = begun(dist.all_reduce(scipy.sparse.csr_array(shares[rank]), async_op=True))
        for _ in range(8):
            np.full(3000, 97.0)
        if rank == first:
            for peer in range(size):
                if peer != first:
                    dist.send(token, peer)
        assert np.array_equal(work.result().toarray(), sum(shares))
