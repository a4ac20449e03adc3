"""Whether this process has file descriptors left: asked before a library needs some and cannot cope without them."""

from __future__ import annotations

import contextlib
import os

__all__ = ["need"]


def need(count: int) -> None:
    """See that so many descriptors can be opened.

    Raises:
        OSError: They cannot.
    """
    with contextlib.ExitStack() as stack:
        for _ in range(count):
            stack.callback(os.close, os.open(os.devnull, os.O_RDONLY))
