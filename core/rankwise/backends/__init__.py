"""Backends: what one is, what it can do, and how it is found by its name.

Authors of backends import everything from here::

    from rankwise.backends import BackendSpec, Capabilities, Communicator, hookimpl
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from rankwise.backends.capability import (
    COLLECTIVES,
    POINT_TO_POINT,
    Capabilities,
    Device,
    conditional,
    derived,
    native,
    no,
)
from rankwise.backends.communicator import Communicator, Gauges, Watch
from rankwise.backends.context import Context
from rankwise.backends.declaration import API_VERSION, Availability, BackendSpec, Runtime
from rankwise.backends.mailbox import Mailbox
from rankwise.backends.misfits import too_long, wrong_dtype
from rankwise.backends.shortcuts import Caller, Shortcuts
from rankwise.basics.arrays import Array, as_bytes
from rankwise.basics.deadline import Deadline, Timeout, seconds
from rankwise.basics.dtypes import dtype_mark, dtype_text
from rankwise.basics.loading import loading
from rankwise.basics.reduce_op import ReduceOp, accumulation_dtype
from rankwise.basics.tags import COLLECTIVE_TAG, FINGERPRINT_TAG, MAX_TAG
from rankwise.basics.work import COMPLETED, FutureWork, Work
from rankwise.collective.fingerprint import Fingerprint, agree, mismatch

if TYPE_CHECKING:
    from rankwise.backends.hookspecs import hookimpl

__all__ = [
    # the declaration
    "API_VERSION",
    "Availability",
    "BackendSpec",
    "Gauges",
    "Runtime",
    "hookimpl",
    "loading",
    # what it can do
    "COLLECTIVES",
    "POINT_TO_POINT",
    "Capabilities",
    "Device",
    "conditional",
    "derived",
    "native",
    "no",
    # one live group
    "COMPLETED",
    "Communicator",
    "Context",
    "FutureWork",
    "Mailbox",
    "Watch",
    "Work",
    # what it may offer for the plainest calls
    "Caller",
    "Shortcuts",
    # what it is handed
    "COLLECTIVE_TAG",
    "FINGERPRINT_TAG",
    "MAX_TAG",
    "Array",
    "Deadline",
    "ReduceOp",
    "Timeout",
    "accumulation_dtype",
    "as_bytes",
    "dtype_mark",
    "dtype_text",
    "seconds",
    "too_long",
    "wrong_dtype",
    # comparing what the ranks call
    "Fingerprint",
    "agree",
    "mismatch",
]


def __getattr__(name: str) -> Any:
    if name == "hookimpl":  # only plugins need pluggy, and only once they are asked for
        from rankwise.backends.hookspecs import hookimpl

        return hookimpl
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
