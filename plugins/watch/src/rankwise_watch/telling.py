"""One rank of a host tells the store of the heartbeats of all its ranks: the page they are written on, and the rules.

The teller is the lowest rank of the host. Every rank writes each of its heartbeats at its place of the page, and the
teller takes along what it finds there when it sends its own. A rank that waits for others asks the store by itself, as
it would without. One that does not has no need of the store, as long as each heartbeat has been told by the next.

- A heartbeat that has not been told by then is followed by one that its rank sends by itself. So a teller that has died
  or left, is stopped or slow, keeps back nobody's heartbeats for more than two intervals: its silence is its own.
- A rank whose heartbeat falls between the teller's look and the store's answer would miss it every time, as all have
  the same interval: after the first time its next one comes sooner.
- What a rank sends by itself and what is told of it have two keys, and the higher number counts. What is told late
  replaces nothing that is newer, and nobody's last word.
- A place that is read while it is being written does not fit its checksum, and counts as empty.
- The teller also writes how many verdicts it has heard, so that who asks nothing knows when there are more.

Nothing here knows a clock, a thread or a descriptor.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple
from zlib import crc32

MARK_NBYTES = 16
#: How much room each rank has; what needs more is sent by the rank itself.
_PLACE_NBYTES = 2048
_WORD = struct.Struct("<Q")
#: A heartbeat's number, its length, and the checksum of both and the text.
_HEAD = struct.Struct("<QHI")


class Entry(NamedTuple):
    """A heartbeat on the page."""

    number: int
    text: bytes


class Page:
    """What the ranks of a host and their teller write: a mark, what has been heard and told, and a place for each.

    Args:
        read: Returns so many bytes from an offset on; fewer at the end.
        write: Writes bytes at an offset.
        count: How many places there are.
    """

    def __init__(self, read: Callable[[int, int], bytes], write: Callable[[bytes, int], object], count: int) -> None:
        self._read, self._write, self._count = read, write, count
        self._places_at = MARK_NBYTES + _WORD.size * (1 + count)

    @property
    def nbytes(self) -> int:
        """How large the page is."""
        return self._places_at + self._count * _PLACE_NBYTES

    def sign(self, mark: bytes) -> None:
        """Write what tells this page from all others."""
        self._write(mark, 0)

    def is_signed(self, mark: bytes) -> bool:
        """Tell whether it is the page with this mark."""
        return self._read(MARK_NBYTES, 0) == mark

    def put(self, place: int, entry: Entry) -> bool:
        """Write a heartbeat; tell whether there is room for it."""
        fits = len(entry.text) <= _PLACE_NBYTES - _HEAD.size
        number, text = entry if fits else (0, b"")
        self._write(_HEAD.pack(number, len(text), _checksum(number, text)) + text, self._place_at(place))
        return fits

    def get(self, place: int) -> Entry | None:
        """Return the heartbeat at a place, if there is a whole one."""
        return _entry(self._read(_PLACE_NBYTES, self._place_at(place)))

    def entries(self) -> Iterator[tuple[int, Entry]]:
        """Return all whole heartbeats and their places."""
        data = self._read(self._count * _PLACE_NBYTES, self._places_at)
        for place in range(self._count):
            entry = _entry(data[place * _PLACE_NBYTES : (place + 1) * _PLACE_NBYTES])
            if entry is not None:
                yield place, entry

    def tell(self, heard: int, numbers: Sequence[int]) -> None:
        """Write how many verdicts the teller has heard, and which heartbeats the store has: one number a place."""
        self._write(b"".join(map(_WORD.pack, (heard, *numbers))), MARK_NBYTES)

    def heard(self) -> int:
        """Return how many verdicts the teller has heard."""
        return self._word(MARK_NBYTES)

    def told(self, place: int) -> int:
        """Return which heartbeat of a place the store has."""
        return self._word(MARK_NBYTES + _WORD.size * (1 + place))

    def _word(self, at: int) -> int:
        data = self._read(_WORD.size, at)
        return int(_WORD.unpack(data)[0]) if len(data) == _WORD.size else 0

    def _place_at(self, place: int) -> int:
        return self._places_at + place * _PLACE_NBYTES


class Member:
    """A rank that has a teller.

    Attributes:
        has_just_missed: The last heartbeat before this one has not been told, for the first time in a row.
    """

    def __init__(self, page: Page, place: int) -> None:
        self._page, self._place = page, place
        self._last, self._was_told = 0, True
        self.has_just_missed = False

    def hand_over(self, entry: Entry) -> int | None:
        """Write a heartbeat.

        Returns:
            How many verdicts the teller has heard; None if this heartbeat is to be sent by the rank itself, as the
            one before has not been told.
        """
        last, is_told = self._last, self._last != 0 and self._page.told(self._place) == self._last
        self.has_just_missed = last != 0 and not is_told and self._was_told
        self._was_told = is_told or last == 0
        self._last = entry.number if self._page.put(self._place, entry) else 0
        return self._page.heard() if is_told else None


class Teller:
    """The rank that tells."""

    def __init__(self, page: Page, count: int) -> None:
        self._page = page
        self._told = [0] * count

    def collect(self) -> dict[int, Entry]:
        """Return what there is to tell, by places."""
        return {place: entry for place, entry in self._page.entries() if entry.number != self._told[place]}

    def has_told(self, entries: dict[int, Entry], heard: int) -> None:
        """Note what the store has been told, and how many verdicts have been heard."""
        for place, entry in entries.items():
            self._told[place] = entry.number
        self._page.tell(heard, self._told)


def _entry(data: bytes) -> Entry | None:
    if len(data) < _HEAD.size:
        return None
    number, nbytes, checksum = _HEAD.unpack_from(data)
    text = data[_HEAD.size : _HEAD.size + nbytes]
    return Entry(number, text) if number and _checksum(number, text) == checksum else None


def _checksum(number: int, text: bytes) -> int:
    return crc32(text, crc32(_WORD.pack(number)))
