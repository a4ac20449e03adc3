"""What compiled messages read and write as well as the engine: the bases of those classes that have it.

They are compiled where `rankwise-native` is installed, with the same members, so that C reads memory and asks no
object.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from rankwise.backends import compiled_parts

__all__ = ["EngineState", "FailureState", "PeerState", "PipeState", "ProgressState", "WindowState"]


class EngineState:
    """Whether this rank leaves, so that nothing new is begun."""

    __slots__ = ("leaving",)
    leaving: bool


class FailureState:
    """Whether what all ranks raise for a failure is being found out."""

    __slots__ = ("failing",)
    failing: bool


class ProgressState:
    """The thread that has the progress lock, 0 for none; and how many threads wait, or take in news."""

    __slots__ = ("callers", "owner")
    owner: int
    callers: int


class PeerState:
    """What leads to a peer, and why nothing can be sent there any more."""

    __slots__ = ("connection", "gone")
    connection: Any
    gone: Any


class PipeState:
    """The frames that wait to leave by a pipe, and the long payload that is going out."""

    __slots__ = ("queue", "rest")
    queue: Any
    rest: Any


class WindowState:
    """How much of what was sent to a peer it has not taken yet."""

    __slots__ = ("unconfirmed",)
    unconfirmed: int


if not TYPE_CHECKING and (_native := compiled_parts.module()) is not None:
    EngineState, FailureState, ProgressState = _native.EngineState, _native.FailureState, _native.ProgressState
    PeerState, PipeState, WindowState = _native.PeerState, _native.PipeState, _native.WindowState
