"""One rank of `rankwise bench`; rank 0 prints a line of JSON for each size."""

from __future__ import annotations

import json
import sys
import time

from rankwise.cli.bench_libraries import LIBRARIES, Library, bus_factor

__all__ = ["MARK", "main"]

#: Begins a line that is a result.
MARK = "rankwise-bench "
_ITEM_NBYTES = 4


def main(plan: dict[str, object]) -> None:
    """Measure what the plan says: library, backend, ops, sizes, warmup, iterations."""
    library = LIBRARIES[str(plan["library"])](str(plan["backend"]))
    warmup, iterations = int(str(plan["warmup"])), int(str(plan["iterations"]))
    for op in _listed(plan["ops"]):
        for nbytes in [0] if op == "barrier" else _listed(plan["sizes"]):
            result = _measure(library, str(op), int(str(nbytes)), warmup, iterations)
            if library.rank == 0:
                found = {"library": plan["name"], "op": op, "ranks": library.size, **result}
                print(MARK + json.dumps(found), flush=True)
    library.close()


def _measure(library: Library, op: str, nbytes: int, warmup: int, iterations: int) -> dict[str, float]:
    """Return latency and bandwidths of one operation and size; of several iterations the mean."""
    # Whole parts for every rank, so that all libraries move the same.
    count = -(-max(nbytes // _ITEM_NBYTES, 1) // library.size) * library.size
    call = library.prepare(op, count)
    for _ in range(warmup):
        call()
    library.barrier()
    fastest_s, begin = float("inf"), time.perf_counter()
    for _ in range(iterations):
        before = time.perf_counter()
        call()
        fastest_s = min(fastest_s, time.perf_counter() - before)
    mean_s = library.slowest((time.perf_counter() - begin) / iterations)
    if op == "send_recv":
        mean_s, fastest_s = mean_s / 2, fastest_s / 2
    moved = 0 if op == "barrier" else count * _ITEM_NBYTES
    rate = moved / mean_s
    return {
        "nbytes": moved,
        "latency_s": mean_s,
        "fastest_s": fastest_s,
        "algbw_bytes_per_s": rate,
        "busbw_bytes_per_s": rate * bus_factor(op, library.size),
    }


def _listed(value: object) -> list[object]:
    assert isinstance(value, list)
    return value


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
