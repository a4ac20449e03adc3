"""Connections that are being made, step by step: who connects takes one for established only if who listens has."""

from __future__ import annotations

import copy
import select
import socket
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from time import monotonic
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).parent))
from encrypted_ends import encryptions

from rankwise_gloo_tcp.protocol.card import Card
from rankwise_gloo_tcp.protocol.guards import Guards
from rankwise_gloo_tcp.transport import openssl
from rankwise_gloo_tcp.transport.connecting import Incoming, Outgoing

#: Whether each end, that which dials first, is encrypted in C, by the standard library, or not at all.
ENCRYPTED = [("C", "C"), ("C", "standard"), ("standard", "C"), ("standard", "standard")]
WAYS: list[tuple[str, Any]] = [("unix", None), ("tcp", None), *(("tcp", ends) for ends in ENCRYPTED)]
#: More steps than either end makes.
MOST_STEPS = 8
#: How long a look waits for what the other end may have said; where that comes later, the next look finds it.
LOOK_MS = 20
PATIENCE_S = 20.0


class Owner:
    """What one end asks of its acceptor: it makes a step whenever `go_on` finds something to do."""

    size, connections, key, guarded, guards_payloads = 2, 1, b"k" * 32, True, False

    def __init__(self, rank: int, encrypted: str | None) -> None:
        self.rank, self.steps = rank, 0
        self.encryption = None
        if encrypted is not None:
            self.encryption = copy.copy(encryptions(True)[rank])
            self.encryption.compiled = encrypted == "C"
        self.watched: dict[int, tuple[int, Any]] = {}
        self.joined: list[Any] = []
        self.ended: list[Any] = []
        self.listening: Incoming | None = None
        self.verdict = True

    def watch_fd(self, sock: socket.socket, mask: int, handler: Any) -> None:
        self.watched[sock.fileno()] = mask, handler

    def unwatch(self, sock: socket.socket) -> None:
        self.watched.pop(sock.fileno(), None)

    def admit(self, source: int) -> bool:
        return self.verdict and not self.joined

    def incoming_ended(self, incoming: Incoming, keep: bool = False) -> None:
        self.listening = None
        if keep:
            self.unwatch(incoming.sock)
        else:
            self.ended.append(incoming)
            incoming.close()

    def outgoing_failed(self, outgoing: Outgoing, why: str, code: int = 0, broken_off: bool = False) -> None:
        assert broken_off, why  # else it is not tried again
        outgoing.close()
        self.ended.append(outgoing)

    def outgoing_crossed(self, outgoing: Outgoing) -> None:
        outgoing.close()
        self.ended.append("crossed")

    def join(self, source: int, sock: socket.socket, guards: Guards | None) -> None:
        self.joined.append(sock)

    def go_on(self) -> bool:
        """Make a step, if something has come to make it for."""
        poll = select.poll()
        for descriptor, (mask, _) in self.watched.items():
            poll.register(descriptor, mask)
        for descriptor, event in poll.poll(LOOK_MS) if self.watched else ():
            self.steps += 1
            self.watched[descriptor][1](event)
            return True
        return False


