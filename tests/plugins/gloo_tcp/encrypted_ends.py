"""Both ends of an encrypted connection, in one process: one that compiled code uses, and one of `ssl`."""

from __future__ import annotations

import socket
from functools import cache
from typing import Any

from rankwise_gloo_tcp.protocol.card import Card
from rankwise_gloo_tcp.setup import privacy
from rankwise_gloo_tcp.transport.encrypted import EncryptedSocket, Encryption


@cache
def encryptions(both: bool) -> list[Encryption]:
    """Return what each of two ranks encrypts with; the second one does so by the standard library unless `both`."""
    mine = [privacy.prepare(privacy.ENCRYPTED) for _ in range(2)]
    known: dict[str, Any] = {"uid": 0, "pid": 0, "port": 0, "cores": ("1", 1.0)}
    blank = Card(**{name: known.get(name, "") for name in Card._fields})
    cards = [blank._replace(certificate=each.certificate if each else "") for each in mine]
    found = [made for each in mine if (made := privacy.encryption(each, cards, (0, 1), "default")) is not None]
    found[1].compiled = both
    return found


def encrypted_ends(here: socket.socket, there: socket.socket, both: bool) -> tuple[Any, Any]:
    """Encrypt what two sockets that are connected say to each other."""
    for sock in (here, there):
        sock.setblocking(False)
    first, second = encryptions(both)
    ends: tuple[EncryptedSocket, EncryptedSocket] = first.begin(here, 1, True), second.begin(there, 0, False)
    while not all([end.shake() for end in ends]):  # both, each time
        pass

    def send_all(data: bytes) -> None:
        rest = memoryview(data)
        while len(rest):
            rest = rest[ends[1].send(rest) :]

    ends[1].sendall = send_all  # type: ignore[attr-defined]
    return ends
