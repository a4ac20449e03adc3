"""rankwise against Ray's own CPU collectives between actors of a node, and how soon groups begin and deaths are known.

    python benchmarks/ray_compare.py [--ranks 4] [--turns 7] [--groups 100]

Ray's own backend needs torch; without it only rankwise is measured. Each figure is the median of turns by turns.
"""

from __future__ import annotations

import argparse
import os
import statistics
import tempfile
import time
from typing import Any

SIZES = [64 << 10, 1 << 20, 16 << 20]
QUIET = {
    "RAY_agent_register_timeout_ms": "300000",
    "RAY_worker_register_timeout_seconds": "300",
    "RAY_AUTH_MODE": "disabled",
    "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",
    "RAY_USAGE_STATS_ENABLED": "0",
}


class Worker:
    """An actor that measures what it does."""

    def init(self, size: int, rank: int, backend: str, name: str) -> None:
        from ray.util import collective

        import rankwise_ray  # noqa: F401 - registers the backend

        collective.init_collective_group(size, rank, backend, name)

    def first(self, name: str) -> float:
        """Return when the first sum was there."""
        import numpy as np
        from ray.util import collective

        array = np.ones(4)
        collective.allreduce(array, name)
        return time.time()

    def times(self, nbytes: int, name: str, count: int) -> float:
        """Return how long one sum takes."""
        import numpy as np
        from ray.util import collective

        array = np.zeros(nbytes // 4, np.float32)
        for _ in range(3):
            collective.allreduce(array, name)
        begin = time.perf_counter()
        for _ in range(count):
            collective.allreduce(array, name)
        return (time.perf_counter() - begin) / count

    def stand(self, name: str) -> tuple[str, float]:
        """Wait for one that never comes; return what is told, and when."""
        from ray.util import collective

        try:
            collective.barrier(name)
        except Exception as error:
            return str(error), time.time()
        return "", time.time()

    def left(self) -> tuple[int, int]:
        """Count threads and descriptors."""
        return len(os.listdir("/proc/self/task")), len(os.listdir("/proc/self/fd"))


def team(ray: Any, count: int) -> list[Any]:
    """Start actors, and return once they are there."""
    made = [ray.remote(Worker).remote() for _ in range(count)]
    ray.get([actor.__ray_ready__.remote() for actor in made])
    return made


def beginnings(ray: Any) -> None:
    """How long 8 actors take to their first sum, by each way, as fresh processes and once more."""
    from ray.util import collective

    import rankwise_ray

    actors = team(ray, 8)
    for state in ("fresh processes", "once more"):
        begin = time.time()
        rankwise_ray.create_group(actors, "ours")
        made = time.time()
        ended = max(ray.get([actor.first.remote("ours") for actor in actors]))
        print(f"8 actors, {state}: create_group {made - begin:.2f} s, first allreduce {ended - made:.3f} s after")
        rankwise_ray.destroy_group(actors, "ours")
    for actor in actors:
        ray.kill(actor)
    actors = team(ray, 8)
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


def speed(ray: Any, ranks: int, turns: int) -> None:
    """Time sums of several sizes, turn by turn with Ray's own backend where that is there."""
    from ray.util import collective

    backends = ["rankwise", *(["gloo"] if collective.gloo_available() else [])]
    teams = {backend: team(ray, ranks) for backend in backends}
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


def deaths(ray: Any, turns: int) -> None:
    """How soon a killed actor is named on the others."""
    import rankwise_ray

    took = []
    for _ in range(turns):
        actors = team(ray, 4)
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


def passing(ray: Any, groups: int) -> None:
    """Make many groups, one after the other, and count what they leave."""
    import rankwise_ray

    actors = team(ray, 4)

    def one(number: int) -> None:
        rankwise_ray.create_group(actors, f"passing {number}")
        ray.get([actor.first.remote(f"passing {number}") for actor in actors])
        rankwise_ray.destroy_group(actors, f"passing {number}")

    for number in range(5):
        one(number)
    time.sleep(1)
    before, begin = ray.get([actor.left.remote() for actor in actors]), time.time()
    for number in range(groups):
        one(number)
    took = time.time() - begin
    time.sleep(1)
    after = ray.get([actor.left.remote() for actor in actors])
    print(f"{groups} groups of 4 in {took:.1f} s; threads and descriptors before {before}, after {after}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--turns", type=int, default=7)
    parser.add_argument("--groups", type=int, default=100)
    args = parser.parse_args()
    os.environ.update(QUIET)
    import ray

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
            beginnings(ray)
            speed(ray, args.ranks, args.turns)
            deaths(ray, args.turns)
            passing(ray, args.groups)
        finally:
            ray.shutdown()


if __name__ == "__main__":
    main()
