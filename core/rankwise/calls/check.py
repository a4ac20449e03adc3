"""The one validation of arguments: before anything is sent, with a message that names argument and rank."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from itertools import accumulate, pairwise
from operator import index
from typing import Any

import numpy as np

from rankwise.basics.arguments import is_integer, shown
from rankwise.basics.arrays import (
    Array,
    Coordinates,
    as_array,
    as_copy,
    device_of,
    is_registered,
    is_sparse,
    tell_of_write,
)
from rankwise.basics.devices import kind_of
from rankwise.basics.memory_order import Reordered, reordered
from rankwise.basics.messages import MAX_TAG
from rankwise.basics.reduce_op import ReduceOp
from rankwise.errors import UnsupportedOperationError
from rankwise.groups.process_group import ProcessGroup

#: Up to this many arrays, comparing each pair is quicker than looking at where all of them lie.
_FEW = 4


def output_array(group: ProcessGroup, op: str, name: str, value: Any, *, in_order: bool = False) -> Array:
    """Return `value` as a C-contiguous array that can be written to.

    In the place of a NumPy array whose elements do not lie in order it is a copy, from which `calling.put_back` takes
    the result, unless `in_order` refuses such an array; the root of a broadcast can send one, so the other ranks can
    receive into one.
    """
    if type(value) is np.ndarray and value.flags.carray:  # almost always: one look, which each call pays for
        return value
    array = value if type(value) is np.ndarray else _shared(group, op, name, value)
    if not getattr(array.flags, "writeable", True):
        wrong, remedy = "is read-only", "pass a copy, `copy = numpy.array(it)`, and take the result from that"
    elif array.flags.c_contiguous:
        tell_of_write(value)
        return array
    elif in_order or type(array) is not np.ndarray:
        wrong = "is not C-contiguous"
        remedy = "pass a copy, `copy = it.copy()`, and put its result back, `it[...] = copy`"
    elif not _is_distinct(array):
        wrong, remedy = "has elements that share their memory", "pass a copy, and take the result from that"
    else:
        tell_of_write(value)
        return as_copy(array)
    raise ValueError(f"{where(group, op, name)} {wrong}, but is written to; {remedy}")


def _is_distinct(array: Array) -> bool:
    """Tell whether each element of an array has a place of its own, as far as strides show it."""
    reach = array.itemsize
    for step, length in sorted((abs(step), length) for step, length in zip(array.strides, array.shape, strict=True)):
        if length > 1 and step < reach:
            return False
        reach += (length - 1) * step
    return True


def input_array(group: ProcessGroup, op: str, name: str, value: Any) -> Array:
    """Return `value` as a C-contiguous array that is only read; one that is not contiguous is copied."""
    array = value if type(value) is np.ndarray else _shared(group, op, name, value)
    # ascontiguousarray would make a 0-d array 1-d, but a 0-d array is always contiguous.
    try:
        return array if array.flags.c_contiguous else as_copy(array)
    except BufferError as error:
        raise ValueError(f"{where(group, op, name)} {error}") from None


def by_memory(group: ProcessGroup, value: Any, is_filled: bool = True) -> Reordered | None:
    """Return an array as its memory, if that lies in another order than C's and collectives may work on it.

    Another rank's array may lie otherwise, so only where the ranks compare their calls. `is_filled`: the array gets the
    result.
    """
    if type(value) is np.ndarray and value.flags.c_contiguous:
        return None
    if type(value) is Reordered:
        return value
    array = value
    if type(value) is not np.ndarray:
        if not is_registered(value):
            return None
        try:
            array = as_array(value)
        except TypeError:  # which the check of the argument raises again, with its name
            return None
    found = reordered(array) if type(array) is np.ndarray and group.compares_calls() else None
    if found is not None and is_filled:
        tell_of_write(value)
    return found


def reducible_array(group: ProcessGroup, op: str, name: str, value: Any, *, is_result: bool = True) -> Array:
    """Return an array whose elements are reduced in place, if `is_result`, and which is this rank's alone."""
    from rankwise.basics.shared import shared_word

    array = (output_array if is_result else input_array)(group, op, name, value)
    if isinstance(array, np.ndarray) and shared_word([array]):
        raise ValueError(
            f"{where(group, op, name)} is memory that the ranks of this host have in common, where the result would "
            "be written over what others still read; reduce a copy, or an array with copies='rank'"
        )
    return array


