"""BLAKE2b, the one hash that is used here, as `hashlib` has it.

`hashlib` itself would load OpenSSL for its other functions: 4 ms and 4 MiB of every rank, for nothing.
"""

from __future__ import annotations

try:
    from _blake2 import blake2b
except ImportError:  # an interpreter that was built without it, and leaves it to OpenSSL
    from hashlib import blake2b

__all__ = ["blake2b"]
