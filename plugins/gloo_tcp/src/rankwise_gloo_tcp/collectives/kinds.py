"""Kinds of calls as C tells them apart: by the name, this rank's array, the reduce op or root, and some numbers.

The numbers are the shape of the array, of a `reduce` with the root before it; or the sizes of the parts, of an
`all_to_all` first of those that go, of a `gather` or `scatter` at the root behind that of the array.
"""

from __future__ import annotations

from typing import Any

from rankwise.backends import Array, Fingerprint, dtype_text


def kind_of(name: str, array: Array | None, option: Any, numbers: tuple[int, ...], rank: int) -> tuple[Any, ...]:
    """Return `Call.kind` of a call of this rank."""
    if array is None:
        return (name,)
    if name == "all_reduce":
        return name, option.name, array.dtype, numbers
    if name == "reduce":
        return name, (option.name, numbers[0]), array.dtype, numbers[1:]
    if name == "broadcast" or (name in ("gather", "scatter") and option != rank):
        return name, option, array.dtype, numbers
    if name == "gather":
        return name, option, array.dtype, numbers[0], (), numbers[1:]
    if name == "scatter":
        return name, option, array.dtype, numbers[0], numbers[1:], ()
    if name == "reduce_scatter":
        return name, option.name, array.dtype, numbers[rank], numbers, ()
    if name == "all_gather":
        return name, -1, array.dtype, numbers[rank], (), numbers
    size = len(numbers) // 2
    return name, -1, array.dtype, numbers[rank], numbers[:size], numbers[size:]


def kind_of_described(name: str, array: Array, option: Any, numbers: tuple[int, ...], rank: int) -> tuple[Any, ...]:
    """Return the same of a call that is described, whose option is the reduce op or None.

    Its numbers are root, how many arrays go and how many come, and their sizes behind that of the array; where none go
    or come, the array's shape.
    """
    root, gives, takes, *rest = numbers
    reduces = None if option is None else option.name
    if not (gives or takes):
        both = reduces is not None and root >= 0
        return name, (reduces, root) if both else root if reduces is None else reduces, array.dtype, tuple(rest)
    sizes = tuple(rest[1 : 1 + gives]), tuple(rest[1 + gives :])
    return name, root if reduces is None else reduces, array.dtype, rest[0], *sizes


def fingerprint_of(name: str, array: Array | None, option: Any, numbers: tuple[int, ...], rank: int) -> Fingerprint:
    """Return `Call.fingerprint` of a call of this rank on an array in C order."""
    if array is None:
        return Fingerprint(name)
    dtype = dtype_text(array.dtype)
    if name == "all_reduce":
        return Fingerprint(name, option.name, -1, dtype, array.size, shape=numbers)
    if name == "reduce":
        return Fingerprint(name, option.name, numbers[0], dtype, array.size, shape=numbers[1:])
    if name == "broadcast":
        return Fingerprint(name, "", option, dtype, array.size, shape=numbers)
    if name == "reduce_scatter":
        return Fingerprint(name, option.name, -1, dtype, numbers[rank], numbers)
    if name == "all_gather":
        return Fingerprint(name, "", -1, dtype, numbers[rank], numbers)
    if name == "all_to_all":
        size = len(numbers) // 2
        sent, received = tuple(enumerate(numbers[:size])), tuple(enumerate(numbers[size:]))
        return Fingerprint(name, "", -1, dtype, numbers[rank], (), sent, received)
    alone, parts = ((option, array.size),), tuple(enumerate(numbers[1:])) if option == rank else ()
    sent, received = (alone, parts) if name == "gather" else (parts, alone)
    return Fingerprint(name, "", option, dtype, array.size, (), sent, received)