def array_list(group: ProcessGroup, op: str, name: str, values: Any, writable: bool) -> list[Array]:
    """Return a list with one array for each rank of the group."""
    if not isinstance(values, Iterable) or hasattr(values, "dtype"):
        raise TypeError(f"{where(group, op, name)} must be a list of {group.size()} arrays, not {shown(values)}")
    listed = list(values)
    if len(listed) != group.size():
        raise ValueError(f"{where(group, op, name)} has {len(listed)} arrays, but the group has {group.size()} ranks")
    check = output_array if writable else input_array
    arrays = [check(group, op, f"{name}[{i}]", value) for i, value in enumerate(listed)]
    if writable:
        _copies_apart(group, op, name, listed, arrays)
    return arrays


def _copies_apart(group: ProcessGroup, op: str, name: str, values: list[Any], arrays: list[Array]) -> None:
    """Raise if an array that a copy is used for shares memory with another one of the list, as copies never do."""
    for i, (value, array) in enumerate(zip(values, arrays, strict=True)):
        if value is array or type(array) is not np.ndarray or (own := as_array(value)).flags.c_contiguous:
            continue
        others = [as_array(other) for k, other in enumerate(values) if k != i]
        if any(type(other) is np.ndarray and np.shares_memory(own, other) for other in others):
            raise ValueError(f"{where(group, op, name)} shares memory with another array of the call")


def apart(group: ProcessGroup, op: str, name: str, written: Sequence[Array], read: Sequence[Array] = ()) -> None:
    """Raise if an array that is written to shares memory with another one of the call; some are only read."""
    overlap = _some_touch if len(written) + len(read) <= _FEW else _some_spans_overlap
    if overlap(written, read):
        raise ValueError(f"{where(group, op, name)} shares memory with another array of the call")


def _some_touch(written: Sequence[Array], read: Sequence[Array]) -> bool:
    return any(touch(a, b) for i, a in enumerate(written) for b in [*written[i + 1 :], *read])


def _some_spans_overlap(written: Sequence[Array], read: Sequence[Array]) -> bool:
    ends = {True: 0, False: 0}  # how far those that begin before reach: read ones may lie in one another
    spans = [(*span(array), writes) for arrays, writes in ((written, True), (read, False)) for array in arrays]
    for begin, end, writes in sorted(spans):
        if begin == end:
            continue
        if begin < ends[True] or (writes and begin < ends[False]):
            return True
        ends[writes] = max(ends[writes], end)
    return False


def root_list(group: ProcessGroup, op: str, name: str, values: Any, root: int, writable: bool) -> list[Array] | None:
    """Return the list that the root must give, and None elsewhere, where giving one is a mistake."""
    if group.rank() == root:
        if values is None:
            raise ValueError(f"{where(group, op, name)} is missing: this rank is the root and must give it")
        return array_list(group, op, name, values, writable)
    if values is not None and (hasattr(values, "dtype") or len(values)):
        raise ValueError(f"{where(group, op, name)} must be None: the root is rank {group.ranks[root]}")
    return None


def same_kind(group: ProcessGroup, op: str, array: Array, name: str, others: Sequence[Array], others_name: str) -> None:
    """Raise unless all arrays have one dtype and lie on one kind of device."""
    for i, other in enumerate(others):
        if type(other) is not type(array) or other.dtype != array.dtype:
            raise ValueError(
                f"{where(group, op, f'{others_name}[{i}]')} is {_kind(other)}, but {name} is {_kind(array)}"
            )


