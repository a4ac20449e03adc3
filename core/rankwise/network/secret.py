"""The job secret: 32 random bytes that all processes of a job know and nobody else does.

Every key that guards the network is derived from it. It never appears in a log, an error or a command line, and is not
handed down in the environment, which other processes can read.
"""

from __future__ import annotations

import os
import select
import stat

try:
    from _operator import _compare_digest  # which `hmac` has under another name, and loads OpenSSL
except ImportError:
    from hmac import compare_digest as _compare_digest  # type: ignore[no-redef]

from rankwise.basics.systems import blake2b

__all__ = [
    *("ADVICE", "SECRET_NBYTES", "Secret", "derive", "digest", "from_hex", "given_or_loaded", "is_set"),
    *("load", "new", "new_file", "same", "use", "verify"),
]

SECRET_NBYTES = 32
_DIGEST_NBYTES = 32

#: Ends the message of every refusal for lack of a secret.
ADVICE = "make a job secret with `rankwise secret new FILE` and give it to all processes with RANKWISE_SECRET_FILE=FILE"

_FD, _FILE = "RANKWISE_SECRET_FD", "RANKWISE_SECRET_FILE"
_PIPE_PATIENCE_S = 1.0

_loaded: dict[tuple[str | None, str | None], Secret] = {}
_given: Secret | None = None


class Secret(bytes):
    """The job secret; its bytes do not show where it is printed."""

    def __repr__(self) -> str:
        return "<job secret>"

    __str__ = __repr__


def new() -> Secret:
    """Make a secret."""
    return Secret(os.urandom(SECRET_NBYTES))


def from_hex(text: str) -> Secret:
    """Return the secret of which `hex()` gave this text.

    Raises:
        ValueError: It is none.
    """
    return _parse(text.encode("ascii", "replace"), "the secret given")


def new_file(path: str | os.PathLike[str]) -> None:
    """Write a new secret to a new file that only its owner can read.

    Raises:
        FileExistsError: There is a file of that name.
    """
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)  # which follows no link
    with os.fdopen(descriptor, "w", encoding="ascii") as file:
        file.write(new().hex() + "\n")


def use(secret: bytes) -> None:
    """Set the secret of this process, for a launcher that has brought it in its own way.

    Raises:
        ValueError: It is none.
    """
    global _given
    _given = _parse(secret, "the secret given")


def is_set() -> bool:
    """Tell whether the process has set one."""
    return _given is not None


def load() -> Secret | None:
    """Return the job secret that was set or that the environment names; None if there is none.

    Raises:
        ValueError: What the environment names cannot be read, is no secret, or can be read by others.
    """
    if _given is not None:
        return _given
    key = os.environ.get(_FD), os.environ.get(_FILE)
    if key not in _loaded:
        if key[0] is not None:
            _loaded[key] = _from_descriptor(key[0])
        elif key[1] is not None:
            _loaded[key] = _from_file(key[1])
        else:
            return None
    return _loaded[key]


def given_or_loaded(secret: bytes | None, who: str) -> Secret | None:
    """Return a secret that was given as an argument, or else what `load` returns.

    Raises:
        ValueError: It is none; `who` was to use it.
    """
    if secret is None:
        return load()
    if len(secret) != SECRET_NBYTES:
        raise ValueError(f"{who}: a job secret has {SECRET_NBYTES} bytes, not {len(secret)}")
    return Secret(secret)


def derive(secret: bytes, purpose: str) -> bytes:
    """Derive a key of 32 bytes from the secret; keys for different purposes tell nothing about each other."""
    return blake2b(purpose.encode(), key=secret, digest_size=_DIGEST_NBYTES, person=b"rankwise key").digest()


def digest(key: bytes, *parts: bytes) -> bytes:
    """Return the keyed digest of a sequence of byte strings; where one ends and the next begins counts."""
    message = b"".join(len(part).to_bytes(8, "big") + part for part in parts)
    return blake2b(message, key=key, digest_size=_DIGEST_NBYTES, person=b"rankwise digest").digest()


def verify(key: bytes, tag: bytes, *parts: bytes) -> bool:
    """Tell, in constant time, whether `tag` is the digest of `parts`."""
    return same(tag, digest(key, *parts))


#: Tells, in constant time, whether two byte strings are the same.
same = _compare_digest


def _from_descriptor(text: str) -> Secret:
    origin = f"{_FD}={text}"
    if not (text.isascii() and text.isdigit()):
        raise ValueError(f"{origin}: expected the number of an inherited descriptor")
    descriptor = int(text)
    try:
        mode = os.fstat(descriptor).st_mode
        if stat.S_ISREG(mode):
            data = os.pread(descriptor, 128, 0)
        elif stat.S_ISFIFO(mode):
            data = _drain(descriptor)
        else:
            raise ValueError(f"{origin}: the descriptor is neither a file nor a pipe")
    except (OSError, OverflowError) as error:
        raise ValueError(
            f"{origin}: this process has not inherited that descriptor ({error}); start it with the launcher, or "
            f"use {_FILE}"
        ) from error
    return _parse(data, origin)


def _drain(descriptor: int) -> bytes:
    """Read a pipe that has been filled before this process was started; never wait long for one that was not."""
    data = b""
    while len(data) < 128 and select.select([descriptor], [], [], _PIPE_PATIENCE_S)[0]:
        chunk = os.read(descriptor, 128 - len(data))
        if not chunk:
            break
        data += chunk
        if len(data) in (SECRET_NBYTES, 2 * SECRET_NBYTES + 1):
            break
    return data


def _from_file(path: str) -> Secret:
    origin = f"{_FILE}={path}"
    if not hasattr(os, "geteuid"):
        raise ValueError(f"{origin}: this system does not tell who else can read a file")
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
    except (OSError, ValueError) as error:
        raise ValueError(f"{origin}: {error}; make it with `rankwise secret new {path}`") from error
    try:
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode):
            raise ValueError(f"{origin}: not a regular file")
        if status.st_uid != os.geteuid():
            raise ValueError(f"{origin}: it belongs to user {status.st_uid}, not to this one ({os.geteuid()})")
        if status.st_mode & 0o077:
            raise ValueError(f"{origin}: others can read it; run `chmod 600 {path}`, or better make a new one")
        data = os.read(descriptor, 128)
    finally:
        os.close(descriptor)
    return _parse(data, origin)


def _parse(data: bytes, origin: str) -> Secret:
    if len(data) == SECRET_NBYTES:
        return Secret(data)
    try:
        value = bytes.fromhex(data.decode("ascii"))
    except ValueError:
        value = b""
    if len(value) != SECRET_NBYTES:
        # Not a word about what was found: it may be a secret that was cut off.
        raise ValueError(f"{origin}: expected {SECRET_NBYTES} bytes, or as many in hexadecimal digits")
    return Secret(value)
