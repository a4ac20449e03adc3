"""Copies and cuts of arrays that several strategies have in common."""

from __future__ import annotations

from rankwise.backends import Array


def assign(target: Array, source: Array) -> None:
    """Copy one array into another of the same size, unless they are the same."""
    if target is not source:
        target[...] = source.reshape(target.shape)


def pieces(flat: Array, nbytes: int) -> list[Array]:
    """Cut a flat array into pieces of so many bytes at the most, and of at least one element."""
    count = max(1, nbytes // flat.itemsize)
    return [flat[begin : begin + count] for begin in range(0, flat.size, count)]


def cut(array: Array, size: int) -> list[Array]:
    """Cut a flat array into `size` shares that differ by at most one element."""
    return [array[array.size * i // size : array.size * (i + 1) // size] for i in range(size)]
