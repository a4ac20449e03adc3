"""Time each program of the gallery beside the same one over mpi4py, on the same ranks.

    mpiexec -n 2 python benchmarks/gallery.py [NAME ...] [--rounds N] [--write]

A program's function takes turns with mpi4py's: over gloo, over mpi, over mpi4py alone, in an order that is drawn anew
for each round. What is timed is one call with more to do than in the gallery, from a barrier until the slowest rank has
its result; another call before it, in the same group, warms up. The beginning of a group is not timed.
A figure is the median of the rounds, a ratio that of the ratios within a round.

With --write the figures go to docs/gallery.md.
"""

from __future__ import annotations

import argparse
import importlib.util
import sys
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from random import Random
from statistics import median
from time import perf_counter
from types import ModuleType
from typing import Any

import numpy as np
import pages
from mpi4py import MPI

import rankwise as dist

ROOT = Path(__file__).parents[1]
GALLERY, PAGE = ROOT / "examples/gallery", ROOT / "docs/gallery.md"
#: Who takes turns; the last is what the others are compared with.
CONTENDERS = ("gloo", "mpi", "mpi4py")


def random(*shape: int) -> Any:
    """Return the same numbers on all ranks."""
    return np.random.default_rng(1).random(shape)


def texts(count: int) -> list[str]:
    """Return texts in which some words of two thousand are frequent, and most are not."""
    words = (2000 * random(count, 8) ** 3).astype(int).tolist()
    return [" ".join(f"word{number}" for number in numbers) for numbers in words]


#: Of each program the function that is timed, what it does there, and what it is given, by rank.
CASES: dict[str, tuple[str, str, Callable[[int], tuple[Any, ...]]]] = {
    "fft": ("fft2", "1024 x 1024 numbers", lambda rank: (random(1024, 1024),)),
    "heat": ("heat", "512 x 512 places, 50 steps", lambda rank: (random(512, 512), 50)),
    "jacobi": ("solve", "1000 equations", lambda rank: (random(1000, 1000) + 1000 * np.eye(1000), random(1000))),
    "kmeans": ("kmeans", "50,000 points, 15 steps", lambda rank: (random(50_000, 2), random(4, 2), 15)),
    "mlp": ("train", "300 examples, 1,000 steps", lambda rank: (random(300, 2), random(300, 1), 1000)),
    "prefix": ("running_sums", "1,000,000 numbers", lambda rank: (np.arange(1_000_000),)),
    "ring": ("distances", "500 particles a rank", lambda rank: (random(500, 3) + rank,)),
    "sort": ("sort", "1,000,000 numbers a rank", lambda rank: (np.random.default_rng(rank).random(1_000_000),)),
    "summa": ("product", "2048 x 2048 numbers", lambda rank: tuple(random(2, 2048, 2048))),
    "sweep": ("heights", "10,000 points", lambda rank: ([*map(tuple, random(10_000, 2).tolist())],)),
    "tasks": ("longest", "10,000 tasks", lambda rank: (range(1, 10_001),)),
    "words": ("counted", "20,000 texts of 8 words", lambda rank: (texts(20_000),)),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("names", nargs="*", metavar="NAME", help="which programs; all of them otherwise")
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--write", action="store_true", help="put the figures into docs/gallery.md")
    given = parser.parse_args()
    rows = {name: measured(name, given.rounds) for name in given.names or CASES}
    if MPI.COMM_WORLD.rank == 0:
        text = report(rows)
        print(text)
        if given.write:
            pages.put_into(PAGE, text)


def measured(name: str, rounds: int) -> list[dict[str, float]]:
    """Return what each contender takes in each round, in seconds."""
    function, _, inputs = CASES[name]
    ours, theirs = (getattr(program(path / f"{name}.py"), function) for path in (GALLERY, GALLERY / "mpi4py"))
    args, chance = inputs(MPI.COMM_WORLD.rank), Random(name)  # the same on all ranks
    found = []
    for _ in range(rounds):
        order = chance.sample(CONTENDERS, len(CONTENDERS))
        found.append({who: turn(who, theirs if who == "mpi4py" else ours, args) for who in order})
    return found


def program(path: Path) -> ModuleType:
    """Import a program, which does nothing yet; a worker must find it by its name."""
    spec = importlib.util.spec_from_file_location(f"{path.parent.name}_{path.stem}", path)
    assert spec is not None
    assert spec.loader is not None
    module = sys.modules[spec.name] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def turn(who: str, function: Callable[..., object], args: tuple[Any, ...]) -> float:
    """Return how long the second of two calls takes on the slowest rank."""
    with nullcontext() if who == "mpi4py" else dist.world(who):
        function(*args)
        MPI.COMM_WORLD.Barrier()
        began = perf_counter()
        function(*args)
        took_s = perf_counter() - began
    return MPI.COMM_WORLD.allreduce(took_s, MPI.MAX)


def report(rows: dict[str, list[dict[str, float]]]) -> str:
    """Return the table: milliseconds, and how many times faster than mpi4py's."""
    heads = ["program", "with", *(f"{who}, ms" for who in CONTENDERS), *(f"mpi4py / {who}" for who in CONTENDERS[:2])]
    lines = [heads, ["---"] * len(heads)]
    for name, found in rows.items():
        times = [f"{1000 * median(each[who] for each in found):.1f}" for who in CONTENDERS]
        ratios = [f"{median(each['mpi4py'] / each[who] for each in found):.2f}" for who in CONTENDERS[:2]]
        lines.append([f"[`{name}`](#{name})", CASES[name][1], *times, *ratios])
    table = "\n".join(f"| {' | '.join(line)} |" for line in lines)
    return f"{table}\n\nMeasured on {pages.machine()}, with {MPI.COMM_WORLD.size} ranks."


if __name__ == "__main__":
    main()
