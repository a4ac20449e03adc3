"""The OpenSSL that `cryptography` brings along: contexts like those of `ssl`, whose connections compiled code uses.

It is newer than most systems', and encrypts several times as fast on processors that have instructions for it; and the
addresses of its functions are known, so that compiled code calls them without the interpreter. Where it or the compiled
parts are missing, `ssl` does the same.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from typing import TYPE_CHECKING, Any

from rankwise.backends import compiled_parts

if TYPE_CHECKING:
    from rankwise_native import Tls

#: What compiled code calls.
_CALLED = (
    *("SSL_read", "SSL_write", "SSL_get_error", "SSL_pending", "SSL_do_handshake"),
    *("ERR_clear_error", "ERR_get_error", "ERR_reason_error_string"),
)


@cache
def _load() -> tuple[Any, Any, dict[str, int]] | None:
    """Return what declares OpenSSL's functions, what has them, and the addresses of those that are called."""
    if compiled_parts.module() is None:
        return None
    try:
        from cryptography.hazmat.bindings._rust import _openssl  # which is where pyOpenSSL has it from

        ffi, lib = _openssl.ffi, _openssl.lib
        addresses = {name: int(ffi.cast("uintptr_t", ffi.addressof(lib, name))) for name in _CALLED}
        for name in ("SSL_CTX_set_min_proto_version", "SSL_CTX_use_certificate_chain_file", "SSL_set_fd"):
            getattr(lib, name)
    except (ImportError, AttributeError):
        return None  # another version, which has it elsewhere
    return ffi, lib, addresses


def is_usable() -> bool:
    """Tell whether compiled code can encrypt."""
    return _load() is not None


class Context:
    """What `ssl.SSLContext` is elsewhere, for TLS 1.3 with certificates on both sides.

    Args:
        dials: Whether it is for the side that has connected.
    """

    def __init__(self, dials: bool) -> None:
        loaded = _load()
        assert loaded is not None, "it is not usable"
        self._ffi, self._lib, self._addresses = loaded
        lib, self._dials = self._lib, dials
        self._context = self._ffi.gc(lib.SSL_CTX_new(lib.TLS_method()), lib.SSL_CTX_free)
        self._check(lib.SSL_CTX_set_min_proto_version(self._context, lib.TLS1_3_VERSION))
        lib.SSL_CTX_set_verify(self._context, lib.SSL_VERIFY_PEER | lib.SSL_VERIFY_FAIL_IF_NO_PEER_CERT, self._ffi.NULL)
        # What a socket has no room for is tried again with whatever comes then.
        lib.SSL_CTX_set_mode(self._context, lib.SSL_MODE_ENABLE_PARTIAL_WRITE | lib.SSL_MODE_ACCEPT_MOVING_WRITE_BUFFER)
        lib.SSL_CTX_set_session_cache_mode(self._context, lib.SSL_SESS_CACHE_OFF)  # nothing is resumed

    def load_cert_chain(self, certfile: str, keyfile: str | None = None) -> None:
        """Use a certificate and its key.

        Raises:
            ValueError: They make no sense.
        """
        lib = self._lib
        self._check(lib.SSL_CTX_use_certificate_chain_file(self._context, certfile.encode()))
        key = (keyfile or certfile).encode()
        self._check(lib.SSL_CTX_use_PrivateKey_file(self._context, key, lib.SSL_FILETYPE_PEM))

    def load_verify_locations(
        self, cafile: str | None = None, capath: str | None = None, cadata: str | None = None
    ) -> None:
        """Believe those whom one of these certificates has signed.

        Raises:
            ValueError: They make no sense.
        """
        if cadata is not None:
            with as_file(cadata.encode()) as path:
                self.load_verify_locations(path)
            return
        names = [self._ffi.NULL if name is None else name.encode() for name in (cafile, capath)]
        self._check(self._lib.SSL_CTX_load_verify_locations(self._context, *names))

    def wrap(self, sock: socket.socket) -> Tls:
        """Return what encrypts a connection; it reads and writes the socket by itself."""
        from rankwise_native import Tls

        lib = self._lib
        made = self._ffi.gc(lib.SSL_new(self._context), lib.SSL_free)
        self._check(lib.SSL_set_fd(made, sock.fileno()))
        (lib.SSL_set_connect_state if self._dials else lib.SSL_set_accept_state)(made)
        return Tls(made, int(self._ffi.cast("uintptr_t", made)), sock.fileno(), self._addresses)

    def _check(self, result: int) -> None:
        if result == 1:
            return
        reason = self._lib.ERR_reason_error_string(self._lib.ERR_get_error())
        self._lib.ERR_clear_error()
        raise ValueError("OpenSSL says no" if reason == self._ffi.NULL else self._ffi.string(reason).decode())


@contextmanager
def as_file(data: bytes) -> Iterator[str]:
    """Give the name of a file with some bytes that nobody else can read: OpenSSL takes keys from files."""
    # opens: the key and the certificate of an encrypted connection, until OpenSSL has read them
    # reached by: processes of this user, and root, through /proc
    # guarded by: no name; where there is no memory without one, a file of mode 0600
    # proved by: tests/security/test_encrypted.py
    if hasattr(os, "memfd_create") and os.path.isdir("/proc/self/fd"):
        descriptor = os.memfd_create("rankwise-key", os.MFD_CLOEXEC)
        try:
            os.write(descriptor, data)
            yield f"/proc/self/fd/{descriptor}"
        finally:
            os.close(descriptor)
        return
    import tempfile

    with tempfile.NamedTemporaryFile() as file:  # of mode 0600
        file.write(data)
        file.flush()
        yield file.name
