"""What stores, and the network around them, are built on: the face of the core for authors of others.

A kind of store is a subclass of `Store`, or of `TableStore` if it can hold its entries in a table; a scheme of URLs
that leads to it is an entry point of the group `rankwise.rendezvous`. `rankwise-stores` and `rankwise-network` import
this module and `rankwise.errors`, and nothing else of the core.
"""

from __future__ import annotations

from rankwise.basics.arguments import is_integer, shown
from rankwise.basics.deadline import Deadline, Timeout, seconds
from rankwise.basics.debug import debug_log
from rankwise.basics.interrupts import heed, held, start_thread
from rankwise.basics.loading import later, loading
from rankwise.basics.secrecy import SECRET_NBYTES, Secret, given_secret
from rankwise.basics.systems import after_fork, blake2b, cause, descriptor_limit, keep_standard, process_stat, shortage
from rankwise.basics.tracebacks import shortened
from rankwise.store import HashStore, Store, operations
from rankwise.store.base import DEFAULT_TIMEOUT_S, GRACE_S, Operation, TableStore, in_words, late
from rankwise.store.foreign import StoreLike
from rankwise.store.memory import Table
from rankwise.store.primitives import (
    MAX_KEY_NBYTES,
    MAX_KEYS,
    MAX_VALUE_NBYTES,
    RESERVED,
    Missing,
    Primitives,
    Series,
    change,
    fits,
    to_amount,
    to_key,
    to_value,
)

__all__ = [
    "DEFAULT_TIMEOUT_S",
    "Deadline",
    "GRACE_S",
    "HashStore",
    "MAX_KEYS",
    "MAX_KEY_NBYTES",
    "MAX_VALUE_NBYTES",
    "Missing",
    "Operation",
    "Primitives",
    "RESERVED",
    "SECRET_NBYTES",
    "Secret",
    "Series",
    "Store",
    "StoreLike",
    "Table",
    "TableStore",
    "Timeout",
    "after_fork",
    "blake2b",
    "cause",
    "change",
    "debug_log",
    "descriptor_limit",
    "fits",
    "given_secret",
    "heed",
    "held",
    "in_words",
    "is_integer",
    "keep_standard",
    "late",
    "later",
    "loading",
    "operations",
    "process_stat",
    "seconds",
    "shortage",
    "shortened",
    "shown",
    "start_thread",
    "to_amount",
    "to_key",
    "to_value",
]
