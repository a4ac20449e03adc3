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
    Device,
    Support,
    Why,
    conditional,
    derived,
    native,
    no,
)
from rankwise.backends.communicator import Communicator, Gauges, Watch
from rankwise.backends.context import Context
from rankwise.backends.declaration import API_VERSION, Availability, BackendSpec, Check, Explanation, Runtime, Stage
from rankwise.backends.fast_calls import Caller, Shortcuts
from rankwise.basics.arguments import whole_number
from rankwise.basics.arrays import (
    RAW,
    Array,
    Coordinates,
    as_bytes,
    dtype_mark,
    dtype_name,
    dtype_text,
    is_sparse,
    known_dtype,
)
from rankwise.basics.deadline import Deadline, Timeout, seconds
from rankwise.basics.debug import DebugLevel, get_debug_level
from rankwise.basics.loading import later, loading
from rankwise.basics.messages import COLLECTIVE_TAG, FINGERPRINT_TAG, MAX_TAG, too_long, wrong_dtype
from rankwise.basics.recording import Trail
from rankwise.basics.reduce_op import OPS as REDUCE_OP_TABLE
from rankwise.basics.reduce_op import REDUCE_OPS, ReduceOp, accumulation_dtype
from rankwise.basics.version import require_series
from rankwise.basics.work import COMPLETED, CompletedWork, FutureWork, Work
from rankwise.collective.call import Algorithm, Call, Prepared
from rankwise.collective.fingerprint import Fingerprint, agree, counts, mismatch, same_call

if TYPE_CHECKING:
    import rankwise.basics.native as compiled_parts
    import rankwise.collective.derived as derived_collectives
    import rankwise.network.doors as doors
    import rankwise.network.interface as network_interface
    import rankwise.network.secret as job_secret
    from rankwise.backends.hookspecs import hookimpl
    from rankwise.backends.mailbox import Mailbox
    from rankwise.basics import processes
    from rankwise.basics.debug import tell as debug_log
    from rankwise.basics.ending import Ending, WorkFuture
    from rankwise.basics.interrupts import aborted_by, heed, only_waited
    from rankwise.basics.interrupts import start as start_thread
    from rankwise.basics.messages import pack as pack_error
    from rankwise.basics.messages import unpack as unpack_error
    from rankwise.basics.process_end import ending as process_ending
    from rankwise.basics.process_end import last_words
    from rankwise.basics.systems import blake2b
    from rankwise.basics.tracebacks import anew
    from rankwise.collective.algorithms.table import Choice as AlgorithmChoice
    from rankwise.collective.algorithms.table import choose as derived_algorithm
    from rankwise.collective.algorithms.table import fitting as fitting_algorithm
    from rankwise.collective.executor import PointToPoint
    from rankwise.collective.issue_order import IssueOrder
    from rankwise.network.interface import at_free_port
    from rankwise.network.secret import digest as keyed_digest
    from rankwise.network.secret import same as same_digest
    from rankwise.network.secret import verify as verify_digest
    from rankwise.store import PrefixStore, Store
    from rankwise.store.patience import exchange, patiently

#: What is not needed by every process that names a backend, and where it is.
_LATER = {
    "backends.hookspecs": "hookimpl",  # only plugins need pluggy, and only once they are asked for
    "backends.mailbox": "Mailbox",
    "basics.debug": "tell as debug_log",
    "basics.ending": "Ending, WorkFuture",
    "basics.interrupts": "aborted_by, heed, only_waited, start as start_thread",
    "basics.messages": "pack as pack_error, unpack as unpack_error",
    "basics.native": "* as compiled_parts",
    "basics.process_end": "ending as process_ending, last_words",
    "basics.processes": "* as processes",
    "basics.systems": "blake2b",
    "basics.tracebacks": "anew",
    "collective.algorithms.table": "Choice as AlgorithmChoice, choose as derived_algorithm, "
    "fitting as fitting_algorithm",
    "collective.derived": "* as derived_collectives",
    "collective.executor": "PointToPoint",
    "collective.issue_order": "IssueOrder",
    "network.doors": "* as doors",
    "network.interface": "* as network_interface, at_free_port",
    "network.secret": "* as job_secret, digest as keyed_digest, same as same_digest, verify as verify_digest",
    "store": "PrefixStore, Store",
    "store.patience": "exchange, patiently",
}

__all__ = [
    "Algorithm",
    "Call",
    "Prepared",
    # the declaration
    "API_VERSION",
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
    "CompletedWork",
    "Context",
    "FutureWork",
    "Mailbox",
    "PrefixStore",
    "Store",
    "Watch",
    "Work",
    "Ending",
    "WorkFuture",
    "aborted_by",
    "anew",
    "at_free_port",
    "exchange",
    "heed",
    "only_waited",
    "patiently",
    # what it may offer as a fast path
    "Caller",
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
    "Coordinates",
    "known_dtype",
    "dtype_mark",
    "dtype_text",
    "seconds",
    "too_long",
    "whole_number",
    "wrong_dtype",
    # comparing what the ranks call
    "Fingerprint",
    "agree",
    "counts",
    "mismatch",
    "same_call",
    # collectives of its own, made of the core's
    "AlgorithmChoice",
    "Explanation",
    "Stage",
    "PointToPoint",
    "derived_algorithm",
    "derived_collectives",
    "fitting_algorithm",
    # where it is and whom it trusts
    "DebugLevel",
    "blake2b",
    "compiled_parts",
    "debug_log",
    "get_debug_level",
    "doors",
    "job_secret",
    "keyed_digest",
    "network_interface",
    "same_digest",
    "verify_digest",
    # how others fail
    "pack_error",
    "last_words",
    "process_ending",
    "processes",
    "start_thread",
    "unpack_error",
]


__getattr__ = later(__name__, _LATER)
