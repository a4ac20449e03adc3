"""`loading`: modules are loaded while the garbage collector stands back.

What they make stays as long as the process. The collector would look through it again and again, which takes up to a
tenth of a processor's time for a first group.
"""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager

__all__ = ["loading"]


@contextmanager
def loading() -> Iterator[None]:
    """Load modules in here, and do nothing else: meanwhile nothing is collected in any thread."""
    if not gc.isenabled():  # as the program wants it, or another thread that is loading
        yield
        return
    gc.disable()
    try:
        yield
    finally:
        gc.enable()
