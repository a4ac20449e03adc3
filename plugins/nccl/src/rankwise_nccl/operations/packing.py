"""Parts that lie one after the other in memory, as NCCL wants them, or are made to by a copy on the device."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rankwise.backends import Array
from rankwise_nccl.library.api import Api
from rankwise_nccl.queues.device_stream import DeviceStream


def alike(sizes: Sequence[int]) -> bool:
    """Tell whether all parts have one size; all ranks come to the same answer."""
    return sizes.count(sizes[0]) == len(sizes)


class Packed:
    """One piece of memory for several parts of one size: their own where they are neighbours, else scratch.

    Args:
        api: CuPy.
        on: The device on which they lie, with the stream on which they are used.
        parts: The parts.
    """

    def __init__(self, api: Api, on: DeviceStream, parts: Sequence[Array]) -> None:
        self._api, self._on = api, on
        self._addresses = [part.data.ptr for part in parts]
        self._nbytes = parts[0].nbytes
        begin = self._addresses[0]
        wanted = [begin + i * self._nbytes for i in range(len(parts))]
        #: Whether the parts are neighbours already, and need no copying.
        self.in_place = self._addresses == wanted
        self._scratch: Array | None = None

    def address(self) -> int:
        """Return where the parts begin; scratch is taken when this is first asked for, and belongs to the stream."""
        if self.in_place:
            return int(self._addresses[0])
        if self._scratch is None:
            with self._on.on_device(), self._on.stream:
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
