"""Large arrays lie in any memory order, the same on all ranks or not: every element goes where its index says."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import pytest

import rankwise as dist
from rankwise import ReduceOp
from rankwise.errors import CollectiveMismatchError
from rankwise_testing.suite.arrays import dtype_named, plain
from rankwise_testing.suite.expect import begun, error_of, still_usable
from rankwise_testing.suite.plugin import Kit, needs

#: At least 64 KiB of any dtype.
_SHAPE = (40, 3, 1, 600)
#: After how many elements values come again: so that no other order of memory has the same there.
_PERIOD = 11
#: Returns an array of zeros of a shape.
Layout = Callable[[tuple[int, ...], Any], Any]


def _lain(*axes: int) -> Layout:
    """Return the layout whose memory has these axes, from the slowest to the fastest."""

    def make(shape: tuple[int, ...], dtype: Any) -> Any:
        back = [axes.index(axis) for axis in range(len(axes))]
        return np.zeros([shape[axis] for axis in axes], dtype).transpose(back)

    return make


_LAYOUTS: dict[str, Layout] = {
    "C": lambda shape, dtype: np.zeros(shape, dtype),
    "Fortran": _lain(3, 2, 1, 0),
    "channels last": _lain(0, 2, 3, 1),
    "transposed": _lain(1, 0, 2, 3),
    "slice": lambda shape, dtype: np.zeros((*shape, 2), dtype)[..., 1],
    "backwards": lambda shape, dtype: np.zeros(shape[::-1], dtype).T[::-1],
}
#: How the arrays of the ranks lie; of ranks that follow as those of the first.
_CASES = {
    "the same": ("Fortran", "Fortran", "Fortran"),
    "channels last": ("channels last", "channels last", "channels last"),
    "different": ("Fortran", "channels last", "transposed"),
    "one in C order": ("Fortran", "C", "Fortran"),
    "one in another": ("C", "C", "Fortran"),
    "one with gaps": ("Fortran", "slice", "Fortran"),
    "one backwards": ("channels last", "channels last", "backwards"),
}


def values(rank: int, dtype: Any) -> Any:
    """Return small whole numbers, as one rank has them."""
    return ((np.arange(np.prod(_SHAPE)) + rank) % _PERIOD + rank).astype(dtype).reshape(_SHAPE)


def made(layout: str, content: Any) -> Any:
    """Return an array of this content, and another layout."""
    array = _LAYOUTS[layout](content.shape, content.dtype)
    array[...] = content
    return array


class Ranks:
    """The calls of one rank.

    Args:
        layout: How its arrays lie.
        dtype: Their dtype.
        terms: Further arguments of each call.
    """

    def __init__(self, layout: str, dtype: Any, **terms: Any) -> None:
        self.rank, self.size = dist.get_rank(), dist.get_world_size()
        self.layout, self.dtype, self.terms = layout, dtype, terms

    @contextmanager
    def array(self, is_filled: bool, wanted: Any) -> Iterator[Any]:
        """Hand out this rank's array, and look at it in the end."""
        mine = made(self.layout, values(self.rank, self.dtype))
        yield mine
        want = wanted if is_filled else values(self.rank, self.dtype)
        wrong = np.argwhere(np.asarray(mine != want))
        assert not len(wrong), f"{self.layout}: {len(wrong)} of {mine.size} elements are wrong, the first at {wrong[0]}"
        if self.layout == "slice":
            assert not mine.base[..., 0].astype(bool).any(), "elements between those of the array were written to"

    def total(self) -> Any:
        return sum(values(rank, self.dtype) for rank in range(self.size)).astype(self.dtype)

    def end(self, work: Any) -> None:
        if self.terms.get("async_op"):
            assert begun(work).wait()

    def broadcast(self) -> None:
        with self.array(True, values(1, self.dtype)) as array:
            if self.rank == 1:
                array.flags.writeable = False
            self.end(dist.broadcast(array, 1, **self.terms))

    def all_reduce(self) -> None:
        with self.array(True, self.total()) as array:
            self.end(dist.all_reduce(array, ReduceOp.SUM, **self.terms))

    def reduce(self) -> None:
        with self.array(self.rank == 1, self.total()) as array:
            self.end(dist.reduce(array, 1, ReduceOp.SUM, **self.terms))


def every_order(op: str, case: str, dtype_name: str, terms: dict[str, Any]) -> None:
    """Make a call, make it again, now that the ranks know their orders, and again with those of the next ranks."""
    rank, layouts = dist.get_rank(), _CASES[case]
    for step in (0, 0, 1, 2, 0):
        getattr(Ranks(layouts[(rank + step) % len(layouts)], dtype_named(dtype_name), **terms), op)()
    getattr(Ranks("C", dtype_named(dtype_name), **terms), op)()
    still_usable()


_OPS = [pytest.param(op, marks=needs(op)) for op in ("broadcast", "all_reduce", "reduce")]


@pytest.mark.parametrize("op", _OPS)
@pytest.mark.parametrize("case", _CASES)
@pytest.mark.parametrize("is_async", [False, pytest.param(True, marks=needs("async"))], ids=["sync", "async"])
def test_elements_go_where_their_index_says(kit: Kit, case: str, op: str, is_async: bool) -> None:
    kit.on_host_only("arrays on a GPU must lie in order")
    kit.run(3, every_order, op, case, kit.plain, {"async_op": True} if is_async else {})


@needs("timeout")
@pytest.mark.parametrize("op", _OPS)
def test_so_they_do_in_calls_with_a_time_out(kit: Kit, op: str) -> None:
    kit.on_host_only("arrays on a GPU must lie in order")
    kit.run(2, every_order, op, "one in C order", kit.plain, {"timeout": 60})


@needs("broadcast")
def test_what_is_sent_may_be_a_view_in_which_elements_are_repeated(kit: Kit) -> None:
    kit.on_host_only("arrays on a GPU must lie in order")
    kit.run(2, repeated)


def repeated() -> None:
    row = (np.arange(600) % 7).astype(plain())
    sent = np.broadcast_to(row, (400, 600))
    got = np.zeros((600, 400), plain()).T
    dist.broadcast(sent if dist.get_rank() == 0 else got, 0)
    assert dist.get_rank() == 0 or (got == sent).all()


@needs("broadcast")
def test_structures_lie_in_any_order(kit: Kit) -> None:
    kit.on_host_only("arrays on a GPU must lie in order")
    kit.require("structured", "broadcast")
    kit.run(2, structures)


def structures() -> None:
    structs = np.zeros((300, 50), [("a", plain()), ("b", "u1")]).T
    structs["a"] = dist.get_rank() + 1
    dist.broadcast(structs, 1)
    assert (structs["a"] == 2).all()


@needs("all_reduce", "mismatch")
def test_shapes_that_differ_are_a_mistake_in_any_order(kit: Kit) -> None:
    kit.on_host_only("arrays on a GPU must lie in order")
    kit.run(2, shapes_differ)


def shapes_differ() -> None:
    rank = dist.get_rank()
    for shapes in (((300, 400), (400, 300)), ((300, 400), (400, 300, 1))):
        for layouts in ("FF", "FC", "CF"):
            array = np.zeros(shapes[rank], plain(), order=layouts[rank])  # type: ignore[call-overload]
            error = error_of(CollectiveMismatchError, dist.all_reduce, array)
            assert type(error) is CollectiveMismatchError
            assert all(str(shape) in str(error) for shape in shapes), error
    still_usable()
