"""Backends: what one is, what it can do, and how it is found by its name.

Authors of backends import everything from here, and the errors from `rankwise.errors`::

    from rankwise.backends import BackendSpec, Capabilities, Communicator, hookimpl

What only some backends need is loaded when its name is first asked for.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from rankwise.backends.apart import ApartWork
from rankwise.backends.capability import (
    COLLECTIVES,
    POINT_TO_POINT,
    REDUCTIONS,
    Answer,
    Capabilities,
    Cell,
    Condition,
    Device,
    Support,
    Why,
    conditional,
    derived,
    native,
    no,
)
from rankwise.backends.communicator import Communicator, Watch
from rankwise.backends.context import Context
from rankwise.backends.contract import Contract, Gauges
from rankwise.backends.declaration import (
    API_VERSION,
    IN_THREADS,
    Availability,
    BackendSpec,
    Check,
    Explanation,
    Runtime,
    Stage,
)
from rankwise.backends.fast_calls import Caller, Ends, Shortcuts, raise_ended
from rankwise.basics.arguments import whole_number
from rankwise.basics.arrays import (
    RAW,
    Array,
    Coordinates,
    as_bytes,
    dtype_mark,
    dtype_marked,
    dtype_name,
    dtype_text,
    is_sparse,
    known_dtype,
)
from rankwise.basics.deadline import Deadline, Timeout, seconds
from rankwise.basics.debug import DebugLevel, get_debug_level
from rankwise.basics.devices import DeviceKind, device_kind_named, device_names, kind_of, to_device, to_host
from rankwise.basics.loading import later, loading
from rankwise.basics.messages import COLLECTIVE_TAG, FINGERPRINT_TAG, MAX_TAG, Status, items_in, too_long, wrong_dtype
from rankwise.basics.recording import Trail
from rankwise.basics.reduce_op import REDUCE_OP_TABLE, REDUCE_OPS, ReduceOp, accumulation_dtype
from rankwise.basics.version import require_series
from rankwise.basics.work import COMPLETED, CompletedWork, FutureWork, Work
from rankwise.collective.call import Algorithm, Call, Prepared
from rankwise.collective.comparing import agree, mismatch
from rankwise.collective.fingerprint import Fingerprint, OrdersDifferError, counts, same_call

if TYPE_CHECKING:
    import rankwise.basics.native as compiled_parts
    import rankwise.basics.unasked as unasked_works
    import rankwise.collective.derived as derived_collectives
    from rankwise.backends.descriptions import describe_dtype, described_dtype
    from rankwise.backends.hookspecs import hookimpl
    from rankwise.backends.landing import Landing
    from rankwise.backends.mailbox import Mailbox
    from rankwise.basics import processes
    from rankwise.basics.debug import debug_log
    from rankwise.basics.ending import Ending, WorkFuture, ring
    from rankwise.basics.interrupts import aborted_by, heed, only_waited, start_thread
    from rankwise.basics.memory_order import Reordered, reordered
    from rankwise.basics.messages import pack_error, unpack_error
    from rankwise.basics.process_end import last_words, process_ending
    from rankwise.basics.shared import COMMON, IN_PLACE, PLACES, Blocks, note_shared, shared_blocks, shared_word
    from rankwise.basics.systems import blake2b
    from rankwise.basics.tracebacks import anew
    from rankwise.codec import decode, encode
    from rankwise.collective.algorithms.table import AlgorithmChoice, derived_algorithm, fitting_algorithm
    from rankwise.collective.executor import PointToPoint
    from rankwise.collective.issue_order import IssueOrder
    from rankwise.store import PrefixStore, Store
    from rankwise.store.patience import exchange, patiently

#: What is not needed by every process that names a backend, and where it is.
_LATER = {
    "describe_dtype": ("rankwise.backends.descriptions", "describe_dtype"),
    "described_dtype": ("rankwise.backends.descriptions", "described_dtype"),
    "hookimpl": ("rankwise.backends.hookspecs", "hookimpl"),
    "Landing": ("rankwise.backends.landing", "Landing"),
    "Mailbox": ("rankwise.backends.mailbox", "Mailbox"),
    "debug_log": ("rankwise.basics.debug", "debug_log"),
    "Ending": ("rankwise.basics.ending", "Ending"),
    "WorkFuture": ("rankwise.basics.ending", "WorkFuture"),
    "ring": ("rankwise.basics.ending", "ring"),
    "aborted_by": ("rankwise.basics.interrupts", "aborted_by"),
    "heed": ("rankwise.basics.interrupts", "heed"),
    "only_waited": ("rankwise.basics.interrupts", "only_waited"),
    "start_thread": ("rankwise.basics.interrupts", "start_thread"),
    "Reordered": ("rankwise.basics.memory_order", "Reordered"),
    "reordered": ("rankwise.basics.memory_order", "reordered"),
    "pack_error": ("rankwise.basics.messages", "pack_error"),
    "unpack_error": ("rankwise.basics.messages", "unpack_error"),
    "compiled_parts": ("rankwise.basics.native", ""),
    "last_words": ("rankwise.basics.process_end", "last_words"),
    "process_ending": ("rankwise.basics.process_end", "process_ending"),
    "COMMON": ("rankwise.basics.shared", "COMMON"),
    "unasked_works": ("rankwise.basics.unasked", ""),
    "IN_PLACE": ("rankwise.basics.shared", "IN_PLACE"),
    "Blocks": ("rankwise.basics.shared", "Blocks"),
    "PLACES": ("rankwise.basics.shared", "PLACES"),
    "shared_blocks": ("rankwise.basics.shared", "shared_blocks"),
    "note_shared": ("rankwise.basics.shared", "note_shared"),
    "shared_word": ("rankwise.basics.shared", "shared_word"),
    "processes": ("rankwise.basics.processes", ""),
    "blake2b": ("rankwise.basics.systems", "blake2b"),
    "anew": ("rankwise.basics.tracebacks", "anew"),
    "decode": ("rankwise.codec", "decode"),
    "encode": ("rankwise.codec", "encode"),
    "AlgorithmChoice": ("rankwise.collective.algorithms.table", "AlgorithmChoice"),
    "derived_algorithm": ("rankwise.collective.algorithms.table", "derived_algorithm"),
    "fitting_algorithm": ("rankwise.collective.algorithms.table", "fitting_algorithm"),
    "derived_collectives": ("rankwise.collective.derived", ""),
    "PointToPoint": ("rankwise.collective.executor", "PointToPoint"),
    "IssueOrder": ("rankwise.collective.issue_order", "IssueOrder"),
    "PrefixStore": ("rankwise.store", "PrefixStore"),
    "Store": ("rankwise.store", "Store"),
    "exchange": ("rankwise.store.patience", "exchange"),
    "patiently": ("rankwise.store.patience", "patiently"),
}

__all__ = [
    "Algorithm",
    "Call",
    "Prepared",
    # the declaration
    "API_VERSION",
    "IN_THREADS",
    "Availability",
    "BackendSpec",
    "Check",
    "Gauges",
    "Runtime",
    "hookimpl",
    "loading",
    "require_series",
    # what it can do
    "COLLECTIVES",
    "POINT_TO_POINT",
    "REDUCTIONS",
    "Answer",
    "Capabilities",
    "Cell",
    "Condition",
    "Device",
    "Support",
    "Why",
    "conditional",
    "derived",
    "native",
    "no",
    # one live group
    "COMPLETED",
    "ApartWork",
    "Communicator",
    "Contract",
    "CompletedWork",
    "Context",
    "FutureWork",
    "Landing",
    "Mailbox",
    "PrefixStore",
    "Store",
    "Watch",
    "Work",
    "Ending",
    "WorkFuture",
    "aborted_by",
    "anew",
    "exchange",
    "heed",
    "only_waited",
    "patiently",
    # what it may offer as a fast path
    "Caller",
    "Ends",
    "IssueOrder",
    "Shortcuts",
    "Trail",
    "raise_ended",
    # what it is handed
    "COLLECTIVE_TAG",
    "FINGERPRINT_TAG",
    "MAX_TAG",
    "RAW",
    "REDUCE_OPS",
    "REDUCE_OP_TABLE",
    "Array",
    "Deadline",
    "ReduceOp",
    "Timeout",
    "accumulation_dtype",
    "as_bytes",
    "dtype_name",
    "is_sparse",
    "items_in",
    "Coordinates",
    "Reordered",
    "reordered",
    # memory that ranks have in common
    "COMMON",
    "IN_PLACE",
    "PLACES",
    "Blocks",
    "note_shared",
    "shared_blocks",
    "shared_word",
    # where that may lie
    "DeviceKind",
    "device_kind_named",
    "device_names",
    "kind_of",
    "to_device",
    "to_host",
    # what it is
    "known_dtype",
    "dtype_mark",
    "dtype_marked",
    "dtype_text",
    "describe_dtype",
    "described_dtype",
    "seconds",
    "too_long",
    "whole_number",
    "wrong_dtype",
    # comparing what the ranks call
    "Fingerprint",
    "OrdersDifferError",
    "agree",
    "counts",
    "mismatch",
    "same_call",
    # collectives of its own, made of the core's
    "AlgorithmChoice",
    "Explanation",
    "Stage",
    "Status",
    "PointToPoint",
    "derived_algorithm",
    "derived_collectives",
    "fitting_algorithm",
    # objects as bytes
    "decode",
    "encode",
    # where it is and whom it trusts
    "DebugLevel",
    "blake2b",
    "compiled_parts",
    "unasked_works",
    "debug_log",
    "get_debug_level",
    # how others fail
    "pack_error",
    "last_words",
    "process_ending",
    "ring",
    "processes",
    "start_thread",
    "unpack_error",
]


__getattr__ = later(__name__, _LATER)
