"""What the calls check of their arguments, at the limits of what they take: one array or number more would be wrong."""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable
from functools import partial
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from numpy.lib.stride_tricks import as_strided
from tests.threads import on_ranks

import rankwise as dist
from rankwise.basics import arrays
from rankwise.basics.messages import MAX_TAG
from rankwise.calls import check
from rankwise.calls.check import sparse_elements
from rankwise.groups.process_group import ProcessGroup
from rankwise.groups.world import current


def group() -> ProcessGroup:
    made = current().default
    assert made is not None
    return made


def refused(
    said: str, call: Callable[..., object], *args: Any, error: type[Exception] = ValueError, **options: Any
) -> None:
    with pytest.raises(error, match=said):
        call(*args, **options)


class OnDevice:
    """As much of a CuPy array as the checks look at, wherever its memory is said to lie."""

    __module__ = "cupy"

    def __init__(self, begin: int, nbytes: int) -> None:
        self.data, self.nbytes = self, nbytes
        self.ptr = begin


def test_memory_is_shared_from_the_first_byte_to_the_last() -> None:
    for other, shared in ((OnDevice(50, 50), False), (OnDevice(50, 51), True), (OnDevice(109, 5), True)):
        assert check.touch(OnDevice(100, 10), other) == check.touch(other, OnDevice(100, 10)) == shared
    assert not check.touch(OnDevice(100, 10), OnDevice(110, 5))
    array = np.zeros(4)
    for there in (True, False):
        other = OnDevice(array.ctypes.data + (0 if there else array.nbytes), 8)
        assert check.touch(array, other) == check.touch(other, array) == there


def offsets(array: np.ndarray) -> list[int]:
    places = itertools.product(*map(range, array.shape))
    return [sum(i * step for i, step in zip(place, array.strides, strict=True)) for place in places]


@on_ranks(1)
def test_a_copy_stands_for_an_array_only_if_each_element_has_a_place_of_its_own() -> None:
    chance, taken = random.Random(7), 0
    for _ in range(2000):
        shape = chance.choices(range(1, 4), k=chance.randrange(1, 4))
        strides = [8 * chance.randrange(-9, 10) for _ in shape]
        array = as_strided(np.zeros(200)[100:], shape, strides)
        if array.flags.c_contiguous:
            continue
        if check._is_distinct(array):
            taken += 1
            assert len(set(offsets(array))) == array.size
            assert check.output_array(group(), "broadcast", "tensor", array) is not array
        else:
            refused("share their memory", check.output_array, group(), "broadcast", "tensor", array)
    assert taken > 500
    whole = np.zeros((4, 5, 6))
    views = [whole.T, whole[::2, 1:3, ::-3], whole[::-1], whole[:, :, 0], whole[:, ::4].transpose(1, 2, 0)]
    for array in (*views, whole[:, ::2, np.newaxis]):  # the stride of one that is alone leads nowhere
        assert check._is_distinct(array)


@on_ranks(1)
def test_the_library_of_an_array_is_told_of_each_write(monkeypatch: pytest.MonkeyPatch) -> None:
    class Column:
        def __init__(self, array: np.ndarray) -> None:
            self.array = array

    told: list[Column] = []
    monkeypatch.setitem(arrays._converters, Column, lambda column: column.array)
    monkeypatch.setitem(arrays._writes, Column, told.append)
    for array in (np.zeros(4), np.zeros((2, 3)).T, np.zeros(4)[::2]):
        column = Column(array)
        taken = check.output_array(group(), "broadcast", "tensor", column)
        assert told.pop() is column
        assert (taken is array) == array.flags.c_contiguous
        assert check.input_array(group(), "broadcast", "tensor", column).tolist() == array.tolist()
        assert not told


@on_ranks(1)
def test_what_must_lie_in_order_is_not_copied() -> None:
    def taken(array: np.ndarray) -> np.ndarray:
        return check.output_array(group(), "all_reduce", "tensor", array, in_order=True)

    array = np.zeros((2, 3))
    assert taken(array) is array
    refused("is not C-contiguous, but is written to", taken, array.T)
    array.flags.writeable = False
    refused("is read-only, but is written to", taken, array)


@on_ranks(1)
def test_sparse_arrays_have_two_dimensions_and_are_summed() -> None:
    def elements(form: str = "csr", shape: tuple[int, ...] = (3, 4), op: Any = dist.ReduceOp.SUM) -> tuple[Any, str]:
        array = SimpleNamespace(format=form, shape=shape, ndim=len(shape), data=form)
        return sparse_elements(group(), "all_reduce", "tensor", array, op)

    for form in ("csr", "csc", "coo"):
        assert elements(form) == (form, " sparse")
    for form, shape in (("dia", (3, 4)), ("csr", (3,)), ("coo", (3, 4, 5))):
        refused("pass one from .tocsr", elements, form, shape)
    assert elements(shape=(2**31, 2**31)) == ("csr", " sparse")
    refused("more places than 64 bits", elements, "csr", (2**32, 2**31))
    any_dims = arrays.Coordinates((3, 4, 5), 2, np.zeros(1, int), np.zeros((1, 5)))
    wanted = any_dims.data, " sparse in 2 of 3 dimensions"
    assert sparse_elements(group(), "all_reduce", "tensor", any_dims, dist.ReduceOp.SUM) == wanted
    refused("SUM alone, not ReduceOp.MAX", elements, op=dist.ReduceOp.MAX, error=dist.UnsupportedOperationError)


