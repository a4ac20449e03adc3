"""What is logged and checked in addition to the default."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from enum import IntEnum


class DebugLevel(IntEnum):
    """`RANKWISE_DEBUG`: off, info (what is chosen and why), detail (costly checks too)."""

    OFF = 0
    INFO = 1
    DETAIL = 2


_level: DebugLevel | None = None


def get_debug_level() -> DebugLevel:
    """Return the level in force: the one that was set, else that of the environment.

    Returns:
        The level.

    Raises:
        ValueError: The environment names no level.

    Examples:
        >>> dist.get_debug_level().name
        'OFF'
    """
    return _from_env() if _level is None else _level


def set_debug_level(level: DebugLevel) -> None:
    """Set the level for this process.

    Args:
        level: The level.

    Raises:
        ValueError: There is no such level.

    Examples:
        >>> dist.set_debug_level(dist.DebugLevel.DETAIL)
        >>> dist.get_debug_level().name
        'DETAIL'
    """
    global _level
    _level = DebugLevel(level)


def set_debug_level_from_env() -> None:
    """Go back to the level that `RANKWISE_DEBUG` or else `TORCH_DISTRIBUTED_DEBUG` gives.

    Raises:
        ValueError: It names no level.

    Examples:
        >>> dist.set_debug_level(dist.DebugLevel.DETAIL)
        >>> dist.set_debug_level_from_env()
        >>> dist.get_debug_level().name
        'OFF'
    """
    global _level
    _level = None
    _from_env()


def debug_log(text: str | Callable[[], str]) -> None:
    """Say on standard error what has been chosen and why, with the level `info` or above: a text, or what makes it."""
    if get_debug_level() >= DebugLevel.INFO and sys.stderr is not None:
        # In one piece, as other ranks and threads write there too.
        sys.stderr.write(f"rankwise: {text if isinstance(text, str) else text()}\n")
        sys.stderr.flush()


def _from_env() -> DebugLevel:
    name = "RANKWISE_DEBUG" if "RANKWISE_DEBUG" in os.environ else "TORCH_DISTRIBUTED_DEBUG"
    text = os.environ.get(name, "off").strip().upper() or "OFF"
    if text not in DebugLevel.__members__:
        raise ValueError(f"{name} is {text!r}, but must be one of off, info, detail")
    return DebugLevel[text]
