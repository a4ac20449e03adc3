"""What the vendor brings for rankwise: the device `quantum`, and the backend `entangled`, whose ranks are threads."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any

from rankwise.backends import (
    Array,
    BackendSpec,
    Capabilities,
    Device,
    DeviceKind,
    Landing,
    Work,
    hookimpl,
    kind_of,
    to_host,
)
from rankwise_local.communicator import CAPABILITIES, LocalCommunicator


class _Quantum(DeviceKind):
    name = "quantum"
    modules = ("quantum_sim",)

    def count(self) -> int:
        return _library().COUNT

    def index(self, array: Any) -> int:
        return array.card.number

    def address(self, array: Any) -> int:
        return array.address

    def empty(self, shape: Any, dtype: Any) -> Any:
        return _library().empty(shape, dtype)

    def get(self, array: Any, host: Any) -> None:
        array.read(host)

    def put(self, array: Any, host: Any) -> None:
        array.write(host)
        self.synchronize()

    def current(self, index: int) -> AbstractContextManager[Any]:
        return _library().card(index)

    def queue(self) -> AbstractContextManager[Any]:
        return _library().queue()

    def mark(self) -> Callable[[], bool]:
        return _library().current_queue().mark().is_set

    def synchronize(self) -> None:
        _library().current_queue().wait()


def _library() -> Any:
    import quantum_sim

    return quantum_sim


QUANTUM = _Quantum()


class Entangled(LocalCommunicator):
    """Messages from card to card by way of the host; collectives are the core's."""

    def isend(self, array: Array, dst: int, tag: int) -> Work:
        return super().isend(to_host(array), dst, tag)

    def irecv(self, array: Array, src: int | None, tag: int) -> Work:
        take = super().irecv
        return Landing(array, lambda host: take(host, src, tag)) if kind_of(array) else take(array, src, tag)


@hookimpl
def rankwise_backend() -> BackendSpec:
    """Declare the backend."""
    host = CAPABILITIES.devices["cpu"]
    features = {name: cell for name, cell in host.features.items() if name != "sparse"}
    table = Capabilities("entangled", {"quantum": Device(host.ops, features)})
    return BackendSpec("entangled", 1, table, Entangled, launch=("threads",))
