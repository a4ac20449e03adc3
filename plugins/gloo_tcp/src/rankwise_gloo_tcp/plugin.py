"""The declaration of the backend: what it can do and how to make it, with nothing heavy imported."""

from __future__ import annotations

import os
import socket
from importlib import import_module
from typing import TYPE_CHECKING

from rankwise.backends import (
    COLLECTIVES,
    POINT_TO_POINT,
    Availability,
    BackendSpec,
    Capabilities,
    Device,
    Support,
    conditional,
    derived,
    device_kind_named,
    device_names,
    hookimpl,
    loading,
    native,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rankwise.backends import Communicator, Context, Explanation

_OWN = (
    *("broadcast", "all_reduce", "reduce", "all_gather", "gather"),
    *("scatter", "reduce_scatter", "all_to_all", "barrier"),
)
_CPU = Device(
    {**derived(*COLLECTIVES), **native(*POINT_TO_POINT, *_OWN)},
    {
        **native("async", "tags", "any_source", "short_messages", "message_dtypes", "probe", "uneven"),
        **native("timeout", "abort", "shrink", "mismatch"),
        **derived("sparse", "reconfigure"),
    },
)


def _staged(kind: str) -> Device:
    """Return what there is for arrays of a kind of device: everything, by way of the host."""

    def is_here() -> bool:
        found = device_kind_named(kind)
        return found is not None and not found.why_not()

    staged = [*POINT_TO_POINT, *(op for op in COLLECTIVES if op != "barrier")]
    return Device(
        {
            **conditional(
                *staged, reason=f"through the host; needs a device {kind!r}", holds=is_here, how=Support.STAGED
            ),
            **native("barrier"),
        },
        {
            **native(*(feature for feature in _CPU.features if feature not in ("sparse", "reconfigure"))),
            **derived("reconfigure"),
        },
        here_only=True,
    )


def _load() -> None:
    with loading():
        import_module("rankwise_gloo_tcp.ready")


def _create(context: Context) -> Communicator:
    with loading():
        from rankwise_gloo_tcp.setup.creation import create

    return create(context)


def _availability() -> Availability:
    if hasattr(socket.socket, "sendmsg") and hasattr(os, "set_blocking"):
        return Availability(True)
    reason = "this system's sockets cannot send from several places at once (sendmsg), as those of Linux and macOS can"
    return Availability(False, reason, "run it in WSL; rankwise_local.local_world needs no backend")


def _explain(op: str, nbytes: int, hosts: Sequence[int]) -> Explanation:
    from rankwise.backends import compiled_parts
    from rankwise_gloo_tcp.collectives.tables import explain

    how = " in Python" if compiled_parts.module() is None else " with rankwise-native"
    return explain(op, nbytes, hosts)._replace(how=how)


@hookimpl
def rankwise_backend() -> BackendSpec:
    """Return the declaration of the backend `gloo`."""
    return BackendSpec(
        name="gloo",
        api_version=1,
        core="0.1",
        capabilities=Capabilities("gloo", {"cpu": _CPU, **{kind: _staged(kind) for kind in device_names()[1:]}}),
        create=_create,
        availability=_availability,
        variants={name: {"RANKWISE_GLOO_TRANSPORT": name} for name in ("tcp", "shm", "auto")},
        explain=_explain,
        load=_load,
        attends=True,
    )
