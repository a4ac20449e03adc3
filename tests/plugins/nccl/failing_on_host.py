"""Compares how calls fail on the double with how they fail on gloo: `python tests/plugins/nccl/failing_on_host.py`.

27 calls, made for the first time and warm, that one rank does not make, or aborts: the same type and the same words on
all ranks as on gloo, and not later than a tenth of a second after the deadline. It prints what differs; exit code 1 if
anything does. With a number as its argument, so many at random.

What a call on a device has met shows where the host waits for it, so that a barrier follows each.
"""

from __future__ import annotations

import random
import re
import sys
import time
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[3]
sys.path[:0] = [str(ROOT / "tests" / folder) for folder in ("plugins/nccl", "fakes", "failures", ".")] + [str(ROOT)]

import by_path  # noqa: E402
import cupy  # the stand-in  # noqa: E402
import failing_calls  # noqa: E402
import nccl_on_host  # noqa: E402
import numpy as np  # noqa: E402
from busy_machine import slowness  # noqa: E402

import rankwise as dist  # noqa: E402
from rankwise.backends.registry import registry  # noqa: E402
from rankwise_local import local_world  # noqa: E402

__all__ = ["CALLS", "cells", "differences"]

LATE_S = 0.1
#: What `failing_calls.abort` waits before it aborts.
_ABORTED_AFTER_S = 0.05

#: What takes arrays of a device; nccl has no tags, so that objects, receives from anyone and batches are not of these.
CALLS = [
    *(name for name in failing_calls.COLLECTIVES if "object" not in name and name != "monitored_barrier"),
    *("send", "isend", "recv", "irecv"),
]
FAILURES = ("time-out", "abort")


def cells() -> list[failing_calls.Cell]:
    """Return what there is to compare."""
    return [(failure, call, phase, 4) for failure in FAILURES for call in CALLS for phase in ("first", "warm")]


def fail(cell: failing_calls.Cell, slower: float) -> tuple[str, float]:
    """Make a call fail on this rank, and return how it ends, and how long after its deadline."""
    call, group, count = failing_calls._prepared(cell, slower)
    began_s = time.monotonic()

    def waited(group: Any, count: int) -> None:
        call(group, count)
        cupy.cuda.get_current_stream().synchronize()
        dist.barrier(group)

    text = failing_calls.FAILURES[cell[0]](waited, group, count)
    late_s = time.monotonic() - began_s - (group.timeout_s if cell[0] == "time-out" else _ABORTED_AFTER_S)
    dist.destroy_process_group(group)
    return text, late_s


def plain(text: str) -> str:
    """Leave the number out, as what gloo packs into one call are several on nccl."""
    return re.sub(r" #\d+", "", text)


def on_double(cell: failing_calls.Cell, slower: float) -> list[tuple[str, float]]:
    """Return how a call ends on the ranks of a world on the double."""
    with local_world(3, backend="nccl", timeout=60 * slower) as world:
        found: list[tuple[str, float]] = world.run(fail, cell, slower)
        return found


def differences(listed: list[failing_calls.Cell]) -> list[str]:
    """Return what differs, and what is late."""
    slower = slowness()
    expected = by_path.ends_on("shm", listed, slower)
    registry.register(nccl_on_host.rankwise_backend(), replace=True)
    failing_calls.numbers = lambda count: cupy.ones(count, np.int64)  # type: ignore[assignment]
    texts = []
    for cell in listed:
        ends = on_double(cell, slower)
        for rank, ((text, late_s), wanted) in enumerate(zip(ends, expected[cell], strict=True)):
            if plain(text) != plain(wanted):
                texts.append(f"{failing_calls.key(cell)}, rank {rank}:\n    gloo: {wanted}\n    nccl: {text}")
            if late_s > LATE_S * slower:
                texts.append(f"{failing_calls.key(cell)}, rank {rank}: late by {late_s:.3f} s")
    return texts


if __name__ == "__main__":
    chosen = random.sample(cells(), int(sys.argv[1])) if len(sys.argv) > 1 else cells()
    found = differences(chosen)
    print(*found, f"{len(chosen)} failures of {len(CALLS)} calls: {len(found)} differences", sep="\n")
    sys.exit(bool(found))
