"""The ways in which ranks run here: as threads, and as processes of each backend."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import rankwise as dist
from rankwise_launch.toolbox import environment, mpiexec
from rankwise_local import local_world
from rankwise_testing import RankPool

PATIENCE_S = 120.0

#: For each way a backend, and variables.
PROCESSES: dict[str, tuple[str, dict[str, str]]] = {
    "gloo": ("gloo", {}),
    "gloo-python": ("gloo", {"RANKWISE_NATIVE": "off"}),
    "gloo-tcp": ("gloo", {"RANKWISE_GLOO_TRANSPORT": "tcp"}),
    "mpi": ("mpi", environment()),
}
WAYS = ["local", *PROCESSES]


def pool_of(way: str, size: int) -> RankPool:
    """Return ranks that are processes; those of MPI are started by its own launcher."""
    backend, env = PROCESSES[way]
    return RankPool(size, launch=mpiexec(size) if backend == "mpi" else (), env=env)


class Ranks:
    """Runs functions on ranks of one way, in a world that is made for each.

    Args:
        way: The way.
    """

    def __init__(self, way: str) -> None:
        self.way = way
        self._pools: dict[int, RankPool] = {}

    def run(self, size: int, function: Callable[..., Any], *args: Any) -> list[Any]:
        """Run a function of a module on so many ranks."""
        if self.way == "local":
            with local_world(size, timeout=PATIENCE_S) as world:
                return list(world.run(function, *args))
        pool = self._pools.get(size) or self._pools.setdefault(size, pool_of(self.way, size))
        found: list[Any] = pool.run(in_world, PROCESSES[self.way][0], function, *args, timeout=PATIENCE_S)
        return found

    def close(self) -> None:
        """End all processes."""
        for pool in self._pools.values():
            pool.close()


def in_world(backend: str, function: Callable[..., Any], *args: Any) -> Any:
    """Run a function in a group of this rank and others."""
    with dist.world(backend, timeout=60):
        return function(*args)
