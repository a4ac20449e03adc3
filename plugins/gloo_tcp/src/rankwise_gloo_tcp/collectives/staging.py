"""CuPy arrays through the host: copied there piece by piece, sent or reduced, and copied back.

What was put on the caller's current stream before the call comes first, and when the operation has ended its result is
there for every stream.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from functools import cache, partial
from typing import Any

import numpy as np

from rankwise.backends import Algorithm, Array, Call, Deadline, PointToPoint
from rankwise.backends import derived_collectives as derived
from rankwise.errors import DistTimeoutError

__all__ = ["has_device", "staged"]

#: How much of an array is on the host at a time.
PIECE_NBYTES = 16 << 20

#: How often a stream that is still busy is looked at.
_SHORTEST_PAUSE_S, _LONGEST_PAUSE_S = 20e-6, 1e-3


def has_device() -> bool:
    """Tell whether CuPy is installed and sees a device."""
    try:
        import cupy

        return bool(cupy.cuda.runtime.getDeviceCount() > 0)
    except Exception:  # without a driver CuPy raises errors of its own
        return False


def staged(comm: PointToPoint, call: Call) -> Algorithm:
    """Return how to do a broadcast or an all_reduce of device arrays; the other ranks must stage too."""
    call.remark = " on cuda"
    array = call.array

    def broadcast(piece: _Piece, deadline: Deadline) -> None:
        if comm.rank == call.root:
            piece.fetch()
        derived.broadcast(comm, piece.host, call.root, deadline)
        if comm.rank != call.root:
            piece.store()

    def all_reduce(piece: _Piece, deadline: Deadline) -> None:
        assert call.reduce_op is not None
        piece.fetch()
        derived.all_reduce(comm, piece.host, call.reduce_op, deadline)
        piece.store()

    return partial(_in_pieces, array, _mark(array), {"broadcast": broadcast, "all_reduce": all_reduce}[call.op])


class _Piece:
    """Some elements of a device array, and as many on the host."""

    def __init__(self, raw: Array, host: Array, stream: Any) -> None:
        self.host = host
        self._raw, self._bytes, self._stream = raw, host.view(np.uint8), stream

    def fetch(self) -> None:
        """Copy to the host."""
        self._raw.get(stream=self._stream, out=self._bytes)
        self._stream.synchronize()

    def store(self) -> None:
        """Copy to the device."""
        self._raw.set(self._bytes, stream=self._stream)
        self._stream.synchronize()


def _in_pieces(
    array: Array,
    before: Any,
    move: Callable[[_Piece, Deadline], None],
    deadline: Deadline,
    counts: Sequence[int],
) -> None:
    """Move all pieces of an array, one after the other."""
    with array.device:
        _wait_for(before, deadline)
        for piece in _pieces(array, _stream(array.device.id)):
            move(piece, deadline)


@cache
def _stream(device: int) -> Any:
    """Return the stream of this process for copies from and to a device, which is the current one."""
    import cupy

    return cupy.cuda.Stream(non_blocking=True)


def _pieces(array: Array, stream: Any) -> Iterator[_Piece]:
    # As bytes, since CuPy copies no more dtypes than it computes with.
    raw = array.reshape(-1).view(np.uint8)
    step = max(1, PIECE_NBYTES // array.itemsize)
    host = np.empty(min(step, array.size), array.dtype)
    for begin in range(0, array.size, step):
        count = min(step, array.size - begin)
        yield _Piece(raw[begin * array.itemsize : (begin + count) * array.itemsize], host[:count], stream)


def _mark(array: Array) -> Any:
    """Mark what the caller's current stream has to do before."""
    import cupy

    with array.device:
        return cupy.cuda.get_current_stream().record()


def _wait_for(event: Any, deadline: Deadline) -> None:
    pause_s = _SHORTEST_PAUSE_S
    while not event.done:
        if deadline.expired():
            raise DistTimeoutError(f"the stream of the caller was not done within {deadline.timeout_s:g} s")
        time.sleep(pause_s)
        pause_s = min(2 * pause_s, _LONGEST_PAUSE_S)
