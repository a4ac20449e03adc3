"""`loading`: modules are loaded while the garbage collector stands back.

They make some ten thousand objects that stay as long as the process. The collector would look through them again and
again, which takes a tenth of the time in which a first group is made.
"""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager

__all__ = ["loading"]


@contextmanager
def loading() -> Iterator[None]:
    """Load modules in here, and do nothing else: nothing is collected meanwhile, in no thread."""
    if not gc.isenabled():  # as the program wants it, or another thread that is loading
        yield
        return
    gc.disable()
    try:
        yield
    finally:
        gc.enable()
