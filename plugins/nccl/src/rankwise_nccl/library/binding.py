"""NCCL by its own functions, in communicators that do not block.

CuPy's binding makes blocking communicators alone: its config has no field for the other kind, and its class takes no
handle that it has not made. NVIDIA's `nccl4py` has both, and requires `cuda-core`, `cuda-bindings` and a compiler of
kernels for the two dozen functions that are used here. So these are called by `ctypes`, in the library that CuPy has
loaded. The names and the order of parameters are those of CuPy.
"""

from __future__ import annotations

import ctypes
from functools import cache
from typing import Any

_SONAME = "libnccl.so.2"

#: ncclInProgress: NCCL goes on by itself, and the communicator must not be used meanwhile but to ask how it is, or to
#: abort it.
BUSY = 7

#: What CuPy calls each ncclResult_t, and those that it does not know.
NAMES = {
    1: "NCCL_ERROR_UNHANDLED_CUDA_ERROR",
    2: "NCCL_ERROR_SYSTEM_ERROR",
    3: "NCCL_ERROR_INTERNAL_ERROR",
    4: "NCCL_ERROR_INVALID_ARGUMENT",
    5: "NCCL_ERROR_INVALID_USAGE",
    6: "NCCL_ERROR_REMOTE_ERROR",
    8: "NCCL_ERROR_TIMEOUT",
}

_P, _I, _N = ctypes.c_void_p, ctypes.c_int, ctypes.c_size_t


class _UniqueId(ctypes.Structure):
    _fields_ = [("internal", ctypes.c_char * 128)]


class _Config(ctypes.Structure):
    """The part of ncclConfig_t that NCCL 2.18 has; a later one takes what is not there as not given."""

    _fields_ = [
        *(("size", ctypes.c_size_t), ("magic", ctypes.c_uint), ("version", ctypes.c_uint), ("blocking", _I)),
        *(("cgaClusterSize", _I), ("minCTAs", _I), ("maxCTAs", _I), ("netName", ctypes.c_char_p), ("splitShare", _I)),
    ]


_MAGIC, _CONFIG_VERSION, _UNDEFINED = 0xCAFEBEEF, 21800, -(2**31)

#: Arguments of each function; all return an ncclResult_t, but those that return a text.
_FUNCTIONS: dict[str, list[Any]] = {
    "ncclAllReduce": [_P, _P, _N, _I, _I, _P, _P],
    "ncclReduce": [_P, _P, _N, _I, _I, _I, _P, _P],
    "ncclBroadcast": [_P, _P, _N, _I, _I, _P, _P],
    "ncclAllGather": [_P, _P, _N, _I, _P, _P],
    "ncclReduceScatter": [_P, _P, _N, _I, _I, _P, _P],
    "ncclSend": [_P, _N, _I, _I, _P, _P],
    "ncclRecv": [_P, _N, _I, _I, _P, _P],
    "ncclGroupStart": [],
    "ncclGroupEnd": [],
    "ncclGetVersion": [_P],
    "ncclGetUniqueId": [_P],
    "ncclCommInitRankConfig": [_P, _I, _UniqueId, _I, _P],
    "ncclCommFinalize": [_P],
    "ncclCommDestroy": [_P],
    "ncclCommAbort": [_P],
    "ncclCommGetAsyncError": [_P, _P],
    "ncclCommRegister": [_P, _P, _N, _P],
    "ncclCommDeregister": [_P, _P],
    "ncclRedOpCreatePreMulSum": [_P, _P, _I, _I, _P],
    "ncclRedOpDestroy": [_I, _P],
    "ncclGetErrorString": [_I],
    "ncclGetLastError": [_P],
}
_TEXTS = ("ncclGetErrorString", "ncclGetLastError")


@cache
def load() -> Any:
    """Return the library that the process has, as of two with one soname only the first is loaded; or None."""
    try:
        library = ctypes.CDLL(_SONAME)
        for name, arguments in _FUNCTIONS.items():
            function = getattr(library, name)
            function.argtypes, function.restype = arguments, ctypes.c_char_p if name in _TEXTS else _I
    except (OSError, AttributeError):
        return None
    return library


class NcclError(RuntimeError):
    """A result of NCCL that is no success.

    Args:
        status: The ncclResult_t.
        text: What NCCL says of it.
    """

    def __init__(self, status: int, text: str = "") -> None:
        super().__init__(status, text)  # what a copy is made of
        self.status, self.text = status, text

    def __str__(self) -> str:
        return f"{NAMES.get(self.status, f'NCCL_ERROR_{self.status}')}: {self.text}".removesuffix(": ")


