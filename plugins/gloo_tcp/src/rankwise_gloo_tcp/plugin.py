"""The declaration of the backend: what it can do and how to make it, with nothing heavy imported."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rankwise.capability import COLLECTIVES, POINT_TO_POINT, Capabilities, Device, native
from rankwise.contract import BackendSpec
from rankwise.hookspecs import hookimpl

if TYPE_CHECKING:
    from rankwise.contract import Communicator, Context

__all__ = ["rankwise_backend"]

_CPU = Device(
    native(*POINT_TO_POINT, *COLLECTIVES),
    native("async", "tags", "any_source", "uneven", "timeout", "abort", "mismatch"),
)


def _create(context: Context) -> Communicator:
    from rankwise_gloo_tcp.creation import create

    return create(context)


@hookimpl
def rankwise_backend() -> BackendSpec:
    """Return the declaration of the backend `gloo`."""
    return BackendSpec(
        name="gloo",
        api_version=1,
        capabilities=Capabilities("gloo", {"cpu": _CPU}),
        create=_create,
    )
