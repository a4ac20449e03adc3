"""`SharedArray`: an array of NumPy that knows where in shared memory it lies.

It is a subclass as `numpy.memmap` is, since an array has no room for what `peer` needs. What is computed from it is a
plain array, as it lies elsewhere.
"""

from __future__ import annotations

import mmap
from typing import Any

import numpy as np

from rankwise.backends import note_shared


class Segment:
    """The memory of one shared array on one host: a block for each of its ranks, or one for all.

    Attributes:
        places: Which block is whose, by global rank.
    """

    def __init__(self, memory: mmap.mmap, stride: int, places: dict[int, int]) -> None:
        self.places, self._stride, self._memory = places, stride, memory
        self._bytes: np.ndarray[Any, Any] = np.frombuffer(memory, np.uint8)
        self._address = address_of(self._bytes)

    def note(self, number: int) -> None:
        """Tell backends that the ranks of the host have this memory in common, which a number stands for."""
        note_shared(self._bytes, number, SharedArray, len(self._bytes) // self._stride)

    def array(self, rank: int, shape: tuple[int, ...], dtype: Any) -> SharedArray:
        """Return the array of a rank."""
        return self._made(self._bytes, self.places[rank] * self._stride, (shape, dtype))

    def holds(self, array: np.ndarray[Any, Any]) -> bool:
        """Tell whether an array lies here."""
        return 0 <= address_of(array) - self._address < len(self._bytes)

    def beside(self, array: np.ndarray[Any, Any], rank: int, writeable: bool) -> SharedArray:
        """Return what lies in a rank's block where an array lies in its own."""
        at = (address_of(array) - self._address) % self._stride + self.places[rank] * self._stride
        whole = self._bytes if writeable else np.frombuffer(memoryview(self._memory).toreadonly(), np.uint8)
        return self._made(whole, at, (array.shape, array.dtype), array.strides)

    def _made(self, whole: Any, at: int, form: tuple[Any, Any], strides: Any = None) -> SharedArray:
        shape, dtype = form
        array: SharedArray = np.ndarray.__new__(SharedArray, shape, dtype, whole, at, strides)
        array._segment = self
        return array


class SharedArray(np.ndarray[Any, Any]):
    """An array in memory that ranks share, or a view of one; see `shared_empty`."""

    _segment: Segment | None

    def __array_finalize__(self, obj: Any) -> None:
        segment = getattr(obj, "_segment", None)
        self._segment = segment if segment is not None and segment.holds(self) else None

    def __array_ufunc__(self, ufunc: np.ufunc, method: str, *inputs: Any, out: Any = (), **terms: Any) -> Any:
        """Compute with plain arrays: what comes out lies in memory of its own, unless there is an `out`."""
        if out:
            terms["out"] = tuple(map(_plain, out))
        result = getattr(ufunc, method)(*map(_plain, inputs), **terms)
        return result if not out else out[0] if len(out) == 1 else out

    def __reduce_ex__(self, protocol: Any) -> Any:
        """Refuse: a pickle has values and no memory.

        Raises:
            TypeError: Always, but for what is only a copy of a shared array.
        """
        if self._segment is None:
            return self.view(np.ndarray).__reduce_ex__(protocol)
        raise TypeError(
            "a shared array cannot be pickled, as its memory does not travel; pickle numpy.array(it), a copy"
        )

    @property
    def peers(self) -> list[int]:
        """The global ranks whose arrays can be seen here: those of this host, this rank among them."""
        return [] if self._segment is None else [*self._segment.places]

    def peer(self, rank: int, *, writeable: bool = True) -> SharedArray:
        """Return a view of another rank's array; of a part of an array, of the same part.

        Args:
            rank: Whose, as a global rank; one of `peers`.
            writeable: Whether it can be written to through this view.

        Returns:
            The view, which stays valid when the rank ends.

        Raises:
            ValueError: The rank is on another host or not in the group, or this array is only a copy of a shared one.

        Examples:
            >>> mine = dist.shared_zeros(2, int)
            >>> mine[:] = rank
            >>> dist.fence()
            >>> mine.peer(1 - rank)
            SharedArray([1, 1])
            >>> dist.fence()
        """
        if self._segment is None:
            raise ValueError("peer: this array is a copy, in memory of its own; ask the shared array, or a view of it")
        if rank not in self._segment.places:
            raise ValueError(f"peer: rank {rank} does not share memory with this one; {self.peers} do")
        return self._segment.beside(self, rank, writeable)


def address_of(array: np.ndarray[Any, Any]) -> int:
    """Return where an array's first element is, or would be."""
    address: int = array.__array_interface__["data"][0]
    return address


def _plain(value: Any) -> Any:
    return value.view(np.ndarray) if isinstance(value, SharedArray) else value
