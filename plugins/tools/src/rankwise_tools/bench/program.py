"""One rank of `rankwise bench`; rank 0 prints a line of JSON for each size."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable
from itertools import pairwise
from typing import Any

from rankwise_tools.bench.libraries import LIBRARIES, Library, bus_factor

#: Begins a line that is a result.
MARK = "rankwise-bench "
_ITEM_NBYTES = 4
#: Into how many parts the calls of a size are divided: so many that on a busy machine some are undisturbed.
_BATCHES = 100
#: Unless told how many calls to time: so many at least, and for so long, as a shorter part shows the machine's moods.
_LEAST_CALLS, _MOST_CALLS, _LEAST_S = 20, 5000, 0.1


def main(plan: dict[str, object]) -> None:
    """Measure what the plan says: library, backend, ops, sizes, warmup, iterations."""
    library = LIBRARIES[str(plan["library"])](str(plan["backend"]))
    warmup = int(str(plan["warmup"]))
    iterations = None if plan["iterations"] is None else int(str(plan["iterations"]))
    for op in _listed(plan["ops"]):
        for nbytes in [0] if op == "barrier" else _listed(plan["sizes"]):
            result = _measure(library, str(op), int(str(nbytes)), warmup, iterations)
            if library.rank == 0:
                found = {"library": plan["name"], "op": op, "ranks": library.size, **result}
                print(MARK + json.dumps(found), flush=True)
    library.close()


def _measure(library: Library, op: str, nbytes: int, warmup: int, wanted: int | None) -> dict[str, Any]:
    """Return latency and bandwidths of one operation and size; of several iterations the mean."""
    # Whole parts for every rank, so that all libraries move the same.
    count = -(-max(nbytes // _ITEM_NBYTES, 1) // library.size) * library.size
    call = library.prepare(op, count)
    for _ in range(warmup):
        call()
    iterations = _enough(library, call) if wanted is None else wanted
    library.barrier()
    times = [time.perf_counter()]
    for _ in range(iterations):
        call()
        times.append(time.perf_counter())
    half = 2 if op == "send_recv" else 1
    mean_s = library.slowest((times[-1] - times[0]) / iterations) / half
    fastest_s = min(after - before for before, after in pairwise(times)) / half
    batches_s = [library.slowest(mean) / half for mean in _batches(times)]
    moved = 0 if op == "barrier" else count * _ITEM_NBYTES
    rate = moved / mean_s
    return {
        "nbytes": moved,
        "latency_s": mean_s,
        "fastest_s": fastest_s,
        "algbw_bytes_per_s": rate,
        "busbw_bytes_per_s": rate * bus_factor(op, library.size),
        "batches_s": batches_s,
    }


def _enough(library: Library, call: Callable[[], object]) -> int:
    """Return how many calls to time; the same on all ranks, as they agree about the slowest."""
    library.barrier()
    began = time.perf_counter()
    for _ in range(_LEAST_CALLS):
        call()
    one_s = library.slowest((time.perf_counter() - began) / _LEAST_CALLS)
    return min(max(_LEAST_CALLS, round(_LEAST_S / one_s)), _MOST_CALLS)


def _batches(times: list[float]) -> list[float]:
    """Return the mean times of a few parts of the run, which tell how much it differs from itself."""
    calls = len(times) - 1
    ends = [round(calls * part / min(_BATCHES, calls)) for part in range(min(_BATCHES, calls) + 1)]
    return [(times[end] - times[begin]) / (end - begin) for begin, end in pairwise(ends)]


def _listed(value: object) -> list[object]:
    assert isinstance(value, list)
    return value


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
