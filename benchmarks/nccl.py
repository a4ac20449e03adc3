"""What the nccl plugin costs over bare calls of CuPy's binding, on the same buffers, in a world of one.

Prints JSON: the host's time of an asynchronous call; for several sizes the quartiles of the time until the device is
done, and the bandwidth beside that of a copy on the device. Exits with 1 if a promise is not kept, and with 2 and the
reason where there is no GPU.

Run it: python benchmarks/nccl.py
"""

from __future__ import annotations

import json
import statistics
import sys
import time
from collections.abc import Callable
from typing import Any

import rankwise as dist
from rankwise_nccl.library.availability import availability

SIZES = (4 << 10, 1 << 20, 16 << 20, 256 << 20)

#: What is promised: microseconds of host time that an asynchronous call adds.
LIMIT_US = 15.0

#: From this size on nothing that is added may be measurable: most times lie among those of the bare calls.
FREE_NBYTES = 16 << 20

#: From there on too, a world of one moves at the bandwidth of a copy on the device; less than this share of it is less.
COPY_SHARE = 0.9


def host_us(call: Callable[[], object], settle: Callable[[], object], calls: int = 200, rounds: int = 15) -> float:
    """Return the median of the host's time of one call; the device is let catch up between rounds."""
    times = []
    for _ in range(rounds):
        settle()
        began = time.perf_counter()
        for _ in range(calls):
            call()
        times.append((time.perf_counter() - began) / calls * 1e6)
    settle()
    return statistics.median(times)


def device_us(call: Callable[[], object], settle: Callable[[], object], rounds: int = 30) -> list[float]:
    """Return the quartiles of the time of one call until the device is done."""
    times = []
    for _ in range(rounds):
        settle()
        began = time.perf_counter()
        call()
        settle()
        times.append((time.perf_counter() - began) * 1e6)
    return statistics.quantiles(times, n=4)


def main() -> int:
    """Measure, and print."""
    answer = availability()
    if not answer:
        print(f"benchmarks/nccl.py: nothing can be measured here: {answer.reason}; {answer.remedy}", file=sys.stderr)
        return 2
    import cupy
    from cupy.cuda import nccl

    dist.init_process_group("nccl", world_size=1, rank=0, store=dist.HashStore(), device_id=0)
    bare = nccl.NcclCommunicator(1, nccl.get_unique_id(), 0)
    stream = cupy.cuda.Stream(non_blocking=True)
    settle = cupy.cuda.runtime.deviceSynchronize
    broken = 0
    report: dict[str, Any] = {"gpu": cupy.cuda.runtime.getDeviceProperties(0)["name"].decode(), "sizes": {}}
    for nbytes in SIZES:
        array, out = cupy.ones(nbytes // 4, cupy.float32), cupy.empty(nbytes // 4, cupy.float32)
        source, target, count = array.data.ptr, out.data.ptr, array.size

        def theirs() -> None:
            bare.allGather(source, target, count, nccl.NCCL_FLOAT32, stream.ptr)  # noqa: B023

        def ours() -> None:
            dist.all_gather_into_tensor(out, array, async_op=True)  # noqa: B023

        def copy() -> None:
            target_array.data.copy_from_device_async(array.data, nbytes, stream)  # noqa: B023

        target_array = out
        for call in (theirs, ours, copy):
            device_us(call, settle, 3)  # the first ones load kernels
        timings = {call.__name__: device_us(call, settle) for call in (theirs, ours, copy)}
        report["sizes"][nbytes] = {
            "bare_us": timings["theirs"],
            "rankwise_us": timings["ours"],
            "copy_us": timings["copy"],
            "rankwise_GB_per_s": nbytes / timings["ours"][1] / 1e3,
            "copy_GB_per_s": nbytes / timings["copy"][1] / 1e3,
        }
        if nbytes >= FREE_NBYTES:
            kept = {
                "nothing_added": timings["ours"][1] <= timings["theirs"][2],  # the median, and the third quartile
                "at_copy_bandwidth": timings["copy"][1] >= COPY_SHARE * timings["ours"][1],
            }
            report["sizes"][nbytes]["kept"] = kept
            broken += not all(kept.values())
        if nbytes == SIZES[0]:
            report["host_us"] = {"bare": host_us(theirs, settle), "rankwise": host_us(ours, settle)}
    added = report["host_us"]["rankwise"] - report["host_us"]["bare"]
    report["host_us"].update(added=added, limit=LIMIT_US, kept=added <= LIMIT_US)
    print(json.dumps(report, indent=2))
    bare.destroy()
    dist.destroy_process_group()
    return 1 if broken or added > LIMIT_US else 0


if __name__ == "__main__":
    sys.exit(main())
