"""The declaration of the backend: what it can do and how to make it, with nothing heavy imported."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rankwise.backends import (
    POINT_TO_POINT,
    Availability,
    BackendSpec,
    Capabilities,
    Device,
    derived,
    hookimpl,
    native,
    no,
)
from rankwise_nccl.library.datatypes import FLOAT8, REDUCTIONS
from rankwise_nccl.library.float8 import FLOAT8_CONDITION

if TYPE_CHECKING:
    from rankwise.backends import Communicator, Context

_REDUCING = ("all_reduce", "reduce", "reduce_scatter")
_MOVING = (*POINT_TO_POINT, "broadcast", "all_gather", "gather", "scatter", "all_to_all", "barrier")

_TYPES = "NCCL's own types, and bool as bytes; complex numbers as pairs of reals"
_ABORT = "the communicators are aborted, which is the end of the group; the peers are told through the store"
_TIMEOUT = "a time-out aborts the group's communicators, as NCCL cannot withdraw one operation"

_FEATURES = {
    **native("async", "uneven"),
    **native("timeout", reason=_TIMEOUT),
    **native("abort", reason=_ABORT),
    **derived("reconfigure", reason="communicators are not grown or shrunk: a new group starts with a new id"),
    **no("tags", reason="messages of NCCL have no tag; they are met in the order they were sent"),
    **no("any_source", reason="NCCL has to know the sender"),
    **no("short_messages", reason="NCCL needs the same size at both ends of a message, and does not compare them"),
    **no("message_dtypes", reason="messages of NCCL do not tell what they are of; both ends have to name one type"),
    **no("mismatch", reason="nothing is compared before NCCL moves data; a mismatch ends at the time-out"),
    **no("split", reason="CuPy's commSplit needs every rank of the parent; a new group starts with a new id"),
    **no("shrink", reason="ranks that have died are not told apart from slow ones"),
}


def _availability() -> Availability:
    from rankwise_nccl.library.availability import availability

    return availability()


def _create(context: Context) -> Communicator:
    from rankwise_nccl.creation import create

    return create(context)


@hookimpl
def rankwise_backend() -> BackendSpec:
    """Return the declaration of the backend `nccl`."""
    only_if = dict.fromkeys(sorted(FLOAT8), FLOAT8_CONDITION)
    ops = {**native(*_MOVING), **native(*_REDUCING, reason=_TYPES, reduce_ops=REDUCTIONS, only_if=only_if)}
    return BackendSpec(
        name="nccl",
        api_version=1,
        core="0.1",
        capabilities=Capabilities("nccl", {"cuda": Device(ops, _FEATURES)}),
        create=_create,
        availability=_availability,
        attends=True,
    )
