"""The hash of libsodium, which ZeroMQ has loaded for its own encryption: what tags headers where no interpreter is.

Compiled code calls it by its address, so that nothing is linked. Where it or the compiled parts are missing, guarded
connections are left to Python, and `hashlib` has the same hash.
"""

from __future__ import annotations

import ctypes
from functools import cache
from typing import Any

from rankwise.backends import blake2b, compiled_parts


@cache
def hash_address() -> int:
    """Return where compiled code finds `crypto_generichash_blake2b`, or 0."""
    if compiled_parts.module() is None:
        return 0
    try:
        from zmq.backend.cython import _zmq

        function = ctypes.CDLL(_zmq.__file__).crypto_generichash_blake2b  # ... or a library that this one needs has it
    except (ImportError, AttributeError, OSError):
        return 0
    return ctypes.cast(function, ctypes.c_void_p).value or 0 if _hashes_like_python(function) else 0


def _hashes_like_python(function: Any) -> bool:
    """Tell whether it returns what Python's hash does: else ranks would refuse each other's headers."""
    text, key, digest = bytes(range(41)), bytes(range(32)), ctypes.create_string_buffer(8)
    function.argtypes = [
        *(ctypes.c_char_p, ctypes.c_size_t),
        *(ctypes.c_char_p, ctypes.c_ulonglong),
        *(ctypes.c_char_p, ctypes.c_size_t),
    ]
    failed = function(digest, len(digest), text, len(text), key, len(key))
    return not failed and digest.raw == blake2b(text, key=key, digest_size=len(digest)).digest()
