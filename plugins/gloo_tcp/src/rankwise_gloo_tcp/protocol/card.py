"""What each rank tells the others about itself: where it listens, and on which machine it runs."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from functools import lru_cache
from typing import Any, NamedTuple

from rankwise.errors import RendezvousError


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
        board: Of a rank that hands out the board the name of the Unix socket where it does, of others any text; empty
            if it can use none.
        algorithms: Those that it was told to use.
        certificate: By what encrypted connections know it; empty where none are wanted.
        token: Of the first rank a random number in hexadecimal digits, of which the group's key is made.
        cores: The processors that it may use, and how many of them at a time.
        connections: How many connections it was told that a pair on different hosts may have.
        compiled: Whether it has the compiled parts: 1 or 0.
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
    connections: int = 1
    compiled: int = 0

    def is_near(self, other: Card) -> bool:
        """Tell whether the two can meet at a Unix socket."""
        return bool(self.unix and other.unix) and self.machine == other.machine and self.uid == other.uid

    def shares_processes(self, other: Card) -> bool:
        """Tell whether the two know each other's process number."""
        return self.is_near(other) and self.space == other.space


#: The fields that differ between the ranks of one host, which come behind the others; a rank's line begins with what
#: it has in common with them, and is decoded once for all of these.
_OWN = ("pid", "unix", "port", "board", "certificate", "token")
_COMMON = tuple(name for name in Card._fields if name not in _OWN)
_KINDS = {"uid": int, "pid": int, "port": int, "connections": int, "compiled": int}
_OWN_KINDS = [_KINDS.get(name, str) for name in _OWN]
_decode: Callable[[str], Any] = json.JSONDecoder().decode


def write_card(card: Card) -> bytes:
    """Return what a rank publishes."""
    fields = card._asdict()
    lines = [fields[name] for name in _COMMON], [fields[name] for name in _OWN]
    return "\n".join(json.dumps(line) for line in lines).encode()


def read_card(row: bytes, peer: int) -> Card:
    """Return the card that a rank has published.

    Raises:
        RendezvousError: It is none.
    """
    try:
        common, own = row.decode().split("\n")
        host, machine, space, uid, address, transport, integrity, algorithms, cores, *numbers = _common(common)
        pid, unix, port, board, certificate, token = fields = _decode(own)
        if [type(field) for field in fields] != _OWN_KINDS or not 0 <= port < 1 << 16:
            raise ValueError
        if token:
            bytes.fromhex(token)
    except (ValueError, TypeError, LookupError, RecursionError) as error:
        raise RendezvousError(f"the address that rank {peer} has published is malformed") from error
    addresses = unix, address, port, transport, integrity, board, algorithms, certificate, token, cores
    return Card(host, machine, space, uid, pid, *addresses, *numbers)


@lru_cache(256)
def _common(line: str) -> tuple[Any, ...]:
    """Return the fields that many ranks have in common; most of them are the same in all groups of a process."""
    decoded: list[Any] = [sys.intern(each) if type(each) is str else each for each in _decode(line)]
    *fields, (processors, quota), connections, compiled = decoded
    kinds = [_KINDS.get(name, str) for name in _COMMON if name != "cores"]
    int(processors, 16)
    if [type(field) for field in (*fields, connections, compiled)] != kinds or type(quota) not in (int, float):
        raise ValueError
    return *fields, (sys.intern(processors), quota), connections, compiled
