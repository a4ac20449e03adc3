"""Whether this process has file descriptors left: asked before a library needs some and cannot cope without them."""

from __future__ import annotations

import os

__all__ = ["need"]


def need(count: int) -> None:
    """See that so many descriptors can be opened.

    Raises:
        OSError: They cannot.
    """
    held = [os.open(os.devnull, os.O_RDONLY)]
    try:
        while len(held) < count:
            held.append(os.dup(held[0]))
    finally:
        for descriptor in held:
            os.close(descriptor)
