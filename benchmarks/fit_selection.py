"""Fit the selection table of the gloo backend between hosts: time each algorithm, and say from where which is best.

    sudo python benchmarks/fit_selection.py --ranks 2 --ops all_reduce broadcast

Each rank is on a host of its own, a network namespace. The lines that it prints are those of `NETWORK` for this many
ranks, in gloo's `collectives/tables.py`; what it takes for a change is a tenth.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import tempfile
from collections import defaultdict
from pathlib import Path

import gloo_compare
import namespaces
from two_hosts import Hosts, forbidden

from rankwise_gloo_tcp.collectives.tables import NETWORK

SIZES = tuple(1 << power for power in range(10, 25, 2))
#: An algorithm replaces the one of the size below only if it is faster by so much.
WORTH = 0.9


def lines(times: dict[str, list[float]], sizes: tuple[int, ...]) -> list[tuple[str, int | None]]:
    """Return the lines of a table: an algorithm and the bytes up to which it is taken; None is no bound."""
    found: list[tuple[str, int | None]] = []
    taken = ""
    for index in range(len(sizes)):
        best = min(times, key=lambda name: times[name][index])
        if taken and times[best][index] > WORTH * times[taken][index]:
            best = taken
        if best != taken:
            if found:
                found[-1] = (found[-1][0], sizes[index - 1])
            found.append((best, None))
            taken = best
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument(
        "--ops",
        nargs="+",
        default=["all_reduce", "broadcast", "reduce_scatter"],
        choices=[op for op in NETWORK if op in gloo_compare.OPS],
    )
    parser.add_argument("--sizes", type=int, nargs="+", default=list(SIZES), help="bytes of the array")
    parser.add_argument("--alternations", type=int, default=3)
    parser.add_argument("--budget", type=float, default=0.05, help="seconds for each figure of each alternation")
    parser.add_argument("--json", type=Path)
    given = parser.parse_args()
    reason = forbidden()
    if reason:
        raise SystemExit(f"no namespaces here: {reason}")
    program = [str(Path(gloo_compare.__file__)), "--sizes", *map(str, given.sizes), "--budget", str(given.budget)]
    everything = {}
    with Hosts(given.ranks) as hosts, tempfile.TemporaryDirectory() as folder:
        secret = namespaces.write_secret(Path(folder))
        hosts.control_congestion("cubic")
        for op in given.ops:
            runs: dict[str, list[dict[str, float]]] = defaultdict(list)
            for _ in range(given.alternations):
                for name in dict.fromkeys(choice.name for choice in NETWORK[op]):
                    os.environ["RANKWISE_GLOO_ALGORITHMS"] = f"{op}={name}"
                    command = [*program, "--ops", op, "--work", "rankwise"]
                    runs[name].append(namespaces.launch(hosts, "rankwise", secret, command))
            times = {
                name: [statistics.median(run[f"{op}/{nbytes}"] for run in found) for nbytes in given.sizes]
                for name, found in runs.items()
            }
            everything[op] = times
            print(f"\n{op}, {given.ranks} ranks: microseconds at {', '.join(map(str, given.sizes))} bytes")
            for name, row in times.items():
                print(f"  {name:10} " + " ".join(f"{x * 1e6:10.1f}" for x in row))
            for name, limit in lines(times, tuple(given.sizes)):
                print(f'  Choice("{name}"' + (f", {limit}, {given.ranks})" if limit else f", None, {given.ranks})"))
    if given.json:
        facts = {"machine": list(os.uname()), "processors": os.cpu_count(), "sizes": given.sizes}
        given.json.write_text(json.dumps({**facts, "ranks": given.ranks, "seconds": everything}, indent=1))


if __name__ == "__main__":
    main()
