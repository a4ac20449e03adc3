"""What compiled messages read and write as well as the engine: the bases of those classes that have it.

They are compiled where `rankwise-native` is installed, with the same members, so that C reads memory and asks no
object.
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any

from rankwise.backends import compiled_parts

#: What guards an engine; a compiled one tells its holder whether others want it.
EngineLock = threading.Lock


class EngineState:
    """Whether this rank leaves, so that nothing new is begun."""

    __slots__ = ("leaving",)
    leaving: bool


class FailureState:
    """Whether what all ranks raise for a failure is being found out."""

    __slots__ = ("failing",)
    failing: bool


class ProgressState:
    """The thread that has the progress lock, 0 for none; how many threads wait, or take in news; when one last did.

    Followers are those that wait for the lock, or for their request to end under another. Requests that no thread waits
    for are pending, and a thread that ticks sees them without being told.
    """

    __slots__ = ("callers", "followers", "last_drive", "owner", "pending", "ticks")
    owner: int
    callers: int
    followers: int
    pending: int
    last_drive: float
    ticks: bool


class PeerState:
    """What leads to a peer, why nothing can be sent there any more, and the credit that goes before the next frame."""

    __slots__ = ("connection", "gone", "owed_nbytes")
    connection: Any
    gone: Any
    owed_nbytes: int


class ConnectionState:
    """A connection over a socket: its reader, the guards of its headers, what compiled code encrypts, how it stands."""

    __slots__ = (
        "broken",
        "came_nbytes",
        "closed",
        "deaf",
        "fd",
        "mine",
        "plain",
        "reader",
        "theirs",
        "tls",
        "went_nbytes",
        "writing",
    )
    reader: Any
    mine: Any
    theirs: Any
    tls: Any
    fd: int
    plain: bool
    closed: bool
    broken: bool
    deaf: bool
    writing: bool
    came_nbytes: int
    went_nbytes: int


class ReaderState:
    """What ends the payload that is coming in, if any is; and what of the inbox has not been taken apart."""

    __slots__ = ("end", "start", "whole")
    whole: Any
    start: int
    end: int


class GuardState:
    """The key of the hash that makes the tags of one direction, the number of the next header, where C has a hash."""

    __slots__ = ("hash_address", "key", "number")
    key: bytes
    number: int
    hash_address: int


class PipeState:
    """The frames that wait to leave by a pipe, and the long payload that is going out."""

    __slots__ = ("queue", "rest")
    queue: Any
    rest: Any


class RequestState:
    """What is to be sent or received, where from or to, and how that has ended.

    Only a request that compiled code has posted has what it was posted `by`, which can take in its message.
    """

    __slots__ = (
        *("_source", "buffer", "done", "dtype", "engine", "error", "nbytes", "peer", "promise"),
        *("streamed", "tag", "watched"),
    )
    engine: Any
    buffer: memoryview
    peer: int | None
    tag: int
    dtype: int
    nbytes: int
    done: bool
    watched: bool
    streamed: bool
    error: BaseException | None
    _source: int | None
    promise: Any
    by: Any = None


class WindowState:
    """How much of what was sent to a peer it has not taken yet."""

    __slots__ = ("unconfirmed",)
    unconfirmed: int


if not TYPE_CHECKING and (_native := compiled_parts.module()) is not None:
    EngineLock, EngineState = _native.EngineLock, _native.EngineState
    FailureState, ProgressState = _native.FailureState, _native.ProgressState
    PeerState, PipeState, WindowState = _native.PeerState, _native.PipeState, _native.WindowState
    ConnectionState, ReaderState, GuardState = _native.ConnectionState, _native.ReaderState, _native.GuardState
    RequestState = _native.RequestState
