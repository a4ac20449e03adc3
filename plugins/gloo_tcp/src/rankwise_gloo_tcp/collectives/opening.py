"""The opening of a collective over connections: everyone tells everyone what it is about to do, small data with it.

With few ranks each sends one message to each other, so that a small collective is over after one message's time.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from rankwise.backends import FINGERPRINT_TAG, Deadline, as_bytes
from rankwise_gloo_tcp.collectives.streams import wait_for
from rankwise_gloo_tcp.engine.fast_path import FastPath
from rankwise_gloo_tcp.protocol.frames import message_head
from rankwise_gloo_tcp.transport import connection

if TYPE_CHECKING:
    from rankwise_gloo_tcp.engine.engine import Engine
    from rankwise_gloo_tcp.engine.request import Request

#: Up to so many ranks everyone talks to everyone in one step; with more, records travel along a tree and alone.
FEW_RANKS = 8
#: How much data goes along to one rank at the most: of two ranks, and of more.
_OF_TWO_NBYTES, _INLINE_NBYTES = 1 << 20, 256 << 10
RECORD_NBYTES = 40
#: Up to here data and record are one small message.
SMALL_NBYTES = connection.SMALL_NBYTES - RECORD_NBYTES


def inline_nbytes(size: int) -> int:
    """Return how much data goes along to one of so many ranks at the most."""
    return _OF_TWO_NBYTES if size == 2 else _INLINE_NBYTES


class Swap(NamedTuple):
    """An exchange of small messages, prepared.

    Attributes:
        expected: How many bytes come from each rank, its record included.
        links: For each other rank its number, the engine's, the headers of what goes there and of what comes, and where
            that goes.
        small: Whether each is a small message.
        sent: How many bytes go to each rank at the most, its record not included.
    """

    expected: list[int]
    links: list[tuple[int, int, bytes, bytes, memoryview]]
    small: bool = True
    sent: int = 0


class Opening:
    """The first messages of each collective of one group, and the memory that they are received into.

    Args:
        engine: What carries them.
        rank: This rank among the members.
        size: Number of members.
        names: What the engine calls each member; if empty as they call themselves.
        room_nbytes: How much memory there is for what comes from each; 0 is as much as goes along.
    """

    def __init__(self, engine: Engine, rank: int, size: int, names: Sequence[int] = (), room_nbytes: int = 0) -> None:
        self._engine, self._fast_path, self._names = engine, FastPath(engine), tuple(names) or tuple(range(size))
        self._others = [(rank + k) % size for k in range(1, size)]
        self._rank, self._size = rank, size
        self._room_nbytes = room_nbytes or RECORD_NBYTES + inline_nbytes(size)
        self._rooms: dict[int, memoryview] = {}

    def plan(self, sent: Sequence[int], expected: Sequence[int]) -> Swap:
        """Return the plan of a swap, by how many bytes go to and come from each rank besides the record."""
        rooms = self.rooms()
        links = []
        for peer in self._others:
            out, into = RECORD_NBYTES + sent[peer], RECORD_NBYTES + expected[peer]
            heads = message_head(FINGERPRINT_TAG, out, 0), message_head(FINGERPRINT_TAG, into, 0)
            links.append((peer, self._names[peer], *heads, rooms[peer][:into]))
        small = max(*sent, *expected) <= SMALL_NBYTES
        return Swap([RECORD_NBYTES + nbytes for nbytes in expected], links, small, max(sent))

    def swap(self, plan: Swap, data: Sequence[bytes], deadline: Deadline) -> list[int]:
        """Send something small to everyone, and receive the like; return how many bytes have come.

        Args:
            plan: What is expected if all make the same call.
            data: What goes to each rank.
            deadline: When all must be there.
        """
        engine, fast_path, rooms = self._engine, self._fast_path, self._rooms
        sends, receives = [], []
        for peer, name, head, _, _ in plan.links:
            sent = fast_path.post(head, data[peer], name, FINGERPRINT_TAG)
            if sent is not True:
                sends.append(sent or engine.send_bytes(memoryview(data[peer]), name, FINGERPRINT_TAG, True))
        for peer, name, _, head, room in plan.links:
            if not fast_path.take(head, room, name, FINGERPRINT_TAG):
                receives.append((peer, engine.receive_bytes(rooms[peer], name, FINGERPRINT_TAG, True)))
        if not (sends or receives):
            return plan.expected
        wait_for(engine, [receive for _, receive in receives], deadline)
        wait_for(engine, sends, deadline)
        lengths = list(plan.expected)
        for peer, receive in receives:
            lengths[peer] = receive.nbytes
        return lengths

    def swap_long(self, record: bytes, offered: Sequence[memoryview], deadline: Deadline) -> list[int]:
        """Do the same with more, which is sent from where it lies."""
        engine, rooms = self._engine, self.rooms()
        names = self._names
        receives = [engine.receive_bytes(rooms[peer], names[peer], FINGERPRINT_TAG, True) for peer in self._others]
        sends = [engine.send_bytes(offered[peer], names[peer], FINGERPRINT_TAG, True, record) for peer in self._others]
        wait_for(engine, receives, deadline)
        wait_for(engine, sends, deadline)
        lengths = [0] * self._size
        for peer, receive in zip(self._others, receives, strict=True):
            lengths[peer] = receive.nbytes
        return lengths

    def receive(self, peer: int) -> Request:
        """Begin to receive what a rank sends, into its room."""
        return self._engine.receive_bytes(self.rooms()[peer], self._names[peer], FINGERPRINT_TAG, True)

    def send(self, peer: int, record: bytes, data: bytes) -> Request:
        """Begin to send record and data to a rank."""
        return self._engine.send_bytes(memoryview(data), self._names[peer], FINGERPRINT_TAG, True, record)

    def received(self, plan: Swap) -> list[tuple[int, memoryview]]:
        """Return where each swap of a plan leaves what comes, for each other rank."""
        return [(peer, room) for peer, _, _, _, room in plan.links]

    def room(self, peer: int, nbytes: int) -> tuple[memoryview, memoryview]:
        """Return where each `swap` leaves the record of a peer, and so many bytes of data behind it."""
        room = (self.rooms())[peer]
        return room[:RECORD_NBYTES], room[RECORD_NBYTES : RECORD_NBYTES + nbytes]

    def room_of(self, name: int) -> memoryview:
        """Return where what comes from a rank goes, by what the engine calls it."""
        return self.rooms()[self._names.index(name)]

    def rooms(self) -> dict[int, memoryview]:
        """Return where what comes from each other rank goes."""
        rooms = self._rooms
        if len(rooms) < len(self._others):  # pages that no message has reached yet take no memory
            # One thread may carry a call out while another prepares the next: both must come to the same rooms.
            for peer in self._others:
                rooms.setdefault(peer, as_bytes(np.zeros(self._room_nbytes, np.uint8)))
        return rooms