class Ends:
    """Who dials, and who listens, which has not accepted yet."""

    def __init__(self, way: str, encrypted: Any, stack: ExitStack) -> None:
        self.dialler, self.listener = (Owner(rank, encrypted and encrypted[rank]) for rank in range(2))
        self.near, known = way == "unix", {"uid": 0, "pid": 0, "cores": ("1", 1.0), "port": 0}
        if self.near:
            self.server = socket.socket(socket.AF_UNIX)
            self.server.bind("")  # a name that the system chooses
            known["unix"] = self.server.getsockname()[1:].decode()
        else:
            self.server = socket.create_server(("127.0.0.1", 0))
            known |= {"address": "127.0.0.1", "port": self.server.getsockname()[1]}
        self.server.listen()
        self.server.setblocking(False)
        self.card = Card(**{name: known.get(name, "") for name in Card._fields})
        stack.callback(self.close)
        self.dial()

    def dial(self) -> None:
        self.outgoing = Outgoing(self.dialler, 1, self.card, self.near)

    def accept(self) -> bool:
        """Accept what has connected."""
        if not select.select([self.server], [], [], 0)[0]:
            return False
        self.listener.listening = Incoming(self.listener, self.server.accept()[0], self.near)
        return True

    def go_on(self, *sides: Owner, steps: int = 1000) -> None:
        """Let sides go on, each in its turn, until nothing is left to be done, or they have made so many steps."""
        while any([self.go_on_once(side, steps) for side in sides]):
            assert not self.dialler.joined or self.listener.joined, "taken for established too early"

    def go_on_once(self, side: Owner, steps: int) -> bool:
        if side.steps >= steps:
            return False
        return (side is self.listener and self.accept()) or side.go_on()

    def settle(self) -> None:
        """Let both go on until the dialler has a connection, or has given up one."""
        deadline = monotonic() + PATIENCE_S
        while not (self.dialler.joined or self.dialler.ended):
            assert monotonic() < deadline
            self.go_on(self.dialler, self.listener)

    def finish(self) -> None:
        """Let both go on, and the dialler try again where that has broken off, until they talk to each other."""
        self.settle()
        if self.dialler.ended:
            self.dialler.ended.clear()
            self.dial()
            self.settle()
        assert len(self.dialler.joined) == len(self.listener.joined) == 1
        here, there = self.dialler.joined[0], self.listener.joined[0]
        for sender, receiver in ((here, there), (there, here)):
            assert sender.send(b"all is well") == 11
            room = bytearray(20)
            select.select([receiver.fileno()], [], [], 5)
            assert receiver.recv_into(room) == 11

    def close(self) -> None:
        self.server.close()
        for sock in (*self.dialler.joined, *self.listener.joined):
            sock.close()
        self.outgoing.sock.close()
        if self.listener.listening is not None:
            self.listener.listening.sock.close()


@contextmanager
def ends(way: str, encrypted: Any) -> Iterator[Ends]:
    if encrypted is not None and not openssl.is_usable():
        pytest.skip("nothing is encrypted here")
    with ExitStack() as stack:
        yield Ends(way, encrypted, stack)


@pytest.mark.parametrize("steps", range(MOST_STEPS))
@pytest.mark.parametrize(("way", "encrypted"), WAYS)
def test_who_dials_and_stands_still_tries_again_unless_the_connection_stands(
    way: str, encrypted: Any, steps: int
) -> None:
    """Who listens has given the connection up meanwhile, if it has not been told all that it waits for."""
    with ends(way, encrypted) as both:
        for step in range(steps):
            both.go_on(both.listener)
            both.go_on(both.dialler, steps=step + 1)
        both.go_on(both.listener)
        if both.listener.listening is not None:
            both.listener.incoming_ended(both.listener.listening)
        both.finish()


@pytest.mark.parametrize("steps", range(MOST_STEPS))
@pytest.mark.parametrize(("way", "encrypted"), WAYS)
def test_who_dials_waits_for_who_listens_and_stands_still(way: str, encrypted: Any, steps: int) -> None:
    with ends(way, encrypted) as both:
        both.go_on(both.dialler, both.listener, steps=steps)
        both.go_on(both.dialler)  # as far as it can alone
        assert len(both.dialler.joined) <= len(both.listener.joined)
        assert not both.dialler.ended
        both.finish()


@pytest.mark.parametrize("steps", range(MOST_STEPS))
@pytest.mark.parametrize(("way", "encrypted"), WAYS)
def test_who_listens_may_take_another_connection_until_the_last_word(way: str, encrypted: Any, steps: int) -> None:
    """The one that crosses it is told so, whenever that is, and nobody takes it for established."""
    with ends(way, encrypted) as both:
        both.go_on(both.dialler, both.listener, steps=steps)
        both.listener.verdict = False
        both.settle()
        assert both.dialler.ended == ([] if both.listener.joined else ["crossed"])
