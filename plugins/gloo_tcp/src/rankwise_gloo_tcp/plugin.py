"""The declaration of the backend: what it can do and how to make it, with nothing heavy imported."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rankwise.backends import (
    COLLECTIVES,
    POINT_TO_POINT,
    BackendSpec,
    Capabilities,
    Device,
    conditional,
    hookimpl,
    native,
    no,
)

if TYPE_CHECKING:
    from rankwise.backends import Communicator, Context

__all__ = ["rankwise_backend"]

_CPU = Device(
    native(*POINT_TO_POINT, *COLLECTIVES),
    native(
        *("async", "tags", "any_source", "short_messages", "message_dtypes", "uneven", "sparse"),
        *("timeout", "abort", "shrink", "mismatch"),
    ),
)

_STAGED = "by way of the host; needs CuPy and a GPU"
_NOT_STAGED = "only broadcast and all_reduce go by way of the host; copy with .get() and .set(), or use nccl"


def _has_device() -> bool:
    from rankwise_gloo_tcp.collectives.staging import has_device

    return has_device()


_STAGES = ("broadcast", "all_reduce")
_CUDA = Device(
    {
        **conditional(*_STAGES, reason=_STAGED, holds=_has_device),
        **native("barrier"),
        **no(*(op for op in (*POINT_TO_POINT, *COLLECTIVES) if op not in (*_STAGES, "barrier")), reason=_NOT_STAGED),
    },
    native("async", "timeout", "abort", "shrink", "mismatch"),
)


def _create(context: Context) -> Communicator:
    from rankwise_gloo_tcp.setup.creation import create

    return create(context)


@hookimpl
def rankwise_backend() -> BackendSpec:
    """Return the declaration of the backend `gloo`."""
    return BackendSpec(
        name="gloo",
        api_version=1,
        capabilities=Capabilities("gloo", {"cpu": _CPU, "cuda": _CUDA}),
        create=_create,
        variants={name: {"RANKWISE_GLOO_TRANSPORT": name} for name in ("tcp", "shm", "auto")},
    )
