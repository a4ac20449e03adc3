"""Sums of sparse arrays: every rank gets the elements of all, and adds those that share a place.

scipy itself is not needed: the caller's array is taken apart, and its parts are replaced at the end.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from rankwise.basics.arrays import Array, Coordinates
from rankwise.basics.deadline import Deadline
from rankwise.basics.reduce_op import accumulation_dtype
from rankwise.collective import derived
from rankwise.collective.executor import PointToPoint
from rankwise.errors import ProtocolError


def all_reduce(comm: PointToPoint, array: Any, deadline: Deadline) -> None:
    """Sum the sparse arrays of all ranks into everyone's; each keeps its own format.

    Afterwards the indices are sorted and each place is there once, with an element for every place that any rank has
    one for, zeros included.
    Rounds: those of three `all_gather`s. Scratch: some three times the elements of all ranks.
    """
    places, values = _taken_apart(array)
    everyones_places, everyones_values = _gathered(comm, places, values, deadline)
    places, values = _summed(everyones_places, everyones_values)
    if places.size and not 0 <= places[0] <= places[-1] < _room(array):  # they are sorted
        # Where calls are not compared: what is done with such an array would read and write outside of its memory.
        raise ProtocolError(f"all_reduce: another rank has elements outside of a sparse array of shape {array.shape}")
    _put_together(array, places, values)


def _room(array: Any) -> int:
    """Return how many places an array has."""
    return math.prod(array.shape[: array.sparse_dims if type(array) is Coordinates else None])


def _taken_apart(array: Any) -> tuple[Array, Array]:
    """Return the place of each element, counted row by row, and the elements in the dtype that sums are made in."""
    if type(array) is Coordinates:
        return array.places, array.data.astype(accumulation_dtype("SUM", array.dtype))
    if array.format == "coo":
        first, second = array.row, array.col
        count = array.data.size
    else:
        count = int(array.indptr[-1])  # there may be room for more
        first = np.repeat(np.arange(array.indptr.size - 1, dtype=np.int64), np.diff(array.indptr))
        second = array.indices[:count]
    rows, columns = (second, first) if array.format == "csc" else (first, second)
    places = rows.astype(np.int64) * array.shape[1] + columns
    return places, array.data[:count].astype(accumulation_dtype("SUM", array.data.dtype))


def _gathered(comm: PointToPoint, places: Array, values: Array, deadline: Deadline) -> tuple[Array, Array]:
    """Return the elements of all ranks, in the order of ranks."""
    counts = np.empty(comm.size, np.int64)
    counts[comm.rank] = places.size
    derived.all_gather(comm, np.split(counts, comm.size), counts[comm.rank : comm.rank + 1], deadline)
    cuts = np.cumsum(counts)
    gathered = []
    for mine in (places, values):
        everyones = np.empty((cuts[-1], *mine.shape[1:]), mine.dtype)
        derived.all_gather(comm, np.split(everyones, cuts[:-1]), mine, deadline)
        gathered.append(everyones)
    return gathered[0], gathered[1]


def _summed(places: Array, values: Array) -> tuple[Array, Array]:
    """Add the elements of each place, in the order of ranks, as on every other rank."""
    order = np.argsort(places, kind="stable")
    places, values = places[order], values[order]
    starts = np.flatnonzero(np.diff(places, prepend=-1))
    with np.errstate(all="ignore"):
        return places[starts], np.add.reduceat(values, starts, dtype=values.dtype) if places.size else values


def _put_together(array: Any, places: Array, values: Array) -> None:
    """Replace the content of a sparse array."""
    if type(array) is Coordinates:
        with np.errstate(all="ignore"):
            array.places, array.data = places, values.astype(array.dtype)
        return
    rows, columns = np.divmod(places, array.shape[1]) if places.size else (places, places)
    with np.errstate(all="ignore"):
        values = values.astype(array.data.dtype)
    index = _index_dtype(array, values.size)
    if array.format == "coo":
        _set_coordinates(array, rows.astype(index), columns.astype(index))
        array.data = values
    else:
        first, second = rows, columns
        if array.format == "csc":
            order = np.argsort(columns, kind="stable")
            first, second, values = columns[order], rows[order], values[order]
        lengths = np.bincount(first, minlength=array.indptr.size - 1)
        array.data, array.indices = values, second.astype(index)
        array.indptr = np.concatenate([[0], np.cumsum(lengths)]).astype(index)
    array.has_canonical_format = True


def _index_dtype(array: Any, count: int) -> np.dtype[Any]:
    """Return the dtype that the array has for indices, unless that is too narrow by now."""
    held: np.dtype[Any] = (array.row if array.format == "coo" else array.indices).dtype
    return held if max(count, *array.shape) <= np.iinfo(held).max else np.dtype(np.int64)


def _set_coordinates(array: Any, rows: Array, columns: Array) -> None:
    if hasattr(array, "coords"):
        array.coords = (rows, columns)
    else:  # before scipy 1.13
        array.row, array.col = rows, columns
