"""The job's secret: 32 random bytes that all its processes know, and nobody else.

The launcher makes it and hands it down by a descriptor (`RANKWISE_SECRET_FD`); by hand, `rankwise secret new FILE`
makes one and `RANKWISE_SECRET_FILE=FILE` names it. Environment variables hold the way to it, never the secret: they
can be read in /proc by others.
"""

from __future__ import annotations

import hashlib
import hmac
import os
import secrets
import stat

from rankwise.errors import DistError

__all__ = ["ADVICE", "SECRET_NBYTES", "derive", "load", "make_file", "use"]

SECRET_NBYTES = 32

#: What to tell those who need a secret and have none.
ADVICE = "make a secret with `rankwise secret new FILE` and set RANKWISE_SECRET_FILE=FILE for every rank"

_given: bytes | None = None


def use(secret: bytes) -> None:
    """Set the secret for this process, for a launcher or a runtime that has brought it in its own way."""
    global _given
    _given = _checked(secret, "the secret given")


def load() -> bytes | None:
    """Return the job's secret, or None if there is none.

    Raises:
        DistError: It cannot be read, is too short, or is in a file that others can read.
    """
    global _given
    if _given is None and "RANKWISE_SECRET_FD" in os.environ:
        _given = _from_descriptor(os.environ["RANKWISE_SECRET_FD"])
    if _given is not None:
        return _given
    path = os.environ.get("RANKWISE_SECRET_FILE")
    return _from_file(path) if path else None


def make_file(path: str) -> None:
    """Write a new secret into a new file that only its owner can read."""
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(descriptor, "wb") as file:
        file.write(secrets.token_bytes(SECRET_NBYTES))


def derive(secret: bytes, purpose: str, length: int = 32) -> bytes:
    """Return a key for one purpose (HKDF with SHA-256, RFC 5869); keys of different purposes are unrelated."""
    seed = hmac.digest(b"rankwise", secret, hashlib.sha256)
    blocks, block = b"", b""
    for counter in range(1, 2 + length // 32):
        block = hmac.digest(seed, block + purpose.encode() + bytes([counter]), hashlib.sha256)
        blocks += block
    return blocks[:length]


def _from_descriptor(text: str) -> bytes:
    try:
        descriptor = int(text)
        # A file in memory can be read again by a child that inherits it; a pipe can be read once, by one process.
        data = os.pread(descriptor, 4096, 0) if _can_seek(descriptor) else os.read(descriptor, 4096)
    except (ValueError, OSError) as error:
        raise DistError(f"RANKWISE_SECRET_FD={text} cannot be read: {error}") from error
    return _checked(data, f"RANKWISE_SECRET_FD={text}")


def _can_seek(descriptor: int) -> bool:
    return stat.S_ISREG(os.fstat(descriptor).st_mode)


def _from_file(path: str) -> bytes:
    try:
        with open(path, "rb") as file:
            mode = os.fstat(file.fileno())
            data = file.read(4096)
    except OSError as error:
        raise DistError(f"RANKWISE_SECRET_FILE={path} cannot be read: {error.strerror}") from error
    if mode.st_mode & 0o077 or mode.st_uid != os.geteuid():
        raise DistError(f"RANKWISE_SECRET_FILE={path} must be yours and readable by you alone: chmod 600 {path}")
    return _checked(data, f"RANKWISE_SECRET_FILE={path}")


def _checked(data: bytes, where: str) -> bytes:
    if len(data) < SECRET_NBYTES:
        raise DistError(f"{where} has {len(data)} bytes, but a secret has at least {SECRET_NBYTES}")
    return data
