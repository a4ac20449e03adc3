"""The job secret: where it comes from, what is made of it, and that it stays secret."""

from __future__ import annotations

import hashlib
import os
import socket
from contextlib import ExitStack
from pathlib import Path

import pytest
from tests import fresh
from tests.by_reference import call

from rankwise_launch.processes import hand_down
from rankwise_network import secret

PATIENCE_S = 20.0

VALUE = bytes(range(32))


@pytest.fixture(autouse=True)
def _unknown(no_secret: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(secret, "_loaded", {})
    monkeypatch.setattr(secret, "_given", None)


@pytest.fixture
def path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The file of the job secret, which the test has to write."""
    monkeypatch.setenv("RANKWISE_SECRET_FILE", str(tmp_path / "s"))
    return tmp_path / "s"


def write(path: Path, data: bytes, mode: int = 0o600) -> None:
    path.write_bytes(data)
    path.chmod(mode)


def test_without_a_variable_there_is_no_secret() -> None:
    assert secret.load() is None


def test_a_new_file_holds_a_new_secret_that_only_its_owner_can_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = []
    for name in ("a", "b"):
        secret.new_file(tmp_path / name)
        assert (tmp_path / name).stat().st_mode & 0o777 == 0o600
        monkeypatch.setenv("RANKWISE_SECRET_FILE", str(tmp_path / name))
        found.append(secret.load())
    assert all(value is not None and len(value) == 32 for value in found)
    assert found[0] != found[1]
    with pytest.raises(FileExistsError):
        secret.new_file(tmp_path / "a")


@pytest.mark.parametrize("data", [VALUE, VALUE.hex().encode(), VALUE.hex().upper().encode() + b"\n"])
def test_a_file_may_hold_bytes_or_hexadecimal_digits(path: Path, data: bytes) -> None:
    write(path, data)
    assert secret.load() == VALUE


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o644, 0o660])
def test_a_file_that_others_can_read_is_refused_with_the_command_that_mends_it(path: Path, mode: int) -> None:
    write(path, VALUE, mode)
    with pytest.raises(ValueError, match=f"chmod 600 {path}"):
        secret.load()


def test_a_file_of_another_user_is_refused(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(path, VALUE)
    monkeypatch.setattr(os, "geteuid", lambda: 54321)
    with pytest.raises(ValueError, match="belongs to user"):
        secret.load()


@pytest.mark.parametrize("data", [b"", VALUE[:31], VALUE + b"x", b"zz" * 32, VALUE.hex().encode()[:-2], b"x" * 500])
def test_what_is_no_secret_is_refused_without_being_shown(path: Path, data: bytes) -> None:
    write(path, data)
    with pytest.raises(ValueError, match="expected 32 bytes") as caught:
        secret.load()
    assert caught.value.__cause__ is None
    assert caught.value.__context__ is None
    assert data.hex()[:16] not in str(caught.value) or not data


def test_a_file_that_is_not_there_or_none_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for path in (tmp_path / "missing", tmp_path, Path("/dev/zero")):
        monkeypatch.setenv("RANKWISE_SECRET_FILE", str(path))
        with pytest.raises(ValueError, match="RANKWISE_SECRET_FILE="):
            secret.load()


def test_a_descriptor_in_memory_is_read_by_any_number_of_processes(monkeypatch: pytest.MonkeyPatch) -> None:
    descriptor = hand_down(VALUE)
    environment = os.environ | {"RANKWISE_SECRET_FD": str(descriptor)}
    for _ in range(2):
        assert call(fresh.read_secret, timeout_s=PATIENCE_S, env=environment, pass_fds=[descriptor]) == VALUE
    os.close(descriptor)


@pytest.mark.parametrize("text", ["", "x", "-1", "1.5"])
def test_what_is_no_descriptors_number_is_refused(monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    monkeypatch.setenv("RANKWISE_SECRET_FD", text)
    with pytest.raises(ValueError, match=f"RANKWISE_SECRET_FD={text}: expected the number"):
        secret.load()


@pytest.mark.parametrize("number", ["99999", "9" * 30])
def test_a_descriptor_that_was_not_inherited_brings_no_secret(monkeypatch: pytest.MonkeyPatch, number: str) -> None:
    monkeypatch.setenv("RANKWISE_SECRET_FD", number)
    assert (secret.load(), secret.is_withheld(os.environ)) == (None, True)
    monkeypatch.setenv("RANKWISE_SECRET_FILE", "/no/such/file")
    with pytest.raises(ValueError, match="RANKWISE_SECRET_FILE=/no/such/file"):
        secret.load()


@pytest.mark.parametrize("kind", ["pipe", "file", "socket", "folder"])
def test_nothing_but_what_a_launcher_has_handed_down_is_taken_for_the_secret(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    """Nor is it read: in a process that has not inherited it, the number may be anything's."""
    size = len(secret.to_hand_down(VALUE))
    (tmp_path / "file").write_bytes((2 * VALUE)[:size])
    with ExitStack() as stack:
        if kind == "socket":
            ours, theirs = map(stack.enter_context, socket.socketpair())
            descriptor, into = ours.fileno(), theirs.fileno()
        elif kind == "pipe":
            descriptor, into = os.pipe()
            stack.callback(os.close, descriptor)
            stack.callback(os.close, into)
        else:
            descriptor = os.open(tmp_path / kind.replace("folder", "."), os.O_RDONLY)
            stack.callback(os.close, descriptor)
        if kind in ("socket", "pipe"):
            os.write(into, VALUE)
        monkeypatch.setenv("RANKWISE_SECRET_FD", str(descriptor))
        assert (secret.load(), secret.is_withheld(os.environ)) == (None, True)
        if kind != "folder":
            assert os.read(descriptor, 32) == VALUE


def test_a_secret_that_was_set_counts_before_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RANKWISE_SECRET_FILE", "/no/such/file")
    secret.use(VALUE)
    assert secret.load() == VALUE
    with pytest.raises(ValueError, match="expected 32 bytes"):
        secret.use(b"short")


def test_a_secret_does_not_show_where_it_is_printed() -> None:
    value = secret.new()
    for text in (repr(value), str(value), f"{value}", f"{value!r}", f"{[value]}"):
        assert text.strip("[]") == "<job secret>"
    assert len(value) == 32


def test_keys_and_digests_are_keyed_blake2b_as_rfc_7693_says_with_a_mark_of_their_kind() -> None:
    key = hashlib.blake2b(b"purpose", key=VALUE, digest_size=32, person=b"rankwise key").digest()
    tag = hashlib.blake2b(bytes(7) + b"\x02ab", key=VALUE, digest_size=32, person=b"rankwise digest").digest()
    assert secret.derive(VALUE, "purpose") == key
    assert secret.digest(VALUE, b"ab") == tag
    assert len({secret.derive(VALUE, purpose) for purpose in ("a", "b", "ab", "")}) == 4


def test_keys_and_digests_do_without_openssl() -> None:
    assert not {"_hashlib", "hashlib", "hmac"} & call(fresh.verify_digest, timeout_s=PATIENCE_S)


def test_a_digest_tells_its_parts_apart() -> None:
    tag = secret.digest(VALUE, b"ab", b"c")
    assert secret.verify(VALUE, tag, b"ab", b"c")
    for parts in ((b"a", b"bc"), (b"abc",), (b"ab", b"c", b""), (b"ab", b"d")):
        assert not secret.verify(VALUE, tag, *parts)
    assert not secret.verify(VALUE, tag[:-1], b"ab", b"c")
    assert not secret.verify(VALUE[::-1], tag, b"ab", b"c")
