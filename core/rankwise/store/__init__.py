"""Stores: keys and values that the processes of a job share, to find each other by."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rankwise.basics.loading import later
from rankwise.store.base import Store
from rankwise.store.prefix import PrefixStore, innermost

if TYPE_CHECKING:
    from rankwise.store.foreign import StoreLike, as_store
    from rankwise.store.memory import HashStore

__all__ = ["HashStore", "PrefixStore", "Store", "StoreLike", "as_store", "innermost"]

#: Few processes need these.
__getattr__ = later(
    __name__, {"rankwise.store.memory": ["HashStore"], "rankwise.store.foreign": ["StoreLike", "as_store"]}
)
