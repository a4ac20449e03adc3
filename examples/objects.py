"""Send what is no array: settings, a vocabulary, named parameters; and bring each rank's findings home.

    rankwise run -n 4 objects.py
    mpiexec -n 4 python objects.py mpi

Objects travel through a codec that knows plain data, arrays and dataclasses that were registered. It runs no code of
the sender's, as pickle would.
"""

from __future__ import annotations

import sys
import zlib
from dataclasses import dataclass
from typing import Any

import numpy as np

import rankwise as dist


@dist.register_dataclass
@dataclass
class Settings:
    """What every rank has to know before it begins."""

    name: str
    layers: list[int]
    rate: float
    seed: int | None = None


def load() -> list[Any]:
    """Make up what a program reads from its files: settings, a vocabulary, and the parameters by name."""
    settings = Settings("demo", [16, 32, 4], rate=0.01)
    random = np.random.default_rng(1)
    pairs = zip(settings.layers[:-1], settings.layers[1:], strict=True)
    parameters = {f"layer{i}.weight": random.standard_normal(shape, np.float32) for i, shape in enumerate(pairs)}
    return [settings, {"the": 0, "cat": 1, "sat": 2}, parameters]


def checksum(parameters: dict[str, np.ndarray]) -> int:
    """Return a number that stands for names, shapes and every bit of the parameters."""
    found = 0
    for name in sorted(parameters):
        array = parameters[name]
        found = zlib.crc32(array.tobytes(), zlib.crc32(f"{name}{array.shape}{array.dtype}".encode(), found))
    return found


def main() -> None:
    """Broadcast from rank 0, give each rank a task of its own, and gather what they report."""
    dist.init_process_group(sys.argv[1] if len(sys.argv) > 1 else "gloo")
    rank, size = dist.get_rank(), dist.get_world_size()

    # Only rank 0 reads; the others bring a list of the same length.
    objects: list[Any] = load() if rank == 0 else [None, None, None]
    dist.broadcast_object_list(objects, src=0)
    settings, vocabulary, parameters = objects

    # A different object for each rank.
    task: list[Any] = [None]
    tasks = [{"shard": r, "words": list(vocabulary)[r % 3 :]} for r in range(size)] if rank == 0 else None
    dist.scatter_object_list(task, tasks, src=0)

    reports: list[Any] = [None] * size
    report = {"rank": rank, "shard": task[0]["shard"], "checksum": checksum(parameters), "settings": settings}
    dist.gather_object(report, reports if rank == 0 else None, dst=0)
    if rank == 0:
        expected = load()
        for r, found in enumerate(reports):
            right = {"rank": r, "shard": r, "checksum": checksum(expected[2]), "settings": expected[0]}
            if found != right:
                raise SystemExit(f"rank {r} reports {found}, and not {right}")
        nbytes = sum(array.nbytes for array in parameters.values())
        print(f"{settings}")
        print(f"{len(parameters)} arrays of {nbytes} bytes, {len(vocabulary)} words, {size} tasks")
        print("right: every rank has the same settings and parameters, and the task that was meant for it")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
