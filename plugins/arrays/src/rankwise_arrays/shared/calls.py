"""`shared_empty`, `shared_zeros` and `shared_from`: arrays in memory that the ranks of a host share."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from numpy.typing import DTypeLike

import rankwise as dist
from rankwise_arrays.fences import fence
from rankwise_arrays.kinds import Group, taken
from rankwise_arrays.shared.array import SharedArray
from rankwise_arrays.shared.forms import Form, form_of, form_of_array
from rankwise_arrays.shared.making import Source, make

__all__ = ["SharedArray", "fence", "shared_empty", "shared_from", "shared_zeros"]

Shape = int | Sequence[int]


def shared_empty(shape: Shape, dtype: DTypeLike = float, copies: str = "rank", group: Group = None) -> SharedArray:
    """Make an array in memory that the ranks of a host share; all ranks of a group make the call.

    The call allocates all memory, which is freed with the last view of it on any rank. Nothing is left when processes
    die.

    Args:
        shape: Its shape.
        dtype: Its dtype; one of objects cannot be shared.
        copies: "rank" for an array of each rank's own, of which the others of its host have views by `peer`; "host" for
            one array that all ranks of a host have.
        group: The group; None is the default group.

    Returns:
        The array, in the order of rows.

    Raises:
        CollectiveMismatchError: The ranks ask for different arrays; the same on all ranks.
        MemoryError: A host has not enough memory; the error says how much is free. The same on all ranks.
        TypeError, ValueError: There is no array of that shape and dtype, which all ranks learn, or this rank is not in
            the group.
        UnsupportedOperationError: The system has no such memory, or the ranks cannot reach each other's.

    Examples:
        >>> mine = dist.shared_empty((2, 3), "float32")
        >>> mine[:] = rank
        >>> dist.fence()
        >>> mine.peer(1)[0].tolist()
        [1.0, 1.0, 1.0]
        >>> dist.fence()
    """
    return make("shared_empty", lambda: form_of(shape, dtype), copies, group)


def shared_zeros(shape: Shape, dtype: DTypeLike = float, copies: str = "rank", group: Group = None) -> SharedArray:
    """Make an array of zeros in memory that the ranks of a host share; otherwise as `shared_empty`.

    Args:
        shape: Its shape.
        dtype: Its dtype.
        copies: "rank" or "host".
        group: The group; None is the default group.

    Returns:
        The array.

    Raises:
        CollectiveMismatchError: As `shared_empty`.
        MemoryError: Likewise.
        TypeError, ValueError: Likewise.
        UnsupportedOperationError: Likewise.

    Examples:
        >>> counts = dist.shared_zeros(4, int, copies="host")
        >>> counts[rank] = 10 + rank
        >>> dist.fence()
        >>> counts.tolist()
        [10, 11, 0, 0]
        >>> dist.fence()
    """
    return make("shared_zeros", lambda: form_of(shape, dtype), copies, group)


def shared_from(
    array: Any, src: int = 0, copies: str = "host", group: Group = None, *, writeable: bool = True
) -> SharedArray:
    """Put one rank's array into memory that the ranks of a host share; it is sent to each host once.

    Args:
        array: The array on rank `src`; what the others give does not matter.
        src: The source, as a global rank.
        copies: "host" for one array that all ranks of a host have, or "rank".
        group: The group; None is the default group.
        writeable: Whether the array can be written to. If not, its memory is sealed: no rank can change it.

    Returns:
        The array, in the order of rows.

    Raises:
        CollectiveMismatchError: The ranks name different sources or copies; the same on all ranks.
        MemoryError: As `shared_empty`.
        TypeError, ValueError: The array cannot be shared, which all ranks learn, or this rank is not in the group.
        UnsupportedOperationError: As `shared_empty`.

    Examples:
        >>> table = dist.shared_from(np.arange(4) if rank == 0 else None, src=0)
        >>> table.tolist()
        [0, 1, 2, 3]
    """
    held: list[Any] = []  # the array, on the source

    def form() -> Form | None:
        if dist.get_rank() != src:
            return None
        held.append(taken("shared_from", array).array)
        return form_of_array(held[0])

    return make("shared_from", form, copies, group, Source(src, held, writeable))
