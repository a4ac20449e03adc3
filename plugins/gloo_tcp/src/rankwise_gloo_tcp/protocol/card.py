"""What each rank tells the others about itself: where it listens, and on which machine it runs."""

from __future__ import annotations

import json
import sys
from functools import lru_cache
from typing import Any, NamedTuple

from rankwise.errors import RendezvousError

__all__ = ["Card", "read_card"]


class Card(NamedTuple):
    """One rank's address.

    Attributes:
        host: The machine's name, for messages.
        machine: What only processes of one machine and network namespace have in common.
        space: Likewise for process numbers.
        uid: The user.
        pid: The process.
        unix: Name of its abstract Unix socket; empty if it has none.
        address: Its TCP address; empty if it serves no network.
        port: Its TCP port.
        transport: Which transports it was told to use.
        integrity: What of the frames between hosts it was told to protect.
        board: Name of the Unix socket where this rank would hand out the board; empty if it can use none.
        algorithms: Those that it was told to use.
        certificate: By what encrypted connections know it; empty where none are wanted.
        token: Of the first rank a random number in hexadecimal digits, of which the group's key is made.
        cores: The processors that it may use, and how many of them at a time.
    """

    host: str
    machine: str
    space: str
    uid: int
    pid: int
    unix: str
    address: str
    port: int
    transport: str
    integrity: str
    board: str
    algorithms: str
    certificate: str
    token: str
    cores: tuple[str, float]

    def is_near(self, other: Card) -> bool:
        """Tell whether the two can meet at a Unix socket."""
        return bool(self.unix and other.unix) and self.machine == other.machine and self.uid == other.uid

    def shares_processes(self, other: Card) -> bool:
        """Tell whether the two know each other's process number."""
        return self.is_near(other) and self.space == other.space


#: What is the same in all groups of a process, and is kept once. What differs is not: some interpreters never free it.
_SAME = ("host", "machine", "space", "address", "transport", "integrity", "algorithms", "certificate")
_KINDS = [str, str, str, int, int, str, str, int, str, str, str, str, str, str]


@lru_cache(256)
def _same(processors: str, quota: float) -> tuple[str, float]:
    return processors, quota


def read_card(row: bytes, peer: int) -> Card:
    """Return the card that a rank has published.

    Raises:
        RendezvousError: It is none.
    """
    try:
        card = Card(*json.loads(row))
        processors, quota = card.cores
        kinds = [type(field) for field in (*card[:-1], processors)]
        int(processors, 16), bytes.fromhex(card.token)
        if kinds != [*_KINDS, str] or type(quota) not in (int, float) or not 0 <= card.port < 1 << 16:
            raise ValueError
    except (ValueError, TypeError, LookupError, RecursionError) as error:
        raise RendezvousError(f"the address that rank {peer} has published is malformed") from error
    shared: dict[str, Any] = {name: sys.intern(getattr(card, name)) for name in _SAME}
    return card._replace(cores=_same(processors, quota), **shared)
