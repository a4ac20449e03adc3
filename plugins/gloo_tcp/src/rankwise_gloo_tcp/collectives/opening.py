"""The opening of a collective over connections: everyone tells everyone what it is about to do, small data with it.

With few ranks each sends one message to each other, so that a small collective is over after one message's time.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from rankwise.backends import FINGERPRINT_TAG, Deadline, as_bytes
from rankwise_gloo_tcp.collectives.streams import wait_for

if TYPE_CHECKING:
    from rankwise_gloo_tcp.engine.engine import Engine

__all__ = ["FEW_RANKS", "INLINE_NBYTES", "Opening"]

#: Up to so many ranks everyone talks to everyone at once; with more, records travel along a tree and alone.
FEW_RANKS = 8
#: How much data goes along to one rank at the most.
INLINE_NBYTES = 256 << 10
_RECORD_NBYTES = 40
_NOTHING = memoryview(b"")


class Opening:
    """The first messages of each collective of one group, and the memory that they are received into."""

    def __init__(self, engine: Engine, rank: int, size: int) -> None:
        self._engine = engine
        self._others = [(rank + k) % size for k in range(1, size)]
        self._rank, self._size = rank, size
        self._rooms: dict[int, memoryview] = {}

    def exchange(
        self, record: bytes, offered: Sequence[memoryview] | None, deadline: Deadline
    ) -> tuple[list[bytes], list[memoryview]]:
        """Send record and data to everyone; return everyone's records, and what came with them.

        The data stays where it is until the next call.

        Args:
            record: What is compared.
            offered: What goes along to each rank.
            deadline: When all must be there.

        Raises:
            DistTimeoutError: Some have not come; it names them.
        """
        engine = self._engine
        rooms = self._rooms or self._make_rooms()
        receives = [engine.receive_bytes(rooms[peer], peer, FINGERPRINT_TAG, True) for peer in self._others]
        sends = [
            engine.send_bytes(offered[peer] if offered else _NOTHING, peer, FINGERPRINT_TAG, True, record)
            for peer in self._others
        ]
        wait_for(engine, receives, deadline)
        wait_for(engine, sends, deadline)
        rows, contents = [record] * self._size, [_NOTHING] * self._size
        for peer, receive in zip(self._others, receives, strict=True):
            room = rooms[peer]
            rows[peer] = bytes(room[:_RECORD_NBYTES])
            contents[peer] = room[_RECORD_NBYTES : receive.nbytes]
        return rows, contents

    def _make_rooms(self) -> dict[int, memoryview]:
        # Pages that no message has reached yet take no memory.
        self._rooms = {peer: as_bytes(np.zeros(_RECORD_NBYTES + INLINE_NBYTES, np.uint8)) for peer in self._others}
        return self._rooms
