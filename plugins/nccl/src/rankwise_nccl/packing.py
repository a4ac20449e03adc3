"""Parts that lie one after the other in memory, as NCCL wants them, or are made to by a copy on the device."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rankwise.arrays import Array
from rankwise_nccl.lane import Api, Lane

__all__ = ["Packed", "alike"]


def alike(parts: Sequence[Array]) -> bool:
    """Tell whether all parts have one size; all ranks come to the same answer."""
    return all(part.nbytes == parts[0].nbytes for part in parts)


class Packed:
    """One piece of memory for several parts of one size: their own where they are neighbours, else scratch.

    Args:
        api: CuPy.
        lane: The lane on whose stream they are used.
        parts: The parts.
    """

    def __init__(self, api: Api, lane: Lane, parts: Sequence[Array]) -> None:
        self._api, self._lane = api, lane
        self._addresses = [part.data.ptr for part in parts]
        self._nbytes = parts[0].nbytes
        begin = self._addresses[0]
        self.in_place = self._addresses == [begin + i * self._nbytes for i in range(len(parts))]
        self._scratch: Array | None = None

    def address(self) -> int:
        """Return where the parts begin; scratch is taken when this is first asked for, and belongs to the stream."""
        if self.in_place:
            return int(self._addresses[0])
        if self._scratch is None:
            with self._lane.on_device(), self._lane.stream:
                self._scratch = self._api.cupy.empty(self._nbytes * len(self._addresses), "uint8")
        return int(self._scratch.data.ptr)

    def pack(self, stream: int) -> None:
        """Copy the parts into the scratch."""
        for inside, part in self._pairs():
            self._copy(inside, part, stream)

    def unpack(self, stream: int) -> None:
        """Copy the scratch into the parts."""
        for inside, part in self._pairs():
            self._copy(part, inside, stream)

    def _pairs(self) -> list[tuple[int, int]]:
        if self.in_place:
            return []
        begin = self.address()
        return [(begin + i * self._nbytes, address) for i, address in enumerate(self._addresses)]

    def _copy(self, target: int, source: int, stream: int) -> None:
        runtime: Any = self._api.cuda.runtime
        runtime.memcpyAsync(target, source, self._nbytes, runtime.memcpyDeviceToDevice, stream)
