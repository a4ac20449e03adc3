"""What the core itself costs: importing it, and the way from a public call to the communicator's method.

Run it: python benchmarks/core_overhead.py
"""

from __future__ import annotations

import json
import platform
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from typing import Any

import numpy as np

import rankwise as dist
from rankwise.backends import Call
from rankwise.basics.work import COMPLETED, Work

IMPORT = "import time, numpy; t = time.perf_counter(); import rankwise; print(1000 * (time.perf_counter() - t))"


class Nothing(dist.Communicator):
    """A communicator that does nothing, so that only the way to it is measured."""

    def isend(self, array: Any, dst: int, tag: int) -> Work:
        return COMPLETED

    def irecv(self, array: Any, src: int | None, tag: int) -> Work:
        return COMPLETED

    def run(self, call: Call, timeout_s: float, async_op: bool = False) -> Work:
        return COMPLETED

    def close(self) -> None:
        pass

    def abort(self, error: dist.DistError) -> None:
        pass


def microseconds(call: Callable[[], object], loops: int = 100_000, rounds: int = 9) -> list[float]:
    """Return the time of a call in each of several rounds."""
    times = []
    for _ in range(rounds):
        began = time.perf_counter()
        for _ in range(loops):
            call()
        times.append((time.perf_counter() - began) / loops * 1e6)
    return times


def import_milliseconds(rounds: int = 11) -> list[float]:
    """Return what importing rankwise adds to numpy, in fresh processes; the first one compiles and is not counted."""
    command = [sys.executable, "-c", IMPORT]
    return [float(subprocess.check_output(command, text=True)) for _ in range(rounds)][1:]


def main() -> None:
    """Print medians and spreads."""
    dist.register_backend("nothing", Nothing, extended_api=True)
    dist.init_process_group("nothing", rank=0, world_size=1)
    array = np.ones(4, np.float32)
    communicator = dist.group.WORLD.communicators()[0]  # type: ignore[union-attr]
    public = microseconds(lambda: dist.all_reduce(array))
    bare = microseconds(lambda: communicator.run(Call("all_reduce", array, dist.ReduceOp.SUM), 1.0))
    imports = import_milliseconds()
    result = {
        "all_reduce, public call (us)": public,
        "the communicator's method alone (us)": bare,
        "import rankwise after numpy (ms)": imports,
    }
    for name, times in result.items():
        print(f"{name:40} median {statistics.median(times):7.2f}   {min(times):.2f} .. {max(times):.2f}")
    print(f"{platform.processor() or platform.machine()}, Python {platform.python_version()}, NumPy {np.__version__}")
    if "--json" in sys.argv:
        print(json.dumps(result))
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
