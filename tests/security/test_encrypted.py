"""Encrypted connections between hosts: what somebody in the middle sees, changes or pretends to be."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from time import monotonic
from typing import Any

import pytest

pytest.importorskip("rankwise_gloo_tcp")
pytest.importorskip("cryptography", reason="the extra `encryption` is not installed")

import socket
import threading

from tests.security.jobs import job

from rankwise_gloo_tcp.engine.config import EngineConfig
from rankwise_gloo_tcp.engine.engine import Engine
from rankwise_gloo_tcp.protocol import handshake
from rankwise_gloo_tcp.protocol.card import Card
from rankwise_gloo_tcp.setup import privacy

KEY = b"k" * 32
#: How a text begins of the variable that is missing.
LACKING = "GLOO_DEVICE_TRANSPORT=TCP_TLS needs GLOO_DEVICE_TRANSPORT_TCP_TLS"
PATIENCE_S = 20.0
TIMEOUT_S = 90
HANDSHAKE_NBYTES = handshake.HELLO_NBYTES + handshake.PROOF_NBYTES
ENCRYPTED = [{"RANKWISE_GLOO_INTEGRITY": "encrypted"}] * 3
PLAIN = b"nobody else is to read this; "
#: On which of two ranks compiled code has OpenSSL encrypt, where it can, and not the standard library.
COMPILED = {"compiled": (True, True), "standard": (False, False), "from": (False, True), "to": (True, False)}


class Middle:
    """Passes on what two ranks say to each other, writes it down, and flips one bit of what the dialler says."""

    def __init__(self, to: tuple[str, int], flip_at: int | None) -> None:
        self._to, self._flip_at = to, flip_at
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = int(self._listener.getsockname()[1])
        self.seen: list[bytearray] = []
        self._ends: list[socket.socket] = []
        self._threads = [threading.Thread(target=self._serve)]
        self._threads[0].start()

    def _serve(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                inner, _ = self._listener.accept()
                outer = socket.create_connection(self._to)
                self._ends += [inner, outer]
                for source, target, flip_at in ((inner, outer, self._flip_at), (outer, inner, None)):
                    seen = bytearray()
                    self.seen.append(seen)
                    thread = threading.Thread(target=self._pass_on, args=(source, target, flip_at, seen))
                    self._threads.append(thread)
                    thread.start()

    def _pass_on(self, source: socket.socket, target: socket.socket, flip_at: int | None, seen: bytearray) -> None:
        with contextlib.suppress(OSError):
            while data := bytearray(source.recv(1 << 16)):
                if flip_at is not None and len(seen) <= flip_at < len(seen) + len(data):
                    data[flip_at - len(seen)] ^= 1
                seen += data
                target.sendall(data)
        for end in (source, target):
            with contextlib.suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        for end in (self._listener, *self._ends):
            with contextlib.suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)
        for thread in self._threads:
            thread.join(PATIENCE_S)
        for end in (self._listener, *self._ends):
            end.close()


Send = Callable[..., "tuple[bytes, list[BaseException], bytes]"]


@pytest.fixture
def send() -> Iterator[Send]:
    """Send some bytes from rank 1 to rank 0 through the middle; return what came, failures, and what was seen.

    A connection that ends without a word is a failure too: what a rank was told of why need not have reached it.
    """
    with contextlib.ExitStack() as stack:

        def run(
            data: bytes,
            encrypted: bool = True,
            flip_at: int | None = None,
            stranger: bool = False,
            way: str = "compiled",
        ) -> Any:
            listener = socket.create_server(("127.0.0.1", 0))
            middle = Middle(listener.getsockname(), flip_at)
            stack.callback(middle.close)
            known: dict[str, Any] = {"uid": 0, "pid": 0, "address": "127.0.0.1", "port": middle.port}
            blank = Card(**{name: known.get(name, "") for name in Card._fields if name != "cores"}, cores=("1", 1.0))
            mine = [privacy.prepare("encrypted" if encrypted else "header") for _ in range(2)]
            cards = [blank._replace(certificate=each.certificate if each else "") for each in mine]
            if stranger:
                mine[1] = privacy.prepare("encrypted")
            failures: list[list[BaseException]] = [[], []]
            engines = []
            for rank in range(2):
                encryption = privacy.encryption(mine[rank], cards, (0, 1), "default")
                if encryption is not None:
                    encryption.compiled = encryption.compiled and COMPILED[way][rank]
                config = EngineConfig(
                    *(rank, cards, KEY, True, (0, 1), 8.0, failures[rank].append, False), encryption=encryption
                )
                engines.append(Engine(config))
            engines[0].listen(listener, near=False)
            room = bytearray(len(data))
            received = engines[0].receive_bytes(memoryview(room), 1, 7)
            engines[1].send_bytes(memoryview(data), 0, 7)
            deadline = monotonic() + PATIENCE_S
            dead: list[BaseException] = []
            while not (received.done or any(failures) or dead) and monotonic() < deadline:
                for engine in engines:
                    engine.look()
                dead = [peer.dead for engine in engines for peer in engine.peers.all if peer.dead is not None]
            for engine, failed in zip(engines, failures, strict=True):
                if failed:
                    engine.abort(failed[0])  # type: ignore[arg-type]
            for engine in engines:
                with contextlib.suppress(Exception):
                    engine.close()
            return bytes(room), [*failures[0], *failures[1], *dead], b"".join(middle.seen)

        yield run


@pytest.mark.parametrize("way", COMPILED)
@pytest.mark.parametrize("nbytes", [1, 100, 16 << 10, 70_000, 3 << 20])
def test_what_nobody_touches_arrives(send: Send, nbytes: int, way: str) -> None:
    data = os.urandom(nbytes)
    assert send(data, way=way)[:2] == (data, [])


@pytest.mark.parametrize("way", COMPILED)
@pytest.mark.parametrize("encrypted", [True, False])
def test_the_wire_shows_nothing_of_the_data(send: Send, encrypted: bool, way: str) -> None:
    data = PLAIN * 5000
    came, failures, seen = send(data, encrypted=encrypted, way=way)
    assert (came, failures) == (data, [])
    assert len(seen) > len(data)
    assert (PLAIN in seen) is not encrypted


@pytest.mark.parametrize("way", COMPILED)
@pytest.mark.parametrize("at", [2000, 60_000])
def test_a_changed_record_ends_the_group(send: Send, at: int, way: str) -> None:
    data = PLAIN * 5000
    came, failures, _ = send(data, flip_at=HANDSHAKE_NBYTES + at, way=way)
    assert came != data
    assert "changed on its way" in str(failures[0])


@pytest.mark.parametrize("way", COMPILED)
def test_who_has_another_certificate_is_not_let_in(send: Send, way: str) -> None:
    data = PLAIN * 10
    came, failures, seen = send(data, stranger=True, way=way)
    assert came == bytes(len(data))
    assert PLAIN not in seen
    assert failures


@pytest.mark.parametrize("compiled", [("on", "on", "on"), ("off", "on", "off"), ("off", "off", "off")])
def test_a_job_runs_encrypted(tmp_path: Path, compiled: tuple[str, ...]) -> None:
    variables = [{**common, "RANKWISE_NATIVE": each} for common, each in zip(ENCRYPTED, compiled, strict=True)]
    assert job(tmp_path, variables, TIMEOUT_S) == ["well"] * 3


def test_it_is_refused_if_one_rank_lacks_it(tmp_path: Path) -> None:
    for said in map(str, job(tmp_path, ENCRYPTED, TIMEOUT_S, lacking=[1])):
        assert "rank 1 cannot make a certificate" in said
        assert "rankwise-gloo-tcp[encryption]" in said


def files(folder: Path, name: str) -> dict[str, str]:
    """Make a certificate that signs others and one that it has signed; return torch's variables for them."""
    from datetime import datetime, timedelta

    from cryptography import x509
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec

    keys = [ec.generate_private_key(ec.SECP256R1()) for _ in range(2)]
    names = [x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, f"{name} {i}")]) for i in range(2)]
    now, pem = datetime.now(), serialization.Encoding.PEM
    for index, is_ca in ((0, True), (1, False)):
        made = x509.CertificateBuilder(
            *(names[0], names[index], keys[index].public_key(), x509.random_serial_number()),
            *(now - timedelta(days=9), now + timedelta(days=9)),
        ).add_extension(x509.BasicConstraints(ca=is_ca, path_length=None), critical=True)
        text = made.sign(keys[0], hashes.SHA256()).public_bytes(pem)
        (folder / f"{name}-{index}.pem").write_bytes(text)
    key = keys[1].private_bytes(pem, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    (folder / f"{name}.key").write_bytes(key)
    prefix = "GLOO_DEVICE_TRANSPORT_TCP_TLS_"
    return {
        "GLOO_DEVICE_TRANSPORT": "TCP_TLS",
        f"{prefix}PKEY": str(folder / f"{name}.key"),
        f"{prefix}CERT": str(folder / f"{name}-1.pem"),
        f"{prefix}CA_FILE": str(folder / f"{name}-0.pem"),
    }


def test_torchs_variables_encrypt_without_a_job_secret(tmp_path: Path) -> None:
    assert job(tmp_path, [files(tmp_path, "ours")] * 3, TIMEOUT_S, has_secret=False) == ["well"] * 3


def test_who_was_signed_by_somebody_else_is_not_let_in(tmp_path: Path) -> None:
    ours, theirs = files(tmp_path, "ours"), files(tmp_path, "theirs")
    told = job(tmp_path, [ours, ours, theirs], TIMEOUT_S, has_secret=False)
    assert "well" not in told
    assert any("cannot be encrypted" in str(said) for said in told), told


def test_all_ranks_have_torchs_variables_or_none_and_they_are_complete(tmp_path: Path) -> None:
    ours = files(tmp_path, "ours")
    told = job(tmp_path, [ours, ours, {}], TIMEOUT_S)
    assert all("GLOO_DEVICE_TRANSPORT set to TCP and to TCP_TLS" in str(said) for said in told), told
    (tmp_path / "secret").unlink()
    (tmp_path / "meet").unlink(missing_ok=True)
    lacking = {name: value for name, value in ours.items() if not name.endswith("CA_FILE")}
    said = job(tmp_path, [lacking] * 3, TIMEOUT_S)[0]
    assert str(said).startswith(
        "ValueError init_process_group: GLOO_DEVICE_TRANSPORT=TCP_TLS needs GLOO_DEVICE_TRANSPORT_TCP_TLS_CA_FILE"
    )
