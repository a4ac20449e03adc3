"""Compares how calls fail on the double with how they fail on gloo: `python tests/plugins/nccl/failing_on_host.py`.

27 calls, made for the first time and warm by three processes, of which one does not make it, dies, aborts, is
interrupted, or meets an error of CUDA: the same type and the same words on all ranks as on gloo, and not later than a
tenth of a second after it was due. It prints what differs; exit code 1 if anything does.

    --only time-out,all_reduce    only what has one of these words
    --sample 40                   so many at random
"""

from __future__ import annotations

import argparse
import random
import re
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[3]
sys.path[:0] = [str(ROOT / "tests" / folder) for folder in ("plugins/nccl", "fakes", "failures", ".")] + [str(ROOT)]

import by_path  # noqa: E402
import cupy  # the stand-in  # noqa: E402
import failing_calls  # noqa: E402
import numpy as np  # noqa: E402
from busy_machine import slowness  # noqa: E402
from failing_calls import DEATH, ODD, Cell, key, said  # noqa: E402
from lateness import Timed  # noqa: E402

import rankwise as dist  # noqa: E402

LATE_S = 0.1
CUDA = "CUDA error"

#: What takes arrays of a device; nccl has no tags, so that objects, receives from anyone and batches are not of these.
CALLS = [
    *(name for name in failing_calls.COLLECTIVES if "object" not in name and name != "monitored_barrier"),
    *("send", "isend", "recv", "irecv"),
]
FAILURES = ("time-out", "abort", "interrupt", DEATH, CUDA)


def cells(wanted: str = "") -> list[Cell]:
    """Return what there is to compare; an interrupt of a message or of a wait is of no concern to others on gloo."""
    known = {cell[:2] for cell in failing_calls.cells()} | {(CUDA, call) for call in CALLS}
    found = [(failure, call, phase, 4) for failure in FAILURES for call in CALLS for phase in ("first", "warm")]
    words = [word for word in wanted.split(",") if word]
    return [cell for cell in found if cell[:2] in known and (not words or any(word in key(cell) for word in words))]


# ---------------------------------------------------------------------- on each rank


def prepare() -> None:
    """Have the calls of this process made on the double, and failures timed."""
    import nccl_on_host

    from rankwise.backends.registry import registry

    registry.register(nccl_on_host.rankwise_backend(), replace=True)
    failing_calls.BACKEND = "nccl"
    failing_calls.numbers = lambda count: cupy.ones(count, np.int64)
    failing_calls.CALLS = {name: shown(failing_calls.CALLS[name]) for name in CALLS}
    ways = {**failing_calls.FAILURES, CUDA: cuda_error}
    failing_calls.FAILURES = {name: timed(name, fail) for name, fail in ways.items()}


def shown(call: failing_calls.Call) -> failing_calls.Call:
    """Wait on the host behind a call, as what a call on a device has met shows only there."""

    def waited(group: Any, count: int) -> None:
        call(group, count)
        dist.barrier(group)

    return waited


def timed(name: str, fail: Callable[..., str]) -> Any:
    """Tell how late a failure is, too."""

    def failed(call: failing_calls.Call, group: Any, count: int) -> tuple[str, float]:
        with Timed(due_s(name, group.timeout_s)) as block:
            text = fail(call, group, count)
        return text, block.late_s

    return failed


def due_s(name: str, timeout_s: float) -> float:
    """Return when a failure ends: by what `failing_calls` does, and with a CUDA error when NCCL has started."""
    interrupted = timeout_s / 16 if dist.get_rank() != ODD else 0.15
    return {"time-out": timeout_s, "abort": 0.05, "interrupt": interrupted, CUDA: 0.5}.get(name, 0.0)


def cuda_error(call: failing_calls.Call, group: Any, count: int) -> str:
    """All make the call; a kernel of the odd rank has an illegal address, and the devices of others never get there."""
    from nccl_on_host import rank_here

    fails = rank_here().fails
    fails["eventQuery"] = 700 if dist.get_rank() == ODD else 600
    text = said(lambda: call(group, count))
    fails.clear()
    return text


def all_on_double(listed: list[Cell], slower: float) -> list[Any]:
    """Make calls fail on the double, and return how each has ended on this rank, and how late."""
    prepare()
    return failing_calls.all_of(listed, slower)


def die_on_double(cell: Cell, folder: str, slower: float) -> None:
    """Have the odd rank's process end while the others are in a call on the double."""
    prepare()
    failing_calls.die(cell, folder, slower)


# ---------------------------------------------------------------------- the comparison


def plain(text: str) -> str:
    """Leave out what cannot be the same: the number, as what gloo packs into one call are several on nccl.

    And which of the calls that make a call is interrupted: a warm one waits for the host only in the barrier behind it.
    """
    text = re.sub(r" #\d+", "", text)
    return re.sub(r": \w+ (on group .*, rank 2),? (was interrupted)", r": \1 \2", text)


def differences(listed: list[Cell], tries: int = 2) -> list[str]:
    """Return what differs, and what is late whenever it is tried."""
    slower = slowness()
    expected = by_path.ends_on("shm", [cell for cell in listed if cell[0] != CUDA], slower)
    with tempfile.TemporaryDirectory() as folder:
        env = {"RANKWISE_TESTS_NCCL_FOLDER": folder}
        ends = by_path.ends_in(env, listed, slower, all_on_double, die_on_double)
    found = [f"{key(cell)}, {told}" for cell in listed for told in differs(cell, ends[cell], expected.get(cell))]
    late = [cell for cell in listed if cell[0] != DEATH and max(late_s for _, late_s in ends[cell]) > LATE_S]
    if late and tries:
        return found + differences(late, tries - 1)
    return found + [f"{key(cell)}: late by {[round(late_s, 3) for _, late_s in ends[cell]]} s" for cell in late]


def differs(cell: Cell, ends: list[Any], wanted: list[str] | None) -> list[str]:
    """Return how the ends of one call differ from those on gloo, or where that has none, from what they should be."""
    texts = ends if cell[0] == DEATH else [text for text, _ in ends]
    if wanted is None:
        met = texts[ODD].removeprefix("rankwise.errors.")
        wanted = [f"rankwise.errors.GroupAbortedError: rank {ODD} gave the group up: {met}"] * ODD + [texts[ODD]]
        if "DistBackendError" not in met or f"rank {ODD}: CUDARuntimeError: cudaError700" not in met:
            return [f"rank {ODD} says: {met}"]
    pairs = [(a, b) for a, b in zip(wanted, texts, strict=True) if plain(a) != plain(b)]
    return ["".join(f"\n    wanted: {a}\n    nccl: {b}" for a, b in pairs)] if pairs else []


def main() -> int:
    """Compare what is asked for."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default="")
    parser.add_argument("--sample", type=int, default=0)
    options = parser.parse_args()
    listed = cells(options.only)
    if options.sample:
        listed = random.sample(listed, min(options.sample, len(listed)))
    found = 0
    for failure in dict.fromkeys(cell[0] for cell in listed):
        ours = [cell for cell in listed if cell[0] == failure]
        texts = differences(ours)
        found += len(texts)
        print(*texts, f"{failure}: {len(ours)} failures, {len(texts)} differences", sep="\n", flush=True)
    print(f"{len(listed)} failures of {len(CALLS)} calls: {found} differences")
    return bool(found)


if __name__ == "__main__":
    sys.exit(main())
