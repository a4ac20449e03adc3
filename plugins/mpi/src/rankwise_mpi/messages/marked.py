"""`MarkedMessages`: messages that tell their dtype, as MPI's do not.

A message travels as one array of bytes: a head with the mark of its dtype, its length and the dtype's name, then the
data. The receiver takes it into memory of its own and copies what fits, so that a message of another dtype changes
nothing. With RANKWISE_DEBUG=detail this is how all members of a group send; it copies twice.
"""

from __future__ import annotations

import struct
from dataclasses import replace

import numpy as np

from rankwise.backends import MAX_TAG, RAW, Array, Status, Work, dtype_mark, dtype_text, wrong_dtype
from rankwise_mpi.library.layout import new_bytes
from rankwise_mpi.messages.messages import MpiMessages

_HEAD = struct.Struct("=QQ200s")


class MarkedMessages:
    """The messages of one group whose members compare dtypes.

    Args:
        plain: The group's messages as MPI has them.
    """

    def __init__(self, plain: MpiMessages) -> None:
        self._plain = plain

    def isend(self, array: Array, dst: int, tag: int) -> Work:
        """Begin to send; the core's own messages go as they are."""
        if tag > MAX_TAG:
            return self._plain.isend(array, dst, tag)
        packed = new_bytes(array, _HEAD.size + array.nbytes)
        head = _HEAD.pack(dtype_mark(array.dtype), array.nbytes, dtype_text(array.dtype).encode())
        packed[: _HEAD.size] = _on_device_of(packed, head)
        packed[_HEAD.size :] = _flat(array)
        return self._plain.isend(packed, dst, tag)

    def irecv(self, array: Array, src: int | None, tag: int) -> Work:
        """Begin to receive; the core's own messages come as they are."""
        if tag > MAX_TAG:
            return self._plain.irecv(array, src, tag)
        packed = new_bytes(array, _HEAD.size + array.nbytes)

        def unpack(sender: int) -> None:
            mark, nbytes, name = _HEAD.unpack(bytes(packed[: _HEAD.size].tolist()))
            wanted = dtype_mark(array.dtype)
            if mark != wanted and wanted != RAW:
                global_rank = self._plain.context.global_ranks[sender]
                raise wrong_dtype(name.rstrip(b"\0").decode(), global_rank, tag, dtype_text(array.dtype))
            _flat(array)[:nbytes] = packed[_HEAD.size : _HEAD.size + nbytes]

        return self._plain.irecv(packed, src, tag, unpack, _HEAD.size)

    def iprobe(self, src: int | None, tag: int) -> Status | None:
        """Return what the message is that a receive would meet now, without its head, which tells the dtype."""
        found = self._plain.iprobe(src, tag)
        return None if found is None else replace(found, nbytes=found.nbytes - _HEAD.size)


def _flat(array: Array) -> Array:
    return array.reshape(-1).view(np.uint8) if array.nbytes else new_bytes(array, 0)


def _on_device_of(array: Array, head: bytes) -> Array:
    data = np.frombuffer(head, np.uint8)
    if type(array) is np.ndarray:
        return data
    import cupy

    return cupy.asarray(data)
