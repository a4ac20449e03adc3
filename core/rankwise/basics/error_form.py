"""Errors of one rank in a form that travels to the others."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from rankwise.errors import (
    DistError,
    DistNetworkError,
    DistTimeoutError,
    GroupAbortedError,
    PeerDiedError,
    ProtocolError,
)

__all__ = ["pack", "unpack"]

_MAX_TEXT = 1500
_KINDS: dict[str, Callable[[str], DistError]] = {
    "late": DistTimeoutError,
    "network": DistNetworkError,
    "aborted": GroupAbortedError,
}


def pack(error: DistError, rank: int) -> dict[str, Any]:
    """Return an error of global rank `rank` as JSON can hold it."""
    if isinstance(error, PeerDiedError):
        return {"rank": error.rank, "host": error.host[:200], "cause": error.cause[:500]}
    for kind, cls in _KINDS.items():
        if type(error) is cls:
            packed = {"kind": kind, "text": str(error)[:_MAX_TEXT]}
            return packed | ({"to": error.rank} if isinstance(error, DistNetworkError) else {})
    return {"kind": "aborted", "text": f"rank {rank} gave the group up: {type(error).__name__}: {error}"[:_MAX_TEXT]}


def unpack(content: Any) -> DistError:
    """Return the error that `pack` has packed.

    Raises:
        ProtocolError: It is none.
    """
    try:
        if "rank" in content:
            return PeerDiedError(int(content["rank"]), str(content["host"]), str(content["cause"]))
        error = _KINDS[content["kind"]](str(content["text"]))
        if isinstance(error, DistNetworkError) and content.get("to") is not None:
            error.rank = int(content["to"])
        return error
    except (ArithmeticError, LookupError, TypeError, ValueError) as error:
        raise ProtocolError("what should tell of another rank's error is malformed") from error
