"""Runs programs of the tests on a GPU on the double, so that they are right when there is a GPU; run by a test."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import cupy  # the stand-in
import nccl_on_host
import numpy as np

import rankwise as dist
from rankwise.backends.registry import registry
from rankwise_local import local_world

sys.path.insert(0, str(Path(__file__).with_name("on_gpu")))

import gpu_programs as programs


class WithoutEnds:
    """rankwise, with a default group that stays."""

    def destroy_process_group(self) -> None:
        """Leave it to the world."""

    def __getattr__(self, name: str) -> Any:
        return getattr(dist, name)


def in_the_world_that_is_there() -> None:
    """Let the programs use the group of their thread, which they would otherwise make and destroy."""
    for name, value in {
        "dist": WithoutEnds(),
        "join": lambda *_: None,
        "rank_here": dist.get_rank,
        "LARGE": 1 << 12,
        "SMALL": 1 << 10,
    }.items():
        setattr(programs, name, value)
    cupy.float32, cupy.empty_like = np.float32, lambda array: cupy.empty(array.shape, array.dtype)


def run(size: int, program: Any, *args: Any) -> list[Any]:
    """Run a program on each rank of a world."""
    with local_world(size, backend="nccl", timeout=30) as world:
        found: list[Any] = world.run(program, "", *args)
        return found


if __name__ == "__main__":
    registry.register(nccl_on_host.rankwise_backend(), replace=True)
    in_the_world_that_is_there()
    assert run(2, programs.summed, 2) == [[float(21 + 2 * turn) for turn in range(20)]] * 2
    assert run(2, programs.held, 2) == [True, True]
    assert run(3, programs.ring, 3) == [2.0, 0.0, 1.0]
    found = run(2, programs.over_devices, 2, 2)
    assert [left["reduce_scatter"] for left in found] == [[0.0, 4.0], [8.0, 12.0]]
    assert [left["reduce"] for left in found] == [[0.0, 6.0], [2.0, 3.0]]
    both = {"all_reduce": 6.0, "average": 1.5, "broadcast": 3.0}
    assert all(left[name] == [value] * 2 for left in found for name, value in both.items())
    assert all(left["all_gather"] == [0.0, 1.0, 2.0, 3.0] for left in found)
    assert run(1, programs.over_devices, 1, 3) == ["they need 3 GPUs"]
    print("done")
