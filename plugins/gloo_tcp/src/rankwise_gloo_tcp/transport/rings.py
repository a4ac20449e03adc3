"""Two rings of shared memory between this rank and another of its machine: each is written by one of them only.

A frame lies in its ring in one piece: its header as four words, then its payload. Each end counts in bytes how far it
has come. A rank that sleeps says so in a word of shared memory, and a byte in the pipe that its poller watches wakes
it. Compiled code may sleep at that word itself, and goes back to the beginning of its ring long before the end if the
peer keeps up.
"""

from __future__ import annotations

import ctypes
import os
import stat
from contextlib import suppress
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from rankwise.backends import compiled_parts as native
from rankwise_gloo_tcp.machine import futex
from rankwise_gloo_tcp.protocol.frames import READABLE, Kind

if TYPE_CHECKING:
    from typing_extensions import Buffer  # a type checker has it, whether or not it is installed

#: With more ranks on one machine, connections are made when they are needed.
MAX_RANKS = 64
#: What a rank has for all that others write to it, and the most and the least for each of them.
_RINGS_NBYTES, _MOST_NBYTES, _LEAST_NBYTES = 4 << 20, 1 << 20, 128 << 10
_HEADER_NBYTES = _UNIT = 32
_CONTROL_NBYTES = 256
#: Words of the control block: how far the writer has come and whether it waits for room; how far the reader has. The
#: compiled rings tell each other in word 17 what the reader waits for, and copy together by words 24 to 26.
_HEAD, _WANTS_ROOM, _TAIL = 0, 1, 16
#: What a rank says of its sleep: that a byte in its bell wakes it, or a change of the word that says so.
_AWAKE, _AT_BELL, _AT_WORD = 0, 1, 2
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
    "AWAKE": _AWAKE,
    "AT_BELL": _AT_BELL,
    "AT_WORD": _AT_WORD,
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


