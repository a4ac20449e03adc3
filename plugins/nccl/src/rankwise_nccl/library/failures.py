"""The one place where errors of NCCL and CUDA become errors of rankwise."""

from __future__ import annotations

from rankwise.errors import DistBackendError, DistError, UnsupportedOperationError

__all__ = ["HINTS", "translate"]

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


def translate(error: BaseException, what: str) -> DistError:
    """Return the error of rankwise for one of NCCL, CUDA or CuPy that `what` has met; ours stay as they are."""
    if isinstance(error, DistError):
        return error
    text = f"{error}" or type(error).__name__
    hint = next((hint for word, hint in HINTS.items() if word in text), "")
    kind = UnsupportedOperationError if "StreamCapture" in text else DistBackendError
    return kind(f"{what}: {type(error).__name__}: {text}" + (f"; {hint}" if hint else ""))
