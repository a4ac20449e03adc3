"""Loading what groups need, some 200 modules, when the first one is made, with no look at what else there is.

They make objects enough for the collector of garbage to look through all that the process has, and torch brings
170,000 objects. That would take longer than all the modules together, and find nothing: what is loaded is no garbage.
"""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def without_collecting() -> Iterator[None]:
    """Leave garbage where it is meanwhile, in all threads."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()