class Nccl:
    """The functions that belong to no communicator.

    Args:
        library: What `load` has found.
    """

    NcclError = NcclError

    def __init__(self, library: Any) -> None:
        self.library = library
        # These are on the path of many operations.
        self._start, self._end = library.ncclGroupStart, library.ncclGroupEnd

    def check(self, status: int) -> None:
        """Raise the error that a result stands for; a communicator that is busy is none."""
        if status and status != BUSY:
            raise NcclError(status, self._said(status))

    def groupStart(self) -> None:
        """Collect what this thread calls from now on."""
        self.check(self._start())

    def groupEnd(self) -> None:
        """Hand over what was collected."""
        self.check(self._end())

    def get_version(self) -> int:
        """Return the version as NCCL codes it."""
        version = ctypes.c_int()
        self.check(self.library.ncclGetVersion(ctypes.byref(version)))
        return version.value

    def get_unique_id(self) -> bytes:
        """Return what the members of a new communicator find each other by."""
        made = _UniqueId()
        self.check(self.library.ncclGetUniqueId(ctypes.byref(made)))
        return bytes(made)

    def NcclCommunicator(self, ndev: int, commId: bytes, rank: int) -> NcclCommunicator:
        """Begin to make a communicator, which is busy until all members have come."""
        return NcclCommunicator(self, ndev, commId, rank)

    def _said(self, status: int) -> str:
        """Return the text of a result, and of what NCCL has last complained about in this process."""
        texts = [self.library.ncclGetErrorString(status), self.library.ncclGetLastError(None)]
        return "; ".join(text.decode(errors="replace").strip() for text in texts if text and text.strip())


class NcclCommunicator:
    """A communicator whose calls do not block.

    After each `check_async_error` is asked until it says that NCCL is no longer busy. With NCCL_COMM_BLOCKING=1 in the
    environment NCCL blocks all the same.
    """

    __slots__ = ("_check", "_library", "_made", "comm")

    def __init__(self, nccl: Nccl, ndev: int, commId: bytes, rank: int) -> None:
        self._check, self._library = nccl.check, nccl.library
        config = _Config(
            *(ctypes.sizeof(_Config), _MAGIC, _CONFIG_VERSION, 0),
            *(_UNDEFINED, _UNDEFINED, _UNDEFINED, None, _UNDEFINED),
        )
        self._made = ctypes.c_void_p()  # NCCL writes there until it is done
        unique = _UniqueId.from_buffer_copy(commId)
        status = self._library.ncclCommInitRankConfig(
            ctypes.byref(self._made), ndev, unique, rank, ctypes.byref(config)
        )
        self._check(status)
        #: The address of NCCL's own.
        self.comm: int = self._made.value or 0

    def check_async_error(self) -> bool:
        """Tell whether NCCL is still busy with what it was asked last; raise what it has met meanwhile."""
        state = ctypes.c_int()
        self._check(self._library.ncclCommGetAsyncError(self.comm, ctypes.byref(state)))
        if state.value == BUSY:
            return True
        if state.value:
            self._check(state.value)
        return False

    def register(self, buffer: int, nbytes: int) -> int:
        """Let NCCL use memory as it is; return what `deregister` takes."""
        handle = ctypes.c_void_p()
        self._check(self._library.ncclCommRegister(self.comm, buffer, nbytes, ctypes.byref(handle)))
        return handle.value or 0

    def deregister(self, handle: int) -> None:
        """Forget what was registered."""
        self._check(self._library.ncclCommDeregister(self.comm, handle))

    def finalize(self) -> None:
        """Begin to end: it is busy until all that was issued is over; then `destroy` blocks for nobody."""
        self._check(self._library.ncclCommFinalize(self.comm))

    def destroy(self) -> None:
        """Give back what has been finalized."""
        self._check(self._library.ncclCommDestroy(self.comm))

    def abort(self) -> None:
        """End all that is going on, and give it back."""
        self._check(self._library.ncclCommAbort(self.comm))

    def allReduce(self, sendbuf: int, recvbuf: int, count: int, datatype: int, op: int, stream: int) -> None:
        """See ncclAllReduce, as those below their own."""
        self._check(self._library.ncclAllReduce(sendbuf, recvbuf, count, datatype, op, self.comm, stream))

    def reduce(self, sendbuf: int, recvbuf: int, count: int, datatype: int, op: int, root: int, stream: int) -> None:
        """See ncclReduce."""
        self._check(self._library.ncclReduce(sendbuf, recvbuf, count, datatype, op, root, self.comm, stream))

    def broadcast(self, sendbuff: int, recvbuff: int, count: int, datatype: int, root: int, stream: int) -> None:
        """See ncclBroadcast."""
        self._check(self._library.ncclBroadcast(sendbuff, recvbuff, count, datatype, root, self.comm, stream))

    def allGather(self, sendbuf: int, recvbuf: int, count: int, datatype: int, stream: int) -> None:
        """See ncclAllGather."""
        self._check(self._library.ncclAllGather(sendbuf, recvbuf, count, datatype, self.comm, stream))

    def reduceScatter(self, sendbuf: int, recvbuf: int, recvcount: int, datatype: int, op: int, stream: int) -> None:
        """See ncclReduceScatter."""
        self._check(self._library.ncclReduceScatter(sendbuf, recvbuf, recvcount, datatype, op, self.comm, stream))

    def send(self, sendbuf: int, count: int, datatype: int, peer: int, stream: int) -> None:
        """See ncclSend."""
        self._check(self._library.ncclSend(sendbuf, count, datatype, peer, self.comm, stream))

    def recv(self, recvbuf: int, count: int, datatype: int, peer: int, stream: int) -> None:
        """See ncclRecv."""
        self._check(self._library.ncclRecv(recvbuf, count, datatype, peer, self.comm, stream))
