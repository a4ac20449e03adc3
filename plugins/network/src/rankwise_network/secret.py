"""The job secret: 32 random bytes that all processes of a job know and nobody else does.

Every key that guards the network is derived from it. It never appears in a log, an error or a command line, and is not
handed down in the environment, which other processes can read.

Programs and engines that bring it to their processes in a way of their own find this module as `rankwise.secret`: `use`
sets the secret of this process, as `RANKWISE_SECRET_FILE` would; a process that takes part in several jobs hands each
store or group its own, as the argument `secret`.

Examples:
    >>> mine = dist.secret.new()
    >>> print(mine)
    <job secret>
    >>> dist.secret.from_hex(mine.hex()) == mine
    True
"""

from __future__ import annotations

import os
import stat
from collections.abc import Mapping

try:
    from _operator import _compare_digest  # which `hmac` has under another name, and loads OpenSSL
except ImportError:
    from hmac import compare_digest as _compare_digest  # type: ignore[no-redef]

from rankwise.stores import SECRET_NBYTES as SECRET_NBYTES
from rankwise.stores import Secret as Secret
from rankwise.stores import blake2b, given_secret

__all__ = [
    *("ADVICE", "SECRET_NBYTES", "Secret", "derive", "digest", "from_hex", "given_or_loaded", "is_set"),
    *("is_withheld", "load", "new", "new_file", "same", "to_hand_down", "use", "verify"),
]

_DIGEST_NBYTES = 32

#: Ends the message of every refusal for lack of a secret.
ADVICE = "make a job secret with `rankwise secret new FILE` and give it to all processes with RANKWISE_SECRET_FILE=FILE"

_FD, _FILE = "RANKWISE_SECRET_FD", "RANKWISE_SECRET_FILE"
#: Begins a file that a launcher hands down: what else may have its descriptor's number in some process is not read.
_MARK = b"the job secret of rankwise\n"

_loaded: dict[tuple[str | None, str | None], Secret] = {}
_given: Secret | None = None


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
    # opens: the file of the job secret
    # reached by: users who may read its folder
    # guarded by: made with mode 0600, never over another; wider permissions are refused
    # proved by: tests/core/test_secret.py
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


def is_withheld(env: Mapping[str, str]) -> bool:
    """Tell whether a launcher has handed a secret to a process above this one, and that has not passed it on.

    So it is where a rank starts a process by `subprocess`, which closes all descriptors: what the launcher has told of
    the job is the rank's place, and not this process's.
    """
    return _given is None and bool(env.get(_FD)) and _from_descriptor(env[_FD]) is None


def load() -> Secret | None:
    """Return the job secret that was set or that the environment names; None if there is none.

    Raises:
        ValueError: What the environment names cannot be read, is no secret, or can be read by others.
    """
    if _given is not None:
        return _given
    key = os.environ.get(_FD), os.environ.get(_FILE)
    if key not in _loaded:
        found = None if key[0] is None else _from_descriptor(key[0])
        if found is None and key[1] is not None:
            found = _from_file(key[1])
        if found is None:
            return None
        _loaded[key] = found
    return _loaded[key]


def to_hand_down(secret: bytes) -> bytes:
    """Return what a file holds by whose descriptor a launcher hands a secret down."""
    return _MARK + secret


def given_or_loaded(secret: bytes | None, who: str) -> Secret | None:
    """Return a secret that was given as an argument, or else what `load` returns.

    Raises:
        ValueError: It is none; `who` was to use it.
    """
    return load() if secret is None else given_secret(secret, who)


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


def _from_descriptor(text: str) -> Secret | None:
    """Return the secret that was handed down by a descriptor; None if this process has not inherited it."""
    if not (text.isascii() and text.isdigit()):
        raise ValueError(f"{_FD}={text}: expected the number of an inherited descriptor")
    try:
        status = os.fstat(int(text))
        if not stat.S_ISREG(status.st_mode) or status.st_size != len(_MARK) + SECRET_NBYTES:
            return None
        data = os.pread(int(text), status.st_size, 0)
    except (OSError, OverflowError):
        return None
    return Secret(data.removeprefix(_MARK)) if data.startswith(_MARK) else None


def _from_file(path: str) -> Secret:
    origin = f"{_FILE}={path}"
    if not hasattr(os, "geteuid"):
        raise ValueError(f"{origin}: this system does not tell who else can read a file")
    try:
        # opens: the file of the job secret
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
