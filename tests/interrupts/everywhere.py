"""Interrupt calls everywhere: `python tests/interrupts/everywhere.py --points 10000`.

Each way is a backend with variables of the environment. Ranks are processes; a world that a point has left in an
unknown state is started anew with the next seed. It prints a line for each way, and what was wrong; exit code 1 if
anything was.

    --ways shm,python,tcp,auto    which ways; `mpi` is started by mpiexec, `hosts` is two hosts. `stores`
                                  are calls of stores, `beginnings` and `beginnings-mpi` those that make groups and
                                  end them
    --cases send,all_reduce       only calls whose names contain one of these words
    --points 10000                in all, shared among the ways
    --seconds 500                 stop after so long
    --seed 1                      the points of a seed are the same each time, but for those of a timer

Other backends use `run_points(backend, ...)` of interrupt_points.py within any world of two or more ranks.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))
sys.path.insert(0, str(Path(__file__).parent))

from busy_machine import slowness
from far_away import RANKS_A_HOST
from interrupt_beginnings import BEGINNINGS, run_beginning_points
from interrupt_cases import CASES
from interrupt_points import Tally, run_points
from interrupt_stores import STORE_CASES, run_store_points

from rankwise_testing import RankPool

_MPIEXEC = ("mpiexec", "-n", "{size}")
#: Backend, how its ranks are started, and with which variables.
WAYS: dict[str, tuple[str, tuple[str, ...], dict[str, str]]] = {
    "shm": ("gloo", (), {"RANKWISE_GLOO_TRANSPORT": "shm", "RANKWISE_NATIVE": "on"}),
    "python": ("gloo", (), {"RANKWISE_GLOO_TRANSPORT": "shm", "RANKWISE_NATIVE": "off"}),
    "copied": ("gloo", (), {"RANKWISE_GLOO_TRANSPORT": "shm", "RANKWISE_GLOO_PEER_MEMORY": "off"}),
    "tcp": ("gloo", (), {"RANKWISE_GLOO_TRANSPORT": "tcp"}),
    "tcp-python": ("gloo", (), {"RANKWISE_GLOO_TRANSPORT": "tcp", "RANKWISE_NATIVE": "off"}),
    "auto": ("gloo", (), {}),
    "hosts": ("gloo", (), {RANKS_A_HOST: "2", "RANKWISE_NATIVE": "on"}),
    "hosts-python": ("gloo", (), {RANKS_A_HOST: "2", "RANKWISE_NATIVE": "off"}),
    "mpi": ("mpi", _MPIEXEC, {}),
    "stores": ("", (), {}),
    "beginnings": ("gloo", (), {}),
    "beginnings-mpi": ("mpi", _MPIEXEC, {}),
}


def cases_of(way: str, wanted: str = "") -> list[str]:
    """Return the cases of a way whose names contain one of some words, which are parted by commas; all if none."""
    words = [word for word in wanted.split(",") if word]
    found = STORE_CASES if way == "stores" else BEGINNINGS if way.startswith("beginnings") else CASES
    return [name for name in found if not words or any(word in name for word in words)]


def try_way(way: str, points: int, seed: int, cases: list[str], seconds: float, most_wrong: int = 5) -> list[Tally]:
    """Interrupt so many points of one way, in one world after the other as long as some are wrong."""
    backend, launch, env = WAYS[way]
    tallies: list[Tally] = []
    until, done = time.monotonic() + seconds, 0
    while done < points and sum(tally.wrong is not None for tally in tallies) < most_wrong:
        left = until - time.monotonic()
        if left <= 0:
            break
        with RankPool(_size(way), launch=launch, env={"PYTHONFAULTHANDLER": "1", **env}) as pool:
            run, args = _points_of(way, (points - done, seed + done, cases, left), backend)
            tally = pool.run(run, *args, timeout=left + 120 * slowness())[0]
        tallies.append(tally)
        done += tally.went_on + tally.given_up + tally.not_raised + (tally.wrong is not None)
        if tally.wrong is not None:
            print(f"  {way}: {tally.wrong}", flush=True)
    return tallies


def _size(way: str) -> int:
    return {"stores": 1, "hosts": 3, "hosts-python": 3}.get(way, 2)


def _points_of(way: str, terms: tuple[Any, ...], backend: str) -> tuple[Callable[..., Tally], tuple[Any, ...]]:
    if way == "stores":
        return run_store_points, terms
    run = run_beginning_points if way.startswith("beginnings") else run_points
    return run, (backend, *terms, slowness())


def main() -> int:
    """Try all ways that are asked for."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ways", default="shm,python,copied,tcp,auto")
    parser.add_argument("--cases", default="")
    parser.add_argument("--points", type=int, default=1000)
    parser.add_argument("--seconds", type=float, default=1e6)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    ways = options.ways.split(",")
    failed, done = 0, 0
    for way in ways:
        tallies = try_way(
            way,
            -(-options.points // len(ways)),
            options.seed,
            cases_of(way, options.cases),
            options.seconds / len(ways),
        )
        went_on, given_up, not_raised = (sum(t[i] for t in tallies) for i in range(3))
        wrong = sum(t.wrong is not None for t in tallies)
        done, failed = done + went_on + given_up + not_raised + wrong, failed + wrong
        print(
            f"{way}: {went_on} went on, {given_up} given up by all, {not_raised} not raised, {wrong} wrong", flush=True
        )
    print(f"{done} points, {failed} wrong")
    return bool(failed)


if __name__ == "__main__":
    sys.exit(main())
