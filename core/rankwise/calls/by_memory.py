"""Which arrays collectives may work on where they lie, in another memory order than C's."""

from __future__ import annotations

from typing import Any

import numpy as np

from rankwise.basics.arrays import as_array, is_registered, tell_of_write
from rankwise.basics.memory_order import Reordered, reordered
from rankwise.groups.process_group import ProcessGroup

__all__ = ["seen_by_memory"]


def seen_by_memory(group: ProcessGroup, value: Any, is_filled: bool) -> Reordered | None:
    """Return an array as its memory, if that lies in another order than C's and collectives may work on it.

    Another rank's array may lie otherwise, so only where the ranks compare their calls.

    Args:
        group: The group.
        value: What the caller has given.
        is_filled: Whether the array gets the result.
    """
    if type(value) is Reordered:
        return value
    array = value
    if type(value) is not np.ndarray:
        if not is_registered(value):
            return None
        try:
            array = as_array(value)
        except TypeError:  # which the check of the argument raises again, with its name
            return None
    found = reordered(array) if type(array) is np.ndarray and group.compares_calls() else None
    if found is not None and is_filled:
        tell_of_write(value)
    return found
