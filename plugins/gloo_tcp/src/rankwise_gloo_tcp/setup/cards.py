"""What each rank tells the others about itself: where it listens, and on which machine it runs."""

from __future__ import annotations

import json
import os
import platform
import secrets
from collections.abc import Callable
from functools import partial
from typing import NamedTuple

from rankwise.backends import Deadline
from rankwise.errors import RendezvousError
from rankwise.store import Store
from rankwise.store.patience import patiently

__all__ = ["Card", "exchange", "machine", "read_card"]


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
    cores: tuple[str, float]

    def is_near(self, other: Card) -> bool:
        """Tell whether the two can meet at a Unix socket."""
        return bool(self.unix and other.unix) and self.machine == other.machine and self.uid == other.uid

    def shares_processes(self, other: Card) -> bool:
        """Tell whether the two know each other's process number."""
        return self.is_near(other) and self.space == other.space


_KINDS = [str, str, str, int, int, str, str, int, str, str, str, str]


def machine() -> tuple[str, str]:
    """Return what stands for this machine and network namespace, and for this process namespace."""
    boot = _read("/proc/sys/kernel/random/boot_id") or platform.node()
    return f"{boot}/{_link('/proc/self/ns/net')}", f"{boot}/{_link('/proc/self/ns/pid')}"


def exchange(
    store: Store, rank: int, card: Card, size: int, deadline: Deadline, look: Callable[[], None]
) -> tuple[list[Card], bytes]:
    """Tell the others one's card; return everyone's, and the random token of this meeting.

    While some have not come, `look` is called now and then, which raises if they cannot come any more.

    Raises:
        RendezvousError: A card is malformed.
    """
    if rank == 0:
        store.set("token", secrets.token_hex(32))
    store.set(f"card/{rank}", json.dumps(card))
    keys = ["token", *(f"card/{peer}" for peer in range(size))]
    token, *rows = patiently(partial(store.multi_get, keys), deadline, look)
    return [read_card(row, peer) for peer, row in enumerate(rows)], bytes.fromhex(token.decode())


def read_card(row: bytes, peer: int) -> Card:
    """Return the card that a rank has published.

    Raises:
        RendezvousError: It is none.
    """
    try:
        card = Card(*json.loads(row))
        processors, quota = card.cores
        kinds = [type(field) for field in (*card[:-1], processors)]
        int(processors, 16)
        if kinds != [*_KINDS, str] or type(quota) not in (int, float) or not 0 <= card.port < 1 << 16:
            raise ValueError
    except (ValueError, TypeError, RecursionError) as error:
        raise RendezvousError(f"the address that rank {peer} has published is malformed") from error
    return card


def _link(path: str) -> str:
    try:
        return os.readlink(path)
    except OSError:
        return ""


def _read(path: str) -> str:
    try:
        with open(path, encoding="ascii") as file:
            return file.read().strip()
    except OSError:
        return ""
