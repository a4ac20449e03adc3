"""A firewall for tests: `python walls.py HOW SOURCE [PORT]` has a namespace refuse or drop what comes from a host.

HOW is one of `refuse` (with a reset), `drop`, `drop-new` (whatever would begin a connection), `drop-all-but PORT` (what
comes from another port), and `down`, which takes all walls away. It speaks to nf_tables itself, as no package that pip
installs does, and `iptables` and `nft` are not everywhere.
"""

from __future__ import annotations

import os
import socket
import struct
import sys
from collections.abc import Iterator

_NETFILTER = 12
_BEGIN, _END = 16, 17
_TABLES = 10
_NEW_TABLE, _DELETE_TABLE, _NEW_CHAIN, _NEW_RULE = (_TABLES << 8 | number for number in (0, 2, 3, 6))
_REQUEST, _ACK, _CREATE, _APPEND = 0x1, 0x4, 0x400, 0x800
_NESTED = 0x8000
_LOCAL_IN = 1
_EQUAL, _UNEQUAL = 0, 1
_NETWORK, _TRANSPORT = 1, 2
_TABLE, _CHAIN = b"walls\0", b"input\0"
_TCP = b"\6"
_SYN, _SYN_OR_ACK = b"\x02", b"\x12"


def number(value: int) -> bytes:
    return struct.pack(">I", value)


def attributes(*pairs: tuple[int, bytes | list[bytes]]) -> bytes:
    """Return attributes as netlink has them; a list of bytes is nested."""
    found = b""
    for kind, value in pairs:
        if isinstance(value, list):
            kind, value = kind | _NESTED, b"".join(value)
        found += struct.pack("=HH", 4 + len(value), kind) + value + bytes(-len(value) % 4)
    return found


def expression(name: bytes, *pairs: tuple[int, bytes | list[bytes]]) -> bytes:
    return attributes((1, [attributes((1, name + b"\0"), (2, [attributes(*pairs)]))]))


def loaded(header: int, offset: int, length: int) -> bytes:
    """Return what loads a part of a packet into the register."""
    return expression(b"payload", (1, number(1)), (2, number(header)), (3, number(offset)), (4, number(length)))


def masked(mask: bytes) -> bytes:
    nothing = bytes(len(mask))
    values = (4, [attributes((1, mask))]), (5, [attributes((1, nothing))])
    return expression(b"bitwise", (1, number(1)), (2, number(1)), (3, number(len(mask))), *values)


def compared(value: bytes, how: int = _EQUAL) -> bytes:
    """Return what goes on only with packets of which the register has a value."""
    return expression(b"cmp", (1, number(1)), (2, number(how)), (3, [attributes((1, value))]))


DROPPED = expression(b"immediate", (1, number(0)), (2, [attributes((2, [attributes((1, number(0)))]))]))
RESET = expression(b"reject", (1, number(1)), (2, b"\0"))


def rule(how: str, source: str, port: int) -> list[bytes]:
    """Return the expressions of a wall."""
    of_source = [loaded(_NETWORK, 12, 4), compared(socket.inet_aton(source))]
    of_tcp = [loaded(_NETWORK, 9, 1), compared(_TCP)]
    return {
        "refuse": [*of_source, *of_tcp, RESET],
        "drop": [*of_source, DROPPED],
        "drop-new": [*of_source, *of_tcp, loaded(_TRANSPORT, 13, 1), masked(_SYN_OR_ACK), compared(_SYN), DROPPED],
        "drop-all-but": [
            *(*of_source, *of_tcp),
            *(loaded(_TRANSPORT, 0, 2), compared(struct.pack(">H", port), _UNEQUAL), DROPPED),
        ],
    }[how]


def tell(*orders: tuple[int, int, bytes]) -> None:
    """Have the kernel follow orders, all or none: their kinds, flags and attributes."""

    def messages() -> Iterator[bytes]:
        batch = [(_BEGIN, 0, b""), *orders, (_END, 0, b"")]
        for place, (kind, flags, text) in enumerate(batch):
            family, subject = (socket.AF_UNSPEC, _TABLES) if kind in (_BEGIN, _END) else (socket.AF_INET, 0)
            body = struct.pack(">BBH", family, 0, subject) + text
            yield struct.pack("=IHHII", 16 + len(body), kind, _REQUEST | flags, place + 1, 0) + body

    with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, _NETFILTER) as kernel:
        kernel.settimeout(5)
        kernel.bind((0, 0))
        kernel.send(b"".join(messages()))
        for _ in range(sum(bool(flags & _ACK) for _, flags, _ in orders)):
            answer = kernel.recv(65536)
            error = -struct.unpack_from("=i", answer, 16)[0]
            if error:
                raise OSError(error, os.strerror(error))


def up(how: str, source: str, port: int = 0) -> None:
    hook = [attributes((1, number(_LOCAL_IN)), (2, number(0)))]
    tell(
        (_NEW_TABLE, _CREATE, attributes((1, _TABLE))),
        (_NEW_CHAIN, _CREATE, attributes((1, _TABLE), (3, _CHAIN), (4, hook), (7, b"filter\0"))),
        (_NEW_RULE, _ACK | _CREATE | _APPEND, attributes((1, _TABLE), (2, _CHAIN), (4, rule(how, source, port)))),
    )


def down() -> None:
    tell((_DELETE_TABLE, _ACK, attributes((1, _TABLE))))


if __name__ == "__main__":
    if sys.argv[1] == "down":
        down()
    else:
        up(sys.argv[1], sys.argv[2], *map(int, sys.argv[3:]))
