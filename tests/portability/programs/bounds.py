"""One distribution alone: what it says works without the others does, and what it needs is told in words."""

import subprocess
import sys

import rankwise as dist
from rankwise.backends.registry import registry
from rankwise.basics import native
from rankwise_local import local_world

BACKENDS = {
    "rankwise_gloo_tcp": "gloo",
    "rankwise_mpi": "mpi",
    "rankwise_native": "gloo",
    "rankwise_nccl": "nccl",
}


def collectives() -> float:
    import numpy as np

    array = np.ones(1000, np.float32)
    dist.all_reduce(array)
    dist.all_reduce(array, dist.ReduceOp.MAX)
    parts = [np.empty(2) for _ in range(dist.get_world_size())]
    dist.all_gather(parts, np.full(2, float(dist.get_rank())))
    objects = [None] * dist.get_world_size()
    dist.all_gather_object(objects, {"rank": dist.get_rank(), "array": array})
    return float(array[0])


def main(name: str) -> None:
    """Try it."""
    __import__(name)
    with local_world(3) as ranks:
        assert ranks.run(collectives) == [3.0, 3.0, 3.0]
    assert dist.supports("all_reduce", "cpu:0", "float32")
    print(dist.capabilities(), file=sys.stderr)
    for command in (["backends", "--json"], ["doctor", "--quick", "--json"], ["--help"]):
        done = subprocess.run([sys.executable, "-m", "rankwise", *command], capture_output=True, text=True, timeout=120)
        assert not done.stderr, done.stderr
    if name == "rankwise_native":
        in_use, text = native.state()
        assert in_use, text
    backend = BACKENDS.get(name)
    if backend is not None:
        assert registry.problem(backend) is None, registry.problem(backend)
        availability = dist.availability(backend)
        if availability:
            dist.init_process_group(backend, rank=0, world_size=1)
            collectives()
            dist.destroy_process_group()
        print(f"{backend}: {availability.reason or 'it runs'}")
    else:
        print("it works")


if __name__ == "__main__":
    main(sys.argv[1])