def same_size(group: ProcessGroup, op: str, array: Array, name: str, other: Array, other_name: str) -> None:
    """Raise unless two arrays have the same number of elements."""
    if array.size != other.size:
        raise ValueError(
            f"{where(group, op, name)} has shape {tuple(array.shape)}, {array.size} elements, "
            f"but {other_name} has shape {tuple(other.shape)}, {other.size} elements"
        )


def equal_parts(group: ProcessGroup, op: str, name: str, array: Array, part: Array, part_name: str) -> list[Array]:
    """Cut an array into one part of `part`'s size for each rank; the parts share its memory."""
    size = group.size()
    if array.size != size * part.size:
        raise ValueError(
            f"{where(group, op, name)} has {array.size} elements, but must have {size} x {part.size}: "
            f"{part_name}'s for each of {size} ranks"
        )
    return list(array.reshape(size, part.size))


def split_parts(group: ProcessGroup, op: str, name: str, array: Array, sizes: Sequence[int] | None) -> list[Array]:
    """Cut an array along its first dimension into one part for each rank; the parts share its memory.

    `sizes` are the lengths of the parts, None for equal ones.
    """
    size, rows = group.size(), array.shape[0] if array.ndim else 1
    if sizes is None and array.ndim and rows % size == 0:
        return list(array.reshape(size, rows // size, *array.shape[1:]))
    sizes = [] if sizes is None else [index(size) for size in sizes]
    if not sizes:
        if rows % size:
            raise ValueError(f"{where(group, op, name)} has {rows} rows, which {size} ranks do not divide evenly")
        sizes = [rows // size] * size
    if len(sizes) != size or any(n < 0 for n in sizes) or sum(sizes) != rows:
        wrong = f"{name}_split_sizes={list(sizes)} are not {size} parts of that"
        raise ValueError(f"{where(group, op, name)} has {rows} rows, but {wrong}")
    if not array.ndim:
        array = array.reshape(1)
    return [array[a:b] for a, b in pairwise(accumulate(sizes, initial=0))]


def sparse_elements(group: ProcessGroup, op: str, name: str, value: Any, reduction: Any) -> tuple[Array, str]:
    """Return the elements of a sparse array that can be summed, and what of it must be the same on all ranks.

    One of scipy must have two dimensions, and a format that stores elements one by one.
    """
    named = where(group, op, name)
    if isinstance(reduction, ReduceOp) and reduction.name != "SUM":
        raise UnsupportedOperationError(
            f"{named} is a sparse array, which is reduced with SUM alone, not {shown(reduction)}"
        )
    if math.prod(value.shape) > np.iinfo(np.int64).max:
        raise ValueError(f"{named} is a sparse array of shape {value.shape}, which has more places than 64 bits count")
    if type(value) is Coordinates:
        return value.data, f" sparse in {value.sparse_dims} of {len(value.shape)} dimensions"
    if value.format not in ("csr", "csc", "coo") or value.ndim != 2:
        shape = f"of format {value.format!r} and {value.ndim} dimensions"
        raise ValueError(f"{named} is a sparse array {shape}; pass one from .tocsr(), .tocsc() or .tocoo(), of two")
    return value.data, " sparse"


def any_reduce_op(group: ProcessGroup, op: str, value: Any) -> ReduceOp:
    """Return `value` if it is a reduce op."""
    if not isinstance(value, ReduceOp):
        raise TypeError(f"{where(group, op, 'op')} must be a ReduceOp such as ReduceOp.SUM, not {shown(value)}")
    return value


def reduce_op(group: ProcessGroup, op: str, value: Any, array: Array) -> ReduceOp:
    """Return `value` if it is a reduce op that can be done on `array`, factor and all."""
    reduction = any_reduce_op(group, op, value)
    if reduction.factor is None and reduction.name != "PREMUL_SUM":
        return reduction
    factor = reduction.factor
    if not isinstance(factor, (int, float, complex, np.number)) or isinstance(factor, np.timedelta64):
        raise TypeError(f"{where(group, op, 'op')}: the factor must be a number, not {shown(factor)}")
    if isinstance(factor, (complex, np.complexfloating)) and array.dtype.kind != "c":
        raise TypeError(f"{where(group, op, 'op')}: a complex factor cannot scale an array of {array.dtype}")
    if reduction.defined_for(array.dtype):  # else the capability table refuses it, and says what can be done
        try:
            reduction.scale(array.dtype)
        except OverflowError as error:
            raise ValueError(f"{where(group, op, 'op')}: the factor is too large for {array.dtype}") from error
    return reduction


def tag(group: ProcessGroup, op: str, value: Any) -> int:
    """Return `value` if it is a tag that users may use."""
    if not is_integer(value):
        raise TypeError(f"{where(group, op, 'tag')} must be an integer, not {shown(value)}")
    if not 0 <= value <= MAX_TAG:
        raise ValueError(f"{where(group, op, 'tag')} is {value}, but must be from 0 to {MAX_TAG}")
    return int(value)


def _shared(group: ProcessGroup, op: str, name: str, value: Any) -> Array:
    if is_sparse(value):
        raise UnsupportedOperationError(
            f"{where(group, op, name)} is a sparse array, which only all_reduce takes, with SUM and on backends with "
            "the feature 'sparse'; pass its .data, or what .toarray() returns"
        )
    try:
        return as_array(value)
    except TypeError as error:
        raise TypeError(f"{where(group, op, name)}: {error}") from error


def _kind(array: Array) -> str:
    return f"{array.dtype} on {device_of(array)}"


def where(group: ProcessGroup, op: str, name: str) -> str:
    return f"{op} on rank {group.global_rank}: {name}"


# Inputs in memory that the same call writes to: they are copied first, so every backend gets them right
#
# Almost always nothing can overlap. Who owns the memory shows that, in some 60 ns an array.


def aside(array: Array, written: Iterable[Array], own: Array | None = None) -> Array:
    """Return an input, or a copy of it if it shares memory with what is written; it may lie in its `own` slot."""
    if _apart(array, written) or (own is not None and _same(array, own)):
        return array
    return as_copy(array) if any(touch(array, other) for other in written) else array


def parts_aside(parts: list[Array], output: Array) -> list[Array]:
    """Return a list of inputs, with copies of those that share memory with the output."""
    if _apart(output, parts):
        return parts
    return [as_copy(part) if touch(part, output) else part for part in parts]


def touch(a: Array, b: Array) -> bool:
    """Tell whether two C-contiguous arrays share memory."""
    if type(a) is np.ndarray and type(b) is np.ndarray:
        return np.may_share_memory(a, b)  # of C-contiguous arrays it knows exactly
    (begin, end), (other_begin, other_end) = span(a), span(b)
    return max(begin, other_begin) < min(end, other_end)


def span(array: Array) -> tuple[int, int]:
    """Return where an array begins and ends."""
    kind = kind_of(array)
    begin = array.ctypes.data if kind is None else kind.address(array)
    return begin, begin + array.nbytes


def _same(array: Array, slot: Array) -> bool:
    """Tell whether two C-contiguous arrays of one size are in the same place: their first elements are."""
    if type(array) is not np.ndarray:
        return span(array) == span(slot)
    return array is slot or touch(array.reshape(-1)[:1], slot.reshape(-1)[:1])  # a third of the time of two spans


def _apart(array: Array, others: Iterable[Array]) -> bool:
    """Tell whether an array lies in memory of another owner than all others, as far as that is seen at a glance."""
    if type(array) is not np.ndarray:
        return False
    owner = array.base
    if owner is None:
        owner = array
    elif type(owner) is not np.ndarray or owner.base is not None:
        return False
    for other in others:
        base = other.base
        if base is None:
            if other is owner:
                return False
        elif base is owner or type(base) is not np.ndarray or base.base is not None:
            return False
    return True
