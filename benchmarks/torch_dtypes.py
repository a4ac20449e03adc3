"""Processor time of collectives over rankwise and over torch's gloo, for dtypes, operations, sizes and shapes.

    python benchmarks/torch_dtypes.py [--ranks 2] [--only NAME] [--write docs/torch.md]

Times are those of the processors, which other work of the machine changes little: the sum over all ranks, the median of
turns that alternate. The table has the geometric mean and the least ratio of all sizes. The exit status is 1 if a cell
costs more than over gloo.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pages
import torch_compare

SIZES = {"1 KiB": 1 << 10, "64 KiB": 1 << 16, "1 MiB": 1 << 20, "16 MiB": 1 << 24}
DTYPES = ("float16", "bfloat16", "float32", "float64", "int8", "uint8", "int32", "int64")
REDUCTIONS = ("SUM", "MAX", "PRODUCT")
TURNS = 7
#: How long the calls of a turn take over gloo, about.
TURN_S = 0.04
#: What a cell may cost beside gloo: less than this differs from turn to turn.
LEAST = 0.95

Cell = tuple[str, str, str]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--only", default="", help="measure what has this in its name")
    parser.add_argument("--write", type=Path, help="a page to put the table in")
    parser.add_argument("--rank", type=int, help=argparse.SUPPRESS)
    parser.add_argument("--folder", type=Path, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.rank is not None:
        _measure(given)
        return
    found = torch_compare.launch(__file__, given.ranks, "--only", given.only)
    ratios: dict[Cell, float] = {tuple(cell): ratio for cell, ratio in found}
    text = _table(ratios)
    print(f"\n{text}")
    if given.write:
        pages.put_into(given.write, text, "dtypes")
    sys.exit(any(ratio < LEAST for ratio in ratios.values()))


def _table(ratios: dict[Cell, float]) -> str:
    rows: dict[str, dict[str, list[float]]] = defaultdict(lambda: defaultdict(list))
    for (call, dtype, _), ratio in ratios.items():
        rows[call][dtype].append(ratio)
    named = [dtype for dtype in DTYPES if any(dtype in row for row in rows.values())]
    lines = [f"| mean (least) ratio | {' | '.join(named)} |", "|---" * (len(named) + 1) + "|"]
    for call, row in rows.items():
        told = [f"{statistics.geometric_mean(row[d]):.1f} ({min(row[d]):.1f})" if d in row else "" for d in named]
        lines.append(f"| {call} | {' | '.join(told)} |")
    return "\n".join(lines)


def _measure(given: argparse.Namespace) -> None:
    import torch
    import torch.distributed as dist

    import rankwise_torch  # noqa: F401 - registers the name

    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{given.folder}/store", rank=given.rank, world_size=given.ranks)
    groups = {"gloo": dist.group.WORLD, "rankwise": dist.new_group(backend="rankwise")}
    ratios: list[tuple[Cell, float]] = []
    for cell, call in _cells(torch, dist, given.ranks):
        if given.only not in " ".join(cell):
            continue
        times = _in_turns(torch, dist, {whose: (lambda g=group, c=call: c(g)) for whose, group in groups.items()})
        ratios.append((cell, times["gloo"] / times["rankwise"]))
        if given.rank == 0:
            told = "  ".join(f"{whose} {each * 1e6:10.1f} us" for whose, each in times.items())
            print(f"{' '.join(cell):48} {told} {ratios[-1][1]:6.2f}", flush=True)
    if given.rank == 0:
        Path(given.folder, "found").write_text(json.dumps(ratios), encoding="utf-8")
    dist.barrier()
    dist.destroy_process_group()


def _cells(torch: Any, dist: Any, size: int) -> Iterator[tuple[Cell, Callable[[Any], None]]]:
    for name in DTYPES:
        dtype = getattr(torch, name)
        for label, nbytes in SIZES.items():
            whole = torch.ones(nbytes // dtype.itemsize, dtype=dtype)
            part = torch.empty(whole.numel() // size, dtype=dtype)
            square = torch.ones(16, whole.numel() // 16, dtype=dtype).t()
            for op in REDUCTIONS:
                reduce_op = getattr(dist.ReduceOp, op)
                yield (f"all_reduce {op}", name, label), lambda g, x=whole, o=reduce_op: dist.all_reduce(x, o, group=g)
            yield ("reduce", name, label), lambda g, x=whole: dist.reduce(x, 0, group=g)
            yield (
                ("reduce_scatter", name, label),
                lambda g, x=whole, y=part: dist.reduce_scatter_single(y, x, group=g),
            )
            yield ("broadcast", name, label), lambda g, x=whole: dist.broadcast(x, 0, group=g)
            yield ("all_gather", name, label), lambda g, x=whole, y=part: dist.all_gather_single(x, y, group=g)
            yield ("all_reduce, transposed", name, label), lambda g, x=square: dist.all_reduce(x, group=g)
            yield ("broadcast, transposed", name, label), lambda g, x=square: dist.broadcast(x, 0, group=g)


def _in_turns(torch: Any, dist: Any, calls: dict[str, Callable[[], None]]) -> dict[str, float]:
    """Return the processor time that all ranks together take for a call, the median of turns."""
    for call in calls.values():
        call(), call()
    count = torch.tensor(_count(dist, calls["gloo"]))
    dist.broadcast(count, 0)
    times: dict[str, list[float]] = {whose: [] for whose in calls}
    for _ in range(TURNS):
        for whose, call in calls.items():
            dist.barrier()
            begin = time.process_time()
            for _ in range(int(count)):
                call()
            dist.all_reduce(took := torch.tensor(time.process_time() - begin, dtype=torch.float64))
            times[whose].append(float(took) / int(count))
    return {whose: statistics.median(each) for whose, each in times.items()}


def _count(dist: Any, call: Callable[[], None]) -> int:
    dist.barrier()
    begin = time.perf_counter()
    call(), call(), call()
    return max(3, min(1000, int(TURN_S * 3 / (time.perf_counter() - begin))))


if __name__ == "__main__":
    main()
