"""rankwise against Ray's own CPU collectives between actors of a node, and how soon groups begin and deaths are known.

    python benchmarks/ray_compare.py [beginnings] [speed] [deaths] [passing] [--ranks 4] [--turns 7] [--groups 100]

Ray's own backend needs torch; without it only rankwise is measured. Each figure is the median of turns by turns.
"""

from __future__ import annotations

import argparse
import ctypes
import gc
import os
import statistics
import tempfile
import threading
import time
from collections.abc import Callable
from typing import Any

# Ray reads some of these when it is imported.
os.environ.update(
    RAY_agent_register_timeout_ms="300000",
    RAY_worker_register_timeout_seconds="300",
    RAY_AUTH_MODE="disabled",
    RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO="0",
    RAY_USAGE_STATS_ENABLED="0",
    RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER="0",  # or Ray puts the host's own address in the place of the loopback one
)

import numpy as np
import ray
from ray.experimental.internal_kv import _internal_kv_list
from ray.util import collective

import rankwise_ray

SIZES = [64 << 10, 1 << 20, 16 << 20]
PATIENCE_S = 60.0


class Worker:
    """An actor that measures what it does."""

    def init(self, size: int, rank: int, backend: str, name: str) -> None:
        # Naming the module has it loaded with the class, as in a program that imports it at its top.
        collective.init_collective_group(size, rank, rankwise_ray.BACKEND if backend == "rankwise" else backend, name)

    def nothing(self) -> None:
        """Be called."""

    def first(self, name: str) -> float:
        """Return when the first sum was there."""
        array = np.ones(4)
        collective.allreduce(array, name)
        return time.time()

    def times(self, nbytes: int, name: str, count: int) -> float:
        """Return how long one sum takes."""
        array = np.zeros(nbytes // 4, np.float32)
        for _ in range(3):
            collective.allreduce(array, name)
        begin = time.perf_counter()
        for _ in range(count):
            collective.allreduce(array, name)
        return (time.perf_counter() - begin) / count

    def stand(self, name: str) -> tuple[str, float]:
        """Wait for one that never comes; return what is told, and when."""
        try:
            collective.barrier(name)
        except Exception as error:
            return str(error), time.time()
        return "", time.time()

    def left(self) -> dict[str, float]:
        """Count what groups may leave behind; threads and ports are rankwise's, as Ray has many of its own."""
        gc.collect()
        ctypes.CDLL(None).malloc_trim(0)  # what the allocator keeps for later is nobody's
        sockets = {os.readlink(f"/proc/self/fd/{fd}")[8:-1] for fd in os.listdir("/proc/self/fd") if _is_socket(fd)}
        with open("/proc/net/tcp", encoding="ascii") as table:
            listening = [line.split()[9] for line in table if line.split()[3] == "0A"]
        with open("/proc/self/status", encoding="ascii") as status:
            resident = next(int(line.split()[1]) for line in status if line.startswith("RssAnon"))
        return {
            "threads": sum(thread.name.startswith("rankwise") for thread in threading.enumerate()),
            "descriptors": len(os.listdir("/proc/self/fd")),
            "ports": len(sockets.intersection(listening)),
            "MiB": round(resident / 1024, 1),
        }


def _is_socket(descriptor: str) -> bool:
    try:
        return os.readlink(f"/proc/self/fd/{descriptor}").startswith("socket:")
    except OSError:
        return False  # what listed them


def team(count: int, variables: dict[str, str] | None = None) -> list[Any]:
    """Start actors, with such variables in their environment, and return once they are there."""
    made = [ray.remote(Worker).options(runtime_env={"env_vars": variables or {}}).remote() for _ in range(count)]
    ray.get([actor.__ray_ready__.remote() for actor in made])
    return made


def beginnings() -> None:
    """How long 8 actors take to their first sum, by each way, as fresh processes and once more."""
    actors = team(8)
    for state in ("fresh processes", "once more"):
        begin = time.time()
        rankwise_ray.create_group(actors, "ours")
        made = time.time()
        ended = max(ray.get([actor.first.remote("ours") for actor in actors]))
        print(f"8 actors, {state}: create_group {made - begin:.2f} s, first allreduce {ended - made:.3f} s after")
        rankwise_ray.destroy_group(actors, "ours")
    for actor in actors:
        ray.kill(actor)
    actors = team(8)
    for state in ("fresh processes", "once more"):
        begin = time.time()
        collective.create_collective_group(actors, 8, list(range(8)), rankwise_ray.BACKEND, "declared")
        made = time.time()
        ended = max(ray.get([actor.first.remote("declared") for actor in actors]))
        after = f"first allreduce {ended - made:.2f} s after"
        print(f"8 actors, {state}: create_collective_group {made - begin:.2f} s, {after}")
        rankwise_ray.destroy_group(actors, "declared")
    for actor in actors:
        ray.kill(actor)


def speed(ranks: int, turns: int) -> None:
    """Time sums of several sizes, turn by turn with Ray's own backend where that is there."""
    backends = ["rankwise", *(["gloo"] if collective.gloo_available() else [])]
    teams = {backend: team(ranks) for backend in backends}
    for backend, actors in teams.items():
        ray.get([actor.init.remote(ranks, rank, backend, "speed") for rank, actor in enumerate(actors)])
    for nbytes in SIZES:
        count = 5 if nbytes > 1 << 20 else 30
        found: dict[str, list[float]] = {backend: [] for backend in backends}
        for _ in range(turns):
            for backend, actors in teams.items():
                found[backend].append(max(ray.get([a.times.remote(nbytes, "speed", count) for a in actors])))
        middle = {backend: statistics.median(several) for backend, several in found.items()}
        texts = [f"{backend} {1e6 * seconds:,.0f} us" for backend, seconds in middle.items()]
        ratio = f", {middle['gloo'] / middle['rankwise']:.1f} times" if "gloo" in middle else ""
        print(f"{ranks} ranks, {nbytes >> 10} KiB: {', '.join(texts)}{ratio}")
    for actor in [actor for actors in teams.values() for actor in actors]:
        ray.kill(actor)


def deaths(turns: int) -> None:
    """How soon a killed actor is named on the others."""
    took = []
    for _ in range(turns):
        actors = team(4)
        rankwise_ray.create_group(actors, "mortal")
        ray.get([actor.first.remote("mortal") for actor in actors])
        calls = [actor.stand.remote("mortal") for actor in actors[:3]]
        time.sleep(0.5)
        begin = time.time()
        ray.kill(actors[3])
        told = ray.get(calls)
        assert all(text.startswith("rank 3 on ") for text, _ in told), told
        took.append(max(at for _, at in told) - begin)
        for actor in actors[:3]:
            ray.kill(actor)
    print(f"a killed actor is named on the 3 others after {statistics.median(took):.3f} s, at most {max(took):.3f} s")


def passing(groups: int) -> None:
    """Make many groups, one after the other, and count what they leave; and what as many empty calls leave.

    glibc gives threads up to eight arenas a core, each of which grows to a size of its own before it rests; with one
    arena what remains is what nobody has given back.
    """
    for arenas in ("", "1"):
        actors = team(4, {"MALLOC_ARENA_MAX": arenas} if arenas else {})
        for what, one in (("empty calls, four for each group,", _calls), ("groups", _group)):
            for number in range(50):
                one(actors, number)
            before, begin = _at_rest(actors), time.time()
            for number in range(groups):
                one(actors, number)
            took, after = time.time() - begin, _at_rest(actors)
            keys = len(_internal_kv_list(b"group:", namespace=b"rankwise"))
            where = "one arena" if arenas else "arenas by default"
            print(f"{where}, {groups} {what} of 4 in {took:.1f} s; keys left {keys}")
            for kind in before[0]:
                counts = [round(now[kind] - was[kind], 1) for now, was in zip(after, before, strict=True)]
                print(f"    {kind}: {counts} more in the actors")
        for actor in actors:
            ray.kill(actor)


def _group(actors: list[Any], number: int) -> None:
    rankwise_ray.create_group(actors, f"passing {number}")
    ray.get([actor.first.remote(f"passing {number}") for actor in actors])
    rankwise_ray.destroy_group(actors, f"passing {number}")


def _calls(actors: list[Any], number: int) -> None:
    for _ in range(4):
        ray.get([actor.nothing.remote() for actor in actors])


def _at_rest(actors: list[Any]) -> list[dict[str, float]]:
    """Return what the actors have once the ends of their groups, which nobody waits for, are over."""
    deadline = time.monotonic() + PATIENCE_S
    while True:
        left: list[dict[str, float]] = ray.get([actor.left.remote() for actor in actors])
        if not any(each["threads"] or each["ports"] for each in left) or time.monotonic() > deadline:
            return left
        time.sleep(0.05)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("parts", nargs="*", help="what to measure; everything unless given")
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--turns", type=int, default=7)
    parser.add_argument("--groups", type=int, default=100)
    args = parser.parse_args()
    parts: dict[str, Callable[[], None]] = {
        "beginnings": beginnings,
        "speed": lambda: speed(args.ranks, args.turns),
        "deaths": lambda: deaths(args.turns),
        "passing": lambda: passing(args.groups),
    }
    with tempfile.TemporaryDirectory(prefix="ray", dir="/tmp", ignore_cleanup_errors=True) as folder:
        ray.init(
            num_cpus=64,
            include_dashboard=False,
            object_store_memory=100_000_000,
            _node_ip_address="127.0.0.1",
            _temp_dir=folder,
            log_to_driver=False,
            logging_level="error",
        )
        try:
            for part in args.parts or parts:
                parts[part]()
        finally:
            ray.shutdown()


if __name__ == "__main__":
    main()
