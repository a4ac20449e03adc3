"""Long calls of several hosts, and what befalls ranks between the comparison and the data."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

import rankwise as dist

LONG_CALLS = ("reduce", "broadcast", "all_gather", "reduce_scatter", "all_reduce", "all_to_all", "gather", "scatter")


def everyones_call(name: str, group: Any = None, timeout: float | None = None) -> None:
    """Make a long call of a name, with rank 0 for a root."""
    array, options = np.ones(600_000, np.float32), {"group": group, "timeout": timeout}
    parts = [array.copy() for _ in range(dist.get_world_size())]
    calls: dict[str, Callable[[], object]] = {
        "all_reduce": lambda: dist.all_reduce(array, **options),
        "reduce": lambda: dist.reduce(array, 0, **options),
        "broadcast": lambda: dist.broadcast(array, 0, **options),
        "all_gather": lambda: dist.all_gather(parts, array, **options),
        "reduce_scatter": lambda: dist.reduce_scatter(array, parts, **options),
        "all_to_all": lambda: dist.all_to_all([np.empty_like(part) for part in parts], parts, **options),
    }
    at_root = None if dist.get_rank() else parts
    calls |= {
        "gather": lambda: dist.gather(array, at_root, 0, **options),
        "scatter": lambda: dist.scatter(array, at_root, 0, **options),
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


def time_is_up_on_all(found: list[list[str]]) -> None:
    """Check how each rank's long calls have ended, in which one that is not the root was late."""
    for name, ends in zip(LONG_CALLS, zip(*found, strict=True), strict=True):
        if name == "scatter":  # in which nobody waits for a rank that only takes
            assert set(ends) == {"done"}
        else:
            assert "DistTimeoutError" in ends, name
            assert set(ends) <= {"DistTimeoutError", "GroupAbortedError"}  # of a rank that has found it first


class _Interrupted:
    """What moves large data, but does something else first."""

    def __init__(self, means: Any, deed: Callable[[], object]) -> None:
        self._means, self._deed = means, deed

    def __getattr__(self, name: str) -> Any:
        self._deed()
        return getattr(self._means, name)
