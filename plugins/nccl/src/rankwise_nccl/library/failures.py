"""The one place where errors of NCCL and CUDA become errors of rankwise."""

from __future__ import annotations

import sys
from types import TracebackType

from rankwise.errors import DistBackendError, DistError, UnsupportedOperationError

#: What to do about each result of NCCL, by the word that CuPy's message has for it.
HINTS = {
    "UNHANDLED_CUDA_ERROR": "a CUDA call failed; run with NCCL_DEBUG=INFO to see which",
    "SYSTEM_ERROR": "a call of the operating system failed, often for lack of /dev/shm or of a network; "
    "run with NCCL_DEBUG=INFO to see which",
    "INTERNAL_ERROR": "an error within NCCL, or memory that was overwritten; run with NCCL_DEBUG=INFO",
    "INVALID_ARGUMENT": "run with NCCL_DEBUG=WARN to see which argument NCCL refuses",
    "INVALID_USAGE": "run with NCCL_DEBUG=WARN to see which rule of NCCL was broken",
    "NCCL_ERROR_TIMEOUT": "NCCL has waited for a peer for too long; run with NCCL_DEBUG=INFO",
    "REMOTE_ERROR": "a peer has ended, or the network to it has failed; look at the first rank that failed",
}


#: What errors of NCCL, CUDA and CuPy are called.
_MET = {"NcclError", "CUDARuntimeError", "CUDADriverError", "OutOfMemoryError"}

#: Whose code runs in a call; that of any other is a handler of a signal.
_CALLED = {"rankwise", "rankwise_nccl", "cupy", "cupy_backends", "numpy", *sys.stdlib_module_names}


def translate(error: BaseException, what: str) -> DistError:
    """Return the error of rankwise for one of NCCL, CUDA or CuPy that `what` has met; ours stay as they are.

    What a handler of a signal has raised is no error of anything here, and is raised again.
    """
    if _is_a_handlers(error):
        raise error
    if isinstance(error, DistError):
        return error
    text = f"{error}" or type(error).__name__
    hint = next((hint for word, hint in HINTS.items() if word in text), "")
    kind = UnsupportedOperationError if "StreamCapture" in text else DistBackendError
    return kind(f"{what}: {type(error).__name__}: {text}" + (f"; {hint}" if hint else ""))


def _is_a_handlers(error: BaseException) -> bool:
    known = isinstance(error, DistError) or type(error).__name__ in _MET
    return not known and _raised_in(error.__traceback__) not in _CALLED


def _raised_in(trace: TracebackType | None) -> str:
    """Return the package whose code has raised."""
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    return "rankwise" if trace is None else str(trace.tb_frame.f_globals.get("__name__")).partition(".")[0]
