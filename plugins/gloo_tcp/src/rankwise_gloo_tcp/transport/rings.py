"""Two rings of shared memory between this rank and another of its machine: each is written by one of them only.

A frame lies in its ring in one piece: its header as four words, then its payload. Each end counts in bytes how far it
has come. A rank that sleeps says so in shared memory, and a byte in the pipe that its poller watches wakes it.
"""

from __future__ import annotations

import os
from contextlib import suppress
from typing import Any, Protocol

from rankwise.backends import compiled_parts as native
from rankwise_gloo_tcp.machine import futex
from rankwise_gloo_tcp.protocol.frames import READABLE, Kind

__all__ = ["MAX_RANKS", "PIECE", "SHARED", "PythonRings", "Rings", "Sleep", "make_rings", "message", "ring_nbytes"]

#: With more ranks on one machine, connections are made when they are needed.
MAX_RANKS = 64
#: What a rank has for all that others write to it, and the most and the least for each of them.
_RINGS_NBYTES, _MOST_NBYTES, _LEAST_NBYTES = 4 << 20, 1 << 20, 128 << 10
_HEADER_NBYTES = _UNIT = 32
_CONTROL_NBYTES = 256
#: Words of the control block: how far the writer has come and whether it waits for room; how far the reader has. The
#: compiled rings tell each other in word 17 what the reader waits for.
_HEAD, _WANTS_ROOM, _TAIL = 0, 1, 16
#: In place of a kind: nothing more follows until the end of the ring; a piece of a long payload.
_WRAP, PIECE = 0, 255
#: What compiled parts have in common with this module, which is the same in both.
SHARED = {
    "MAX_RANKS": MAX_RANKS,
    "HEADER_NBYTES": _HEADER_NBYTES,
    "CONTROL_NBYTES": _CONTROL_NBYTES,
    "HEAD": _HEAD,
    "WANTS_ROOM": _WANTS_ROOM,
    "TAIL": _TAIL,
    "WRAP": _WRAP,
    "PIECE": PIECE,
    "MESSAGE": Kind.MESSAGE,
    "OFFER": Kind.OFFER,
    "RECEIPT": Kind.RECEIPT,
    "CREDIT": Kind.CREDIT,
    "READABLE": READABLE << 8,
}


