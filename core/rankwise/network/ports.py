"""Which port a process listens at: any that is free, or one of a range that the user has set for a firewall."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Iterable
from typing import TypeVar

from rankwise.errors import DistNetworkError

__all__ = ["at_free_port"]

VARIABLE = "RANKWISE_PORTS"
_LAST = (1 << 16) - 1

_T = TypeVar("_T")


def at_free_port(open_at: Callable[[int], _T]) -> _T:
    """Return what `open_at` does with a free port: 0, or with `RANKWISE_PORTS` the first of them not in use.

    Args:
        open_at: Listens at the port that it is given, and lets addresses be used again unless that is 0.

    Raises:
        ValueError: The variable names no range of ports.
        DistNetworkError: All of the range are in use.
        OSError: `open_at` cannot listen for another reason.
    """
    text = os.environ.get(VARIABLE)
    if not text:
        return open_at(0)
    for port in _range(text):
        try:
            return open_at(port)
        except OSError as error:
            if error.errno != errno.EADDRINUSE:
                raise
    raise DistNetworkError(f"{VARIABLE}={text}: all of these ports are in use; give a larger range")


def _range(text: str) -> Iterable[int]:
    first, dash, last = (part.strip() for part in text.partition("-"))
    if not (first.isascii() and first.isdigit() and (last.isascii() and last.isdigit() if dash else True)):
        raise ValueError(f"{VARIABLE}={text}: expected a range of ports, such as 29500-29600")
    ports = range(int(first), int(last or first) + 1)
    if not ports or ports[0] < 1 or ports[-1] > _LAST:
        raise ValueError(f"{VARIABLE}={text}: expected a range of ports from 1 to {_LAST}, the lower one first")
    return ports