class Bell(NamedTuple):
    """The pipe that wakes a rank.

    Attributes:
        path: Where it is opened.
        inode: By what it is known: its process may have ended, and another have got the number.
    """

    path: str
    inode: int

    @staticmethod
    def of(pid: int, descriptor: int, inode: int) -> Bell:
        """Return that of a process, which has told its descriptor and what it is known by."""
        return Bell(f"/proc/{pid}/fd/{descriptor}", inode)

    def open(self) -> int:
        """Return a descriptor that wakes the rank when something is written to it.

        Raises:
            OSError: It cannot be had, or the rank has gone.
        """
        # opens: the bell of a rank, a pipe into which others of its host write
        descriptor = os.open(self.path, os.O_WRONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        found = os.fstat(descriptor)
        if found.st_ino == self.inode and stat.S_ISFIFO(found.st_mode):
            return descriptor
        os.close(descriptor)
        raise ProcessLookupError(f"{self.path} is another file now")


class Sleep:
    """Where a rank says that it sleeps, and how it is woken: by a bell that is opened when it is needed first.

    Args:
        words: The memory that the ranks share, in words.
        at: The word that says so.
        bell: What wakes it; None for this rank itself.
    """

    __slots__ = ("_at", "_descriptor", "_words", "bell")

    def __init__(self, words: memoryview, at: int, bell: Bell | None = None) -> None:
        self._words, self._at, self.bell = words, at, bell
        self._descriptor = -1

    @property
    def place(self) -> int:
        """Where the word is, in bytes."""
        return 8 * self._at

    def begin(self) -> None:
        """Say that this rank is about to sleep; whatever is written from now on wakes it."""
        self._words[self._at] = _AT_BELL
        futex.fence()

    def end(self) -> None:
        """Say that it is awake."""
        self._words[self._at] = _AWAKE

    def wake(self) -> None:
        """Wake another rank if it sleeps."""
        futex.fence()
        if self._words[self._at] == _AT_WORD:
            self._words[self._at] = _AWAKE
            futex.wake(ctypes.addressof(ctypes.c_char.from_buffer(self._words, self.place)))
        elif self._words[self._at] and self.bell is not None:
            # It is being woken already, or has gone; or no descriptor is left, and it looks by itself now and then.
            with suppress(OSError):
                if self._descriptor < 0:
                    self._descriptor = self.bell.open()
                self._words[self._at] = _AWAKE
                os.write(self._descriptor, b"b")

    def close(self) -> None:
        """Give the descriptor back."""
        if self._descriptor >= 0:
            os.close(self._descriptor)


class Place(NamedTuple):
    """Where the rings to a peer and from it lie in the memory that the ranks share, in bytes.

    Attributes:
        out: Where what is written to the peer begins.
        into: Where what it writes begins.
        nbytes: The size of each, with its control block.
        asleep: Where the peer says that it sleeps, and in the word behind, if compiled, on which processor it runs.
    """

    out: int
    into: int
    nbytes: int
    asleep: int


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

    def wake(self) -> None:
        """Wake the peer if it sleeps; nothing if the memory has gone."""

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


def make_rings(memory: Buffer, place: Place, bell: Bell) -> Rings:
    """Return the rings to a peer and from it; `bell` wakes the peer."""
    compiled: Any = native.module()
    made: Rings = (PythonRings if compiled is None else compiled.Rings)(memory, place, bell)
    return made


class PythonRings:
    """The rings where nothing is compiled: on x86, which keeps stores in their order."""

    def __init__(self, memory: Buffer, place: Place, bell: Bell) -> None:
        self._bytes = memoryview(memory)
        self._words = self._bytes.cast("Q")
        #: Where the control blocks are, in words, and where the frames begin, in bytes.
        self._out, self._in = place.out // 8, place.into // 8
        self._out_data, self._in_data = place.out + _CONTROL_NBYTES, place.into + _CONTROL_NBYTES
        self._sleep, self._closed = Sleep(self._words, place.asleep // 8, bell), False
        self.capacity = place.nbytes - _CONTROL_NBYTES
        #: Up to here a message's payload follows its header in one piece.
        self.eager_nbytes = self.capacity // 8
        self.head = self.tail = 0

    def write(self, first: int, length: int, marks: int, address: int, data: memoryview) -> bool:
        """Write a frame."""
        words, capacity, head, control = self._words, self.capacity, self.head, self._out
        nbytes = _HEADER_NBYTES + (len(data) + 31 & -32)
        at = head % capacity
        skip = capacity - at if capacity - at < nbytes else 0
        if head + skip + nbytes - words[control + _TAIL] > capacity:
            return False
        if skip:
            words[(self._out_data + at) // 8] = _WRAP
            at, head = 0, head + skip
        start = self._out_data + at
        index = start // 8
        words[index], words[index + 1] = first, length
        words[index + 2], words[index + 3] = marks, address
        if len(data):
            self._bytes[start + _HEADER_NBYTES : start + _HEADER_NBYTES + len(data)] = data
        self.head = words[control + _HEAD] = head + nbytes
        return True

    def wake(self) -> None:
        """Wake the peer if it sleeps."""
        if not self._closed:
            self._sleep.wake()

    def ask_for_room(self) -> None:
        """Ask the peer to tell when it has made room."""
        self._words[self._out + _WANTS_ROOM] = 1
        futex.fence()

    def has_room(self) -> bool:
        """Tell whether it has."""
        return not self._words[self._out + _WANTS_ROOM]

    def has_news(self) -> bool:
        """Tell whether something has come."""
        return bool(self._words[self._in + _HEAD] != self.tail)

    def next(self) -> tuple[int, int, int, int] | None:
        """Return the words of the next frame's header."""
        words = self._words
        while words[self._in + _HEAD] != self.tail:
            at = self.tail % self.capacity
            index = (self._in_data + at) // 8
            if words[index] & 0xFF != _WRAP:
                return words[index], words[index + 1], words[index + 2], words[index + 3]
            self._advance(self.capacity - at)
        return None

    def payload(self, nbytes: int) -> memoryview:
        """Return what follows the header of the next frame."""
        start = self._in_data + self.tail % self.capacity + _HEADER_NBYTES
        return self._bytes[start : start + nbytes]

    def advance(self, nbytes: int) -> None:
        """Pass over the next frame."""
        self._advance(_HEADER_NBYTES + (nbytes + 31 & -32))

    def take(self, first: int, dtype: int, room: memoryview) -> int:
        """Take the next frame if it is such a message."""
        words, at = self._words, self._in_data + self.tail % self.capacity
        index = at // 8
        length = int(words[index + 1])
        if words[index] != first or length > len(room) or length > self.eager_nbytes:
            return -1
        if dtype and words[index + 2] >> 32 != dtype:
            return -1
        start = at + _HEADER_NBYTES
        room[:length] = self._bytes[start : start + length]
        self._advance(_HEADER_NBYTES + (length + 31 & -32))
        return length

    def _advance(self, nbytes: int) -> None:
        words, control = self._words, self._in
        self.tail += nbytes
        words[control + _TAIL] = self.tail
        # What the peer waits for is written before this is read, or it looks again after it has written this.
        futex.fence()
        if words[control + _WANTS_ROOM] and 2 * (words[control + _HEAD] - self.tail) <= self.capacity:
            words[control + _WANTS_ROOM] = 0
            self._sleep.wake()

    def close(self) -> None:
        """Let the memory go."""
        self._closed = True
        self._sleep.close()
        self._words.release()
        self._bytes.release()
