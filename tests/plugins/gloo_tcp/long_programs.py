"""Long calls of several hosts, and what befalls ranks between the comparison and the data."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

import rankwise as dist

__all__ = ["LONG_CALLS", "everyones_call", "in_the_middle"]

LONG_CALLS = ("reduce", "broadcast", "all_gather", "reduce_scatter", "all_reduce")


def everyones_call(name: str, group: Any = None, timeout: float | None = None) -> None:
    """Make a long call of a name, with rank 0 for a root."""
    array, options = np.ones(600_000, np.float32), {"group": group, "timeout": timeout}
    parts = [array.copy() for _ in range(dist.get_world_size())]
    calls = {
        "all_reduce": lambda: dist.all_reduce(array, **options),
        "reduce": lambda: dist.reduce(array, 0, **options),
        "broadcast": lambda: dist.broadcast(array, 0, **options),
        "all_gather": lambda: dist.all_gather(parts, array, **options),
        "reduce_scatter": lambda: dist.reduce_scatter(array, parts, **options),
    }
    calls[name]()


def in_the_middle(deed: Callable[[], object]) -> None:
    """Have this rank do something in each long call, between the comparison and the data, which it moves by Python."""
    comm = dist.group.WORLD.communicators()[0]
    comm.forget()
    kind: Any = type(comm.strategy)
    means = kind.means
    kind.means = lambda strategy, deadline: _Interrupted(means(strategy, deadline), deed)
    kind.prepare = lambda strategy, call: None


class _Interrupted:
    """What moves large data, but does something else first."""

    def __init__(self, means: Any, deed: Callable[[], object]) -> None:
        self._means, self._deed = means, deed

    def __getattr__(self, name: str) -> Any:
        self._deed()
        return getattr(self._means, name)
