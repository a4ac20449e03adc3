"""Backends: what one is, what it can do, and how it is found by its name.

Authors of backends import everything from here, and the errors from `rankwise.errors`::

    from rankwise.backends import BackendSpec, Capabilities, Communicator, hookimpl

What only some backends need is loaded when its name is first asked for.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from rankwise.backends.capability import Answer, Capabilities
from rankwise.backends.cells import Cell, Condition, Device, Support, Why, conditional, derived, native, no
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
from rankwise.backends.vocabulary import COLLECTIVES, POINT_TO_POINT, REDUCTIONS
from rankwise.basics import unasked as unasked_works
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
    is_known,
    is_sparse,
    known_dtype,
)
from rankwise.basics.deadline import Deadline, Timeout, seconds
from rankwise.basics.debug import DebugLevel, debug_log, get_debug_level
from rankwise.basics.devices import DeviceKind, device_kind_named, device_names, kind_of, to_device, to_host
from rankwise.basics.ending import Ending, ring
from rankwise.basics.interrupts import aborted_by, heed, only_waited, start_thread
from rankwise.basics.loading import later, loading
from rankwise.basics.messages import (
    COLLECTIVE_TAG,
    FINGERPRINT_TAG,
    MAX_TAG,
    Status,
    items_in,
    pack_error,
    too_long,
    unpack_error,
    wrong_dtype,
)
from rankwise.basics.reduce_op import REDUCE_OP_TABLE, REDUCE_OPS, ReduceOp, accumulation_dtype
from rankwise.basics.systems import blake2b, last_words
from rankwise.basics.tracebacks import anew
from rankwise.basics.version import require_series
from rankwise.basics.work import COMPLETED, CompletedWork, FutureWork, Work
from rankwise.collective.algorithms import Recv, Send
from rankwise.collective.call import Algorithm, Call, Prepared
from rankwise.collective.executor import PointToPoint, joined
from rankwise.collective.fingerprint import Fingerprint, OrdersDifferError, agree, counts, mismatch, same_call

if TYPE_CHECKING:
    import rankwise.basics.native as compiled_parts
    import rankwise.collective.derived as derived_collectives
    from rankwise.backends.communicator import Communicator, Watch
    from rankwise.backends.contract import Context, Contract, Gauges
    from rankwise.backends.fast_calls import Caller, Ends, Shortcuts
    from rankwise.backends.hookspecs import hookimpl
    from rankwise.backends.landing import ApartWork, Landing
    from rankwise.backends.mailbox import Mailbox, describe_dtype, described_dtype
    from rankwise.basics.memory_order import Reordered, reordered
    from rankwise.basics.recording import Trail
    from rankwise.basics.shared import COMMON, IN_PLACE, PLACES, Blocks, note_shared, shared_blocks, shared_word
    from rankwise.basics.work_future import WorkFuture
    from rankwise.codec import decode, encode
    from rankwise.collective.algorithms.table import AlgorithmChoice, derived_algorithm, fitting_algorithm
    from rankwise.collective.issue_order import IssueOrder
    from rankwise.store import PrefixStore, Store
    from rankwise.store.patience import exchange, patiently

#: What is not needed by every process that names a backend, and where it is.
_LATER = {
    "rankwise.backends.communicator": ["Communicator", "Watch"],
    "rankwise.backends.contract": ["Context", "Contract", "Gauges"],
    "rankwise.backends.fast_calls": ["Caller", "Ends", "Shortcuts"],
    "rankwise.backends.hookspecs": ["hookimpl"],
    "rankwise.backends.landing": ["ApartWork", "Landing"],
    "rankwise.backends.mailbox": ["Mailbox", "describe_dtype", "described_dtype"],
    "rankwise.basics.memory_order": ["Reordered", "reordered"],
    "rankwise.basics.recording": ["Trail"],
    "rankwise.basics.shared": ["COMMON", "IN_PLACE", "Blocks", "PLACES", "shared_blocks", "note_shared", "shared_word"],
    "rankwise.basics.work_future": ["WorkFuture"],
    "rankwise.codec": ["decode", "encode"],
    "rankwise.collective.algorithms.table": ["AlgorithmChoice", "derived_algorithm", "fitting_algorithm"],
    "rankwise.collective.issue_order": ["IssueOrder"],
    "rankwise.store": ["PrefixStore", "Store"],
    "rankwise.store.patience": ["exchange", "patiently"],
}
#: And modules.
_MODULES = {
    "compiled_parts": "rankwise.basics.native",
    "derived_collectives": "rankwise.collective.derived",
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
    "is_known",
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
    "Recv",
    "Send",
    "derived_algorithm",
    "derived_collectives",
    "fitting_algorithm",
    "joined",
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
    "ring",
    "start_thread",
    "unpack_error",
]


__getattr__ = later(__name__, _LATER, _MODULES)
