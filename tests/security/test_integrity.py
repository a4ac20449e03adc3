"""Frames that are changed on their way between two ranks, by somebody in the middle of their connection."""

from __future__ import annotations

import contextlib
import os
import socket
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from time import monotonic

import pytest

pytest.importorskip("rankwise_gloo_tcp")

from tests.security.jobs import job

from rankwise.errors import ProtocolError
from rankwise_gloo_tcp.engine.config import EngineConfig
from rankwise_gloo_tcp.engine.engine import Engine
from rankwise_gloo_tcp.protocol import frames, handshake
from rankwise_gloo_tcp.protocol.card import Card

KEY = b"k" * 32
PATIENCE_S = 10.0
#: What the dialler says before its first frame, and the frame up to its data.
HANDSHAKE_NBYTES = handshake.HELLO_NBYTES + handshake.PROOF_NBYTES
TAG_NBYTES = 8
DATA_AT = HANDSHAKE_NBYTES + frames.HEADER_NBYTES + TAG_NBYTES


class Middle:
    """Passes on what two ranks say to each other; flips one bit of what the dialler says, at one place."""

    def __init__(self, to: tuple[str, int], flip_at: int | None) -> None:
        self._to, self._flip_at = to, flip_at
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._ends: list[socket.socket] = []
        self.port = int(self._listener.getsockname()[1])
        self._threads = [threading.Thread(target=self._serve)]
        self._threads[0].start()

    def _serve(self) -> None:
        with contextlib.suppress(OSError):
            inner, _ = self._listener.accept()
            outer = socket.create_connection(self._to)
            for source, target, flip_at in ((inner, outer, self._flip_at), (outer, inner, None)):
                thread = threading.Thread(target=self._pass_on, args=(source, target, flip_at))
                self._threads.append(thread)
                thread.start()

    def _pass_on(self, source: socket.socket, target: socket.socket, flip_at: int | None) -> None:
        seen = 0
        with contextlib.suppress(OSError):
            while data := bytearray(source.recv(1 << 16)):
                if flip_at is not None and seen <= flip_at < seen + len(data):
                    data[flip_at - seen] ^= 1
                seen += len(data)
                target.sendall(data)
        for end in (source, target):
            with contextlib.suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)
        self._ends += [source, target]

    def close(self) -> None:
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        for thread in self._threads:
            thread.join(PATIENCE_S)
        for end in (self._listener, *self._ends):
            end.close()


@pytest.fixture
def message() -> Iterator[Callable[..., tuple[bytes, list[BaseException]]]]:
    """Send some bytes from rank 1 to rank 0 through the middle; return what came, and how rank 0 has failed."""
    with contextlib.ExitStack() as stack:

        def send(data: bytes, integrity: str, flip_at: int | None) -> tuple[bytes, list[BaseException]]:
            listener = socket.create_server(("127.0.0.1", 0))
            middle = Middle(listener.getsockname(), flip_at)
            stack.callback(middle.close)
            failures: list[BaseException] = []
            others: list[BaseException] = []
            known = {"uid": 0, "pid": 0, "address": "127.0.0.1", "port": middle.port, "integrity": integrity}
            card = Card(**{name: known.get(name, "") for name in Card._fields if name != "cores"}, cores=("1", 1.0))
            engines = [
                Engine(EngineConfig(rank, [card] * 2, KEY, True, (0, 1), 5.0, told.append, False))
                for rank, told in enumerate((failures, others))
            ]
            engines[0].listen(listener, near=False)
            room = bytearray(len(data))
            received = engines[0].receive_bytes(memoryview(room), 1, 7)
            engines[1].send_bytes(memoryview(data), 0, 7)
            deadline = monotonic() + PATIENCE_S
            while not (received.done or failures) and monotonic() < deadline:
                for engine in engines:
                    engine.look()
            if failures:
                engines[0].abort(failures[0])  # type: ignore[arg-type]
                while not others and monotonic() < deadline:
                    for engine in engines:
                        engine.look()
                # The other rank hears the reason, and not only that a connection has ended.
                assert str(failures[0]) in str(others[0])
                engines[1].abort(others[0])  # type: ignore[arg-type]
            for engine in engines:
                engine.close()
            return bytes(room), failures

        yield send


@pytest.mark.parametrize("integrity", ["header", "full"])
@pytest.mark.parametrize("nbytes", [1, 100, 70_000, 3 << 20])
def test_what_nobody_touches_arrives(message: Callable[..., object], integrity: str, nbytes: int) -> None:
    data = os.urandom(nbytes)
    assert message(data, integrity, None) == (data, [])


@pytest.mark.parametrize("integrity", ["header", "full"])
@pytest.mark.parametrize("at", [0, 4, 8, frames.HEADER_NBYTES - 1, frames.HEADER_NBYTES])
def test_a_changed_header_ends_the_group(message: Callable[..., object], integrity: str, at: int) -> None:
    _, failures = message(b"x" * 100, integrity, HANDSHAKE_NBYTES + at)  # type: ignore[misc]
    assert isinstance(failures[0], ProtocolError)


@pytest.mark.parametrize(("nbytes", "at"), [(1, 0), (100, 50), (100, 101), (70_000, 69_999), (3 << 20, 5)])
def test_changed_data_ends_the_group_where_it_is_guarded(message: Callable[..., object], nbytes: int, at: int) -> None:
    """The data, and the seal behind the byte that follows it."""
    _, failures = message(bytes(nbytes), "full", DATA_AT + at)  # type: ignore[misc]
    assert "changed on its way" in str(failures[0])


def test_changed_data_is_not_noticed_where_headers_alone_are_guarded(message: Callable[..., object]) -> None:
    """What SECURITY.md says of `header` is true: it is no protection of the data."""
    data, failures = message(bytes(100), "header", DATA_AT + 50)  # type: ignore[misc]
    assert failures == []
    assert data == bytes(50) + b"\1" + bytes(49)


@pytest.mark.parametrize(
    ("values", "said"),
    [
        (("full", "full"), "well"),
        (("header", "full"), "RANKWISE_GLOO_INTEGRITY set to full and to header"),
        (("none", "none"), "RANKWISE_GLOO_INTEGRITY=none: expected header, full or encrypted"),
    ],
)
def test_all_ranks_must_be_given_the_same(tmp_path: Path, values: tuple[str, str], said: str) -> None:
    outputs = job(tmp_path, [{"RANKWISE_GLOO_INTEGRITY": value} for value in values], 6 * PATIENCE_S)
    assert any(said in str(output) for output in outputs), outputs
