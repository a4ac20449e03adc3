"""A store on the other side of a slow network, where an answer takes longer than some waits."""

from __future__ import annotations

import heapq
import itertools
import socket
import threading
import time
from contextlib import suppress

import pytest

from rankwise.basics.deadline import Deadline
from rankwise.errors import DistTimeoutError
from rankwise.store.patience import patiently
from rankwise_stores import TCPStore

PATIENCE_S = 20.0

TRIP_S = 0.15


class Detour:
    """A port on loopback from which everything goes to another one, and back, but late."""

    def __init__(self, port: int) -> None:
        self.connections = 0
        self._port = port
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = self._listener.getsockname()[1]
        self._sockets = [self._listener]
        self._changed = threading.Condition()
        self._late: list[tuple[float, int, socket.socket, bytes]] = []
        self._numbers = itertools.count()
        for target in (self._accept, self._deliver):
            threading.Thread(target=target, daemon=True).start()

    def close(self) -> None:
        with self._changed:
            self._late = [(0.0, -1, self._listener, b"")]
            self._changed.notify()
        for sock in self._sockets:
            with suppress(OSError):
                sock.shutdown(socket.SHUT_RDWR)
            sock.close()

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                near, _ = self._listener.accept()
                self.connections += 1
                far = socket.create_connection(("127.0.0.1", self._port))
                self._sockets += [near, far]
                for source, target in ((near, far), (far, near)):
                    threading.Thread(target=self._carry, args=(source, target), daemon=True).start()

    def _carry(self, source: socket.socket, target: socket.socket) -> None:
        with suppress(OSError):
            while data := source.recv(65536):
                with self._changed:
                    heapq.heappush(self._late, (time.monotonic() + TRIP_S, next(self._numbers), target, data))
                    self._changed.notify()

    def _deliver(self) -> None:
        while True:
            with self._changed:
                while not self._late or self._late[0][0] > time.monotonic():
                    self._changed.wait(self._late[0][0] - time.monotonic() if self._late else None)
                _, _, target, data = heapq.heappop(self._late)
            if target is self._listener:
                return
            with suppress(OSError):
                target.sendall(data)


@pytest.fixture
def master():
    with TCPStore("127.0.0.1", 0, None, True, 20) as store:
        yield store


@pytest.fixture
def detour(master):
    detour = Detour(master.port)
    yield detour
    detour.close()


@pytest.fixture
def slow(detour):
    with TCPStore("127.0.0.1", detour.port, None, False, 20) as store:
        yield store


def test_a_wait_that_was_given_up_leaves_the_connection_as_it_was(master, detour, slow):
    for _ in range(3):
        with pytest.raises(DistTimeoutError):
            slow.get("key", timeout=0.05)
    master.set("key", "value")
    assert slow.get("key") == b"value"
    assert slow.get("key") == b"value"  # not an answer to what was asked before
    assert detour.connections == 1


def test_a_connection_that_takes_longer_than_each_request_stands_in_the_end(master, detour):
    with TCPStore("127.0.0.1", detour.port, None, False, 20) as store:
        first = threading.Thread(target=store.get, args=("first",))  # the one connection that there is so far
        first.start()
        store.set_timeout(0.2)
        deadline = Deadline(20)
        while not master.check(["second"]) and not deadline.expired():
            with suppress(DistTimeoutError):
                store.set("second", "value")
        assert master.get("second", timeout=0) == b"value"
        assert detour.connections == 2
        master.set("first", "")
        first.join(PATIENCE_S)


def test_waiting_patiently_gets_an_answer_that_takes_longer_than_a_wait(master, slow):
    looks = []

    def look():
        looks.append(True)
        master.set("key", "value")

    assert patiently(lambda wait_s: slow.get("key", wait_s), Deadline(20), look) == b"value"
    assert looks
    with pytest.raises(DistTimeoutError):
        patiently(lambda wait_s: slow.get("none", wait_s), Deadline(0.3), look)
