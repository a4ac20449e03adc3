"""Random calls of rankwise-arrays on each backend, beside NumPy; `test_random.py FIRST COUNT` runs many more."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from rankwise_launch.toolbox import environment, mpiexec
from rankwise_local import local_world
from rankwise_testing import RankPool

PATIENCE_S = 120.0

HERE = Path(__file__).parent
sys.path[:0] = [] if str(HERE) in sys.path else [str(HERE)]
import array_programs  # noqa: E402

#: For each way a backend, and variables.
PROCESSES: dict[str, tuple[str, dict[str, str]]] = {
    "gloo": ("gloo", {}),
    "gloo-python": ("gloo", {"RANKWISE_NATIVE": "off"}),
    "gloo-tcp": ("gloo", {"RANKWISE_GLOO_TRANSPORT": "tcp"}),
    "mpi": ("mpi", environment()),
}
Run = Callable[[int, int, int], list[Any]]


def pool_of(way: str, size: int) -> RankPool:
    """Return ranks that are processes; those of MPI are started by its own launcher."""
    backend, env = PROCESSES[way]
    return RankPool(size, launch=mpiexec(size) if backend == "mpi" else (), env=env)


@pytest.fixture(scope="module", params=["local", *PROCESSES])
def run(request: pytest.FixtureRequest) -> Iterator[Run]:
    """Run random calls on so many ranks, by a first seed and how many."""
    pools: dict[int, RankPool] = {}

    def in_processes(size: int, first: int, count: int) -> list[Any]:
        pool = pools.get(size) or pools.setdefault(size, pool_of(request.param, size))
        backend = PROCESSES[request.param][0]
        found: list[Any] = pool.run(array_programs.random_calls, backend, first, count, timeout=PATIENCE_S)
        return found

    def in_threads(size: int, first: int, count: int) -> list[Any]:
        with local_world(size, timeout=PATIENCE_S) as world:
            return list(world.run(array_programs.random_calls, "", first, count))

    yield in_threads if request.param == "local" else in_processes
    for pool in pools.values():
        pool.close()


@pytest.mark.parametrize("size", [1, 2, 3, 4, 6])
def test_random_calls_agree_with_numpy(run: Run, size: int) -> None:
    count = 2 * len(array_programs.CALLS)
    assert run(size, 1000 * size, count) == [count] * size


if __name__ == "__main__":
    first, count = map(int, sys.argv[1:])
    for name, (backend, _) in PROCESSES.items():
        for size in (2, 3, 4, 6):
            with pool_of(name, size) as pool:
                pool.run(array_programs.random_calls, backend, first, count, timeout=PATIENCE_S + count)
            print(f"{name} on {size} ranks: {count} calls, 0 wrong", flush=True)
