"""Print what the compiled parts bring on one host: the table of docs/native.md.

    python benchmarks/native.py [--mpich PYTHON] [--torch PYTHON] [--ranks 2 4] [--alternations 5] [--budget 0.1]
        [--write docs/native.md]

Every contender runs the same loop of back-to-back calls on arrays of float32 that rotate through more memory than the
caches hold; they take turns, and the figures are medians over the turns. rankwise runs with and without the compiled
parts. Open MPI is what `mpi4py` of this Python loads; MPICH and torch may live in environments of their own, whose
Python is named. Of several MPIs the faster one counts, cell by cell. Run it where nothing else runs.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import time
from collections import defaultdict
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import gloo_compare
import numpy as np
import pages

from rankwise.basics.recording import make_recorder

OPS, SIZES = gloo_compare.OPS, gloo_compare.SIZES
Runs = dict[str, list[dict[str, float]]]

#: The aims of docs/developers/aims.md: by number of ranks the least mean over the sizes, and the least of any cell.
AIMS = {2: (1.3, 0.9), 4: (1.0, 0.7)}


def contenders(given: argparse.Namespace) -> dict[str, tuple[str, str, str]]:
    """Return for each name the contender of gloo_compare, its Python, and the value of RANKWISE_NATIVE."""
    here = sys.executable
    found = {"native": ("rankwise", here, "on"), "python": ("rankwise", here, "off")}
    if find_spec("mpi4py"):
        found["openmpi"] = ("mpi", here, "on")
    if given.mpich:
        found["mpich"] = ("mpi", given.mpich, "on")
    if given.torch:
        found["gloo"] = ("torch", given.torch, "on")
    return found


def measure(given: argparse.Namespace, ranks: int) -> Runs:
    """Let all contenders take turns."""
    results: Runs = defaultdict(list)
    own, path = sys.executable, os.environ["PATH"]
    arguments = ["--ops", *given.ops, "--sizes", *map(str, given.sizes), "--budget", str(given.budget)]
    taking_part = contenders(given)
    for turn in range(given.alternations):
        for name, (contender, python, native) in taking_part.items():
            print(f"{ranks} ranks, turn {turn + 1}: {name}", file=sys.stderr)
            os.environ["RANKWISE_NATIVE"], sys.executable = native, python
            os.environ["PATH"] = f"{Path(python).absolute().parent}{os.pathsep}{path}"  # where its mpiexec is
            results[name].append(gloo_compare.launch(contender, ranks, arguments))
    sys.executable, os.environ["PATH"] = own, path
    return results


def median_us(runs: list[dict[str, float]], key: str) -> float:
    """Return the median over the turns."""
    return statistics.median(run[key] for run in runs) * 1e6


def cells(results: Runs, ranks: int) -> str:
    """Return every cell: microseconds, and how many times faster than the others."""
    rivals = [name for name in results if name not in ("native", "python")]
    lines = [f"| {ranks} ranks | bytes | native (us) | " + " | ".join(f"{n} (us)" for n in ("python", *rivals)) + " |"]
    lines.append("|---|---|---|" + "---|" * (1 + len(rivals)))
    for key in results["native"][0]:
        op, nbytes = key.split("/")
        own = median_us(results["native"], key)
        others = [median_us(results[name], key) for name in ("python", *rivals)]
        told = " | ".join(f"{other:.1f}, {other / own:.2f}x" for other in others)
        lines.append(f"| {op} | {nbytes} | {own:.2f} | {told} |")
    return "\n".join(lines)


def means(results: Runs, ranks: int) -> str:
    """Return for each operation the mean against the faster MPI, and against gloo, with the least cell."""
    lines = []
    mpis = [name for name in ("openmpi", "mpich") if name in results]
    for label, rivals in (("MPI", mpis), ("gloo", [n for n in ("gloo",) if n in results])):
        if not rivals:
            continue
        ratios: dict[str, list[float]] = defaultdict(list)
        for key in results["native"][0]:
            fastest = min(median_us(results[name], key) for name in rivals)
            ratios[key.split("/")[0]].append(fastest / median_us(results["native"], key))
        for op, found in ratios.items():
            mean, least = statistics.geometric_mean(found), min(found)
            wanted = AIMS.get(ranks, (1.0, 0.7)) if label == "MPI" else (25.0, 3.0)
            reached = "reached" if mean >= wanted[0] and least >= wanted[1] else "missed"
            aim = f"{wanted[0]}x, {wanted[1]}x | {reached}"
            lines.append(f"| {ranks} | {op} | {label} | {mean:.2f}x | {least:.2f}x | {aim} |")
    return "\n".join(lines)


def floors(sizes: list[int], ranks: int = 2) -> dict[int, float]:
    """Return how long one copy of an array takes on all cores at once: what memory allows."""
    program = (
        "import sys, time, numpy as np\n"
        "n, rounds = int(sys.argv[1]), 6\n"
        "pairs = [(np.ones(n // 4, np.float32), np.ones(n // 4, np.float32)) for _ in range(max(2, (64 << 20) // n))]\n"
        "sys.stdout.write('x'); sys.stdout.flush(); sys.stdin.read(1)\n"
        "t = time.perf_counter()\n"
        "for i in range(rounds * len(pairs)): np.copyto(*pairs[i % len(pairs)])\n"
        "print((time.perf_counter() - t) / rounds / len(pairs))\n"
    )
    found = {}
    for nbytes in sizes:
        command = [sys.executable, "-c", program, str(nbytes)]
        pipes = [subprocess.Popen(command, stdin=-1, stdout=-1) for _ in range(ranks)]
        for process in pipes:
            assert process.stdout is not None
            process.stdout.read(1)
        for process in pipes:
            assert process.stdin is not None
            process.stdin.write(b"x")
            process.stdin.flush()
        found[nbytes] = max(float(process.communicate()[0]) for process in pipes) * 1e6
    return found


def recorder_us() -> float:
    """Return what noting one call costs: its beginning, the line of the program, and its end."""
    trail: Any = make_recorder().trail("default", "default", (0,))
    array = np.ones(256, np.float32)

    def public(calls: int) -> None:
        trail.rehearse("all_reduce", array, calls)

    def round_s() -> float:
        began = time.perf_counter()
        public(1000)
        return (time.perf_counter() - began) / 1000

    return min(round_s() for _ in range(100)) * 1e6


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--mpich", default="", help="the Python of an environment whose mpi4py loads MPICH")
    parser.add_argument("--torch", default="", help="the Python of an environment with torch")
    parser.add_argument("--ranks", type=int, nargs="+", default=[2, 4])
    parser.add_argument("--ops", nargs="+", default=list(OPS), choices=OPS)
    parser.add_argument("--sizes", type=int, nargs="+", default=list(SIZES))
    parser.add_argument("--alternations", type=int, default=5)
    parser.add_argument("--budget", type=float, default=0.1)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--write", type=Path, help="a page to put the figures in; that of aims gets the rest")
    given = parser.parse_args()
    everything = {}
    told: list[str] = []

    def tell(text: str) -> None:
        told.append(text)
        print(text, flush=True)

    tell(f"{pages.machine()}; the flight recorder takes {recorder_us():.2f} us of a call.")
    summary = ["| ranks | operation | against | mean | least | wanted | |", "|---|---|---|---|---|---|---|"]
    for ranks in given.ranks:
        everything[ranks] = measure(given, ranks)
        summary.append(means(everything[ranks], ranks))
        tell(f"\n{cells(everything[ranks], ranks)}")
    print("\n" + "\n".join(summary))
    told.append("\n" + pages.columns("\n".join(summary), 5))
    large = [size for size in given.sizes if size >= 16 << 20]
    if large and 2 in everything and "all_reduce" in given.ops:
        for nbytes, floor in floors(large).items():
            own = median_us(everything[2]["native"], f"all_reduce/{nbytes}")
            tell(f"\n`all_reduce` of {nbytes >> 20} MiB takes {own:.0f} us, {own / floor:.2f} copies on both together.")
    if given.write:
        pages.put_into(given.write, "\n".join(told))
        pages.put_into(pages.AIMS, "\n".join(summary), "native")
    if given.json:
        given.json.write_text(json.dumps({"machine": list(os.uname()), "results": everything}, indent=1))


if __name__ == "__main__":
    main()
