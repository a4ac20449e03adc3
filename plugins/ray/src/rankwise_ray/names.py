"""The backend's name, which registers the backend wherever it comes, so that actors need not import this package."""

from __future__ import annotations

from importlib import import_module
from typing import Any

import ray

from rankwise.backends import require_series
from rankwise_ray.group import NAME, RankwiseGroup
from rankwise_ray.installed import backend_registry, types


class _Name(str):
    """A name that registers the backend in the process in which it is unpickled."""

    __slots__ = ()

    def __reduce__(self) -> Any:
        return _arrived, ()

    def upper(self) -> str:  # which Ray calls, and pickles what it gets
        return self


#: Give this as `backend` to have actors find the backend without importing this package.
BACKEND: str = _Name(NAME)


def register() -> None:
    """Register the backend in this process; again does nothing."""
    require_series("rankwise-ray", "0.1")
    types.Backend.RANKWISE = BACKEND
    if not backend_registry._global_registry.is_registered(NAME):
        backend_registry.register_collective_backend(NAME, RankwiseGroup)
        if ray.is_initialized() and ray.get_runtime_context().worker.mode == ray.WORKER_MODE:
            import_module("rankwise_launch.ready")  # now, and not while the others wait for this process's first group


def _arrived() -> str:
    register()
    return BACKEND
