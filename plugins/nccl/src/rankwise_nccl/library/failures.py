"""The one place where errors of NCCL and CUDA become errors of rankwise."""

from __future__ import annotations

import json

from rankwise.errors import (
    DistBackendError,
    DistError,
    DistStoreError,
    DistTimeoutError,
    GroupAbortedError,
    PeerDiedError,
    UnsupportedOperationError,
)

__all__ = ["HINTS", "from_notice", "to_notice", "translate"]

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

_CLASSES: dict[str, type[DistError]] = {
    kind.__name__: kind
    for kind in (DistTimeoutError, DistBackendError, DistStoreError, GroupAbortedError, PeerDiedError)
}


def translate(error: BaseException, what: str) -> DistError:
    """Return the error of rankwise for one of NCCL, CUDA or CuPy that `what` has met; ours stay as they are."""
    if isinstance(error, DistError):
        return error
    text = f"{error}" or type(error).__name__
    hint = next((hint for word, hint in HINTS.items() if word in text), "")
    kind = UnsupportedOperationError if "StreamCapture" in text else DistBackendError
    return kind(f"{what}: {type(error).__name__}: {text}" + (f"; {hint}" if hint else ""))


def to_notice(error: DistError) -> str:
    """Put an error into words that the peers make the same error of."""
    kind = type(error).__name__
    return json.dumps({"kind": kind, "args": error.args if kind in _CLASSES else [str(error)]})


def from_notice(notice: str | bytes) -> DistError:
    """Make the error of a notice from `to_notice`; a kind that does not travel becomes `GroupAbortedError`."""
    told = json.loads(notice)
    return _CLASSES.get(told["kind"], GroupAbortedError)(*told["args"])