@on_ranks(2)
def test_lists_of_arrays_that_copies_are_used_for_lie_apart() -> None:
    flat = np.zeros((3, 4))
    apart, together = [flat[:, 0], flat[:, 1]], [flat[:, :2], flat[:, 1:3]]
    taken = check.array_list(group(), "all_gather", "tensor_list", apart, True)
    assert all(array.flags.c_contiguous for array in taken)
    check.array_list(group(), "all_gather", "tensor_list", together, False)
    for given in (together, together[::-1], [flat, flat[:, 0]]):
        refused("shares memory", check.array_list, group(), "all_gather", "tensor_list", given, True)


@on_ranks(2)
def test_only_the_root_gives_a_list() -> None:
    mine, other = dist.get_rank(), 1 - dist.get_rank()
    two = [np.zeros(1), np.zeros(1)]
    assert check.root_list(group(), "scatter", "scatter_list", two, mine, False) == two
    for nothing in (None, []):
        assert check.root_list(group(), "scatter", "scatter_list", nothing, other, False) is None
    refused("is missing", check.root_list, group(), "scatter", "scatter_list", None, mine, False)
    for given in (two, np.zeros(2)):
        refused("must be None", check.root_list, group(), "scatter", "scatter_list", given, other, False)


@on_ranks(2)
def test_parts_are_those_that_are_asked_for() -> None:
    def lengths(array: np.ndarray, sizes: Any) -> list[int]:
        parts = check.split_parts(group(), "all_to_all_single", "input", array, sizes)
        assert np.array_equal(np.concatenate(parts), np.atleast_1d(array))
        return [len(part) for part in parts]

    six = np.arange(12).reshape(6, 2)
    assert lengths(six, None) == lengths(six, []) == lengths(six, [3, 3]) == [3, 3]
    assert lengths(six, [6, 0]) == [6, 0]
    assert lengths(six, np.array([2, 4])) == [2, 4]
    assert lengths(np.array(1), [0, 1]) == [0, 1]
    for rows in (5, 1):
        refused("do not divide evenly", lengths, np.arange(rows), None)
    refused("do not divide evenly", lengths, np.array(1), None)
    for sizes in ([7, -1], [3, 2], [6], [2, 2, 2]):
        refused("are not 2 parts of that", lengths, six, sizes)
    for count in (3, 5):
        refused("must have 2 x 2", check.equal_parts, group(), "all_gather", "out", np.zeros(count), np.zeros(2), "in")


@on_ranks(1)
def test_a_factor_fits_the_array() -> None:
    scaled, reals = dist.ReduceOp.PREMUL_SUM, np.zeros(1)
    for factor, dtype in ((2, "f4"), (0.5, "f8"), (np.float32(2), "c8"), (2j, "c8"), (np.complex64(2), "c16")):
        assert check.reduce_op(group(), "all_reduce", scaled(factor), np.zeros(1, dtype)) == scaled(factor)
    for factor in (2j, np.complex64(2)):
        refused("a complex factor", check.reduce_op, group(), "all_reduce", scaled(factor), reals, error=TypeError)
    for factor in ("2", np.timedelta64(2), [2]):
        refused("a number, not", check.reduce_op, group(), "all_reduce", scaled(factor), reals, error=TypeError)
    refused("is too large", check.reduce_op, group(), "all_reduce", scaled(10**400), reals)


@on_ranks(1)
def test_what_is_no_array_and_no_reduce_op_is_refused() -> None:
    sparse = arrays.Coordinates((3, 4), 2, np.zeros(1, int), np.zeros(1))
    for taken in (check.input_array, check.output_array):
        refused("broadcast on rank 0: tensor", taken, group(), "broadcast", "tensor", object(), error=TypeError)
        refused(
            "which only all_reduce takes",
            partial(taken, group(), "broadcast", "tensor", sparse),
            error=dist.UnsupportedOperationError,
        )
    for op in ("SUM", None, np.add):
        refused("must be a ReduceOp such as", check.reduce_op, group(), "reduce", op, np.zeros(1), error=TypeError)


@on_ranks(1)
def test_tags_are_small_integers() -> None:
    for tag in (0, 1, np.int64(5), MAX_TAG):
        assert check.tag(group(), "send", tag) == tag
    for tag in (-1, MAX_TAG + 1):
        refused(f"tag is {tag}, but must be from 0 to {MAX_TAG}", check.tag, group(), "send", tag)
    for tag in (1.0, "1", None):
        refused("tag must be an integer", check.tag, group(), "send", tag, error=TypeError)


@on_ranks(1)
def test_who_owns_the_memory_is_seen_at_a_glance() -> None:
    flat, other = np.zeros(6), np.zeros(6)
    for array in (flat, flat[:3]):
        assert check._apart(array, [other, other[:2]])
        for near in (flat, flat[3:], np.asarray(memoryview(flat))):
            assert not check._apart(array, [other, near])