def ring_nbytes(size: int) -> int:
    """Return what one direction between two of so many ranks takes."""
    if size > MAX_RANKS:
        return 0
    return _CONTROL_NBYTES + min(max(_RINGS_NBYTES // size & -_UNIT, _LEAST_NBYTES), _MOST_NBYTES)


def message(tag: int) -> int:
    """Return the first word of a message."""
    return Kind.MESSAGE | tag << 32


class Sleep:
    """Where a rank says that it sleeps, and how it is woken.

    Attributes:
        word: A view of the word that says so.
        bell: The descriptor that wakes it.
    """

    __slots__ = ("bell", "word")

    def __init__(self, word: memoryview, bell: int) -> None:
        self.word, self.bell = word, bell

    def begin(self) -> None:
        """Say that this rank is about to sleep; whatever is written from now on wakes it."""
        self.word[0] = 1
        futex.fence()

    def end(self) -> None:
        """Say that it is awake."""
        self.word[0] = 0

    def wake(self) -> None:
        """Wake another rank if it sleeps."""
        futex.fence()
        if self.word[0]:
            self.word[0] = 0
            with suppress(OSError):  # it is being woken already, or has gone
                os.write(self.bell, b"b")

    def close(self) -> None:
        """Give memory and descriptor back."""
        self.forget()
        os.close(self.bell)

    def forget(self) -> None:
        """Give the memory back."""
        with suppress(BufferError):  # a thread is still in a call that uses it
            self.word.release()


class Rings(Protocol):
    """What a pipe knows of its memory."""

    capacity: int
    eager_nbytes: int
    head: int
    tail: int

    def write(self, first: int, length: int, marks: int, address: int, data: memoryview) -> bool:
        """Write a frame, and let the peer see it; false if there is no room.

        Args:
            first: The first word: kind, flags and tag.
            length: The second.
            marks: The third.
            address: The fourth.
            data: What follows in the ring.
        """

    def ask_for_room(self) -> None:
        """Ask the peer to tell when it has made room."""

    def has_room(self) -> bool:
        """Tell whether it has, since it was asked. Needs no lock."""

    def has_news(self) -> bool:
        """Tell whether something has come that has not been read. Needs no lock."""

    def next(self) -> tuple[int, int, int, int] | None:
        """Return the words of the next frame's header, or None if there is none."""

    def payload(self, nbytes: int) -> memoryview:
        """Return what follows the header of the next frame."""

    def advance(self, nbytes: int) -> None:
        """Pass over the next frame, of which so many bytes follow the header."""

    def take(self, first: int, dtype: int, room: memoryview) -> int:
        """Take the next frame if it is a message with this first word, and fits; return its length, else -1.

        A `dtype` of 0 is that of any message.
        """

    def close(self) -> None:
        """Let the memory go."""


def make_rings(out: memoryview, into: memoryview, sleep: Sleep) -> Rings:
    """Return the rings to a peer and from it; `sleep` is the peer's."""
    compiled: Any = native.module()
    if compiled is None:
        return PythonRings(out, into, sleep)
    made: Rings = compiled.Rings(out, into, sleep.word, sleep.bell)
    return made


class PythonRings:
    """The rings where nothing is compiled: on x86, which keeps stores in their order."""

    def __init__(self, out: memoryview, into: memoryview, sleep: Sleep) -> None:
        self._out, self._in = out[_CONTROL_NBYTES:], into[_CONTROL_NBYTES:]
        self._out_words, self._in_words = out.cast("Q"), into.cast("Q")
        self._wake = sleep.wake
        self.capacity = len(self._out)
        #: Up to here a message's payload follows its header in one piece.
        self.eager_nbytes = self.capacity // 8
        self.head = self.tail = 0

    def write(self, first: int, length: int, marks: int, address: int, data: memoryview) -> bool:
        """Write a frame."""
        words, capacity, head = self._out_words, self.capacity, self.head
        nbytes = _HEADER_NBYTES + (len(data) + 31 & -32)
        at = head % capacity
        skip = capacity - at if capacity - at < nbytes else 0
        if head + skip + nbytes - words[_TAIL] > capacity:
            return False
        if skip:
            words[(_CONTROL_NBYTES + at) // 8] = _WRAP
            at, head = 0, head + skip
        index = (_CONTROL_NBYTES + at) // 8
        words[index], words[index + 1] = first, length
        words[index + 2], words[index + 3] = marks, address
        if len(data):
            self._out[at + _HEADER_NBYTES : at + _HEADER_NBYTES + len(data)] = data
        self.head = words[_HEAD] = head + nbytes
        return True

    def ask_for_room(self) -> None:
        """Ask the peer to tell when it has made room."""
        self._out_words[_WANTS_ROOM] = 1
        futex.fence()

    def has_room(self) -> bool:
        """Tell whether it has."""
        return not self._out_words[_WANTS_ROOM]

    def has_news(self) -> bool:
        """Tell whether something has come."""
        return bool(self._in_words[_HEAD] != self.tail)

    def next(self) -> tuple[int, int, int, int] | None:
        """Return the words of the next frame's header."""
        words = self._in_words
        while words[_HEAD] != self.tail:
            at = self.tail % self.capacity
            index = (_CONTROL_NBYTES + at) // 8
            if words[index] & 0xFF != _WRAP:
                return words[index], words[index + 1], words[index + 2], words[index + 3]
            self._advance(self.capacity - at)
        return None

    def payload(self, nbytes: int) -> memoryview:
        """Return what follows the header of the next frame."""
        start = self.tail % self.capacity + _HEADER_NBYTES
        return self._in[start : start + nbytes]

    def advance(self, nbytes: int) -> None:
        """Pass over the next frame."""
        self._advance(_HEADER_NBYTES + (nbytes + 31 & -32))

    def take(self, first: int, dtype: int, room: memoryview) -> int:
        """Take the next frame if it is such a message."""
        words, at = self._in_words, self.tail % self.capacity
        index = (_CONTROL_NBYTES + at) // 8
        length = int(words[index + 1])
        if words[index] != first or length > len(room) or length > self.eager_nbytes:
            return -1
        if dtype and words[index + 2] >> 32 != dtype:
            return -1
        start = at + _HEADER_NBYTES
        room[:length] = self._in[start : start + length]
        self._advance(_HEADER_NBYTES + (length + 31 & -32))
        return length

    def _advance(self, nbytes: int) -> None:
        words = self._in_words
        self.tail += nbytes
        words[_TAIL] = self.tail
        # What the peer waits for is written before this is read, or it looks again after it has written this.
        futex.fence()
        if words[_WANTS_ROOM] and 2 * (words[_HEAD] - self.tail) <= self.capacity:
            words[_WANTS_ROOM] = 0
            self._wake()

    def close(self) -> None:
        """Let the memory go."""
        for view in (self._out, self._in, self._out_words, self._in_words):
            view.release()
