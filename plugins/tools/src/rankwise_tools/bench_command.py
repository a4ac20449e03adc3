"""`rankwise bench`: measure latency and bandwidth."""

from __future__ import annotations

import argparse
import importlib.util
import json
import platform
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from statistics import geometric_mean, median
from typing import Any

from rankwise.launching import native
from rankwise_launch.toolbox import (
    CommandError,
    child,
    columns,
    command_for,
    format_nbytes,
    instead,
    mpiexec,
    parse_nbytes,
    pick_backend,
    said_last,
)
from rankwise_tools.bench.program import MARK
from rankwise_tools.bench.progress import Progress
from rankwise_tools.bench.saved import Change, changes, elsewhere, load, save, verdict

OPS = (
    *("all_reduce", "broadcast", "reduce", "all_gather", "reduce_scatter", "all_to_all"),
    *("gather", "scatter", "send_recv", "barrier"),
)
PROGRAM = "rankwise_tools.bench.program"
#: The sizes that the documentation shows.
LIKE_DOCS = "8,1KiB,16KiB,64KiB,1MiB,4MiB,16MiB,64MiB"
#: What comparing with a library needs.
_NEEDS = {"gloo-torch": "torch", "mpi4py": "mpi4py"}

DESCRIPTION = """\
Measure operations on processes of this machine, as nccl-tests and the OSU micro-benchmarks do. The size is that of the
whole array, all parts together. algbw is the size divided by the time; busbw is the bandwidth that each rank's link
needs at least. send_recv is half a round trip between ranks 0 and 1."""

EXAMPLES = """\
examples:
  rankwise bench
  rankwise bench --like-docs
  rankwise bench --ops all --save before.json
  rankwise bench --ops all --against before.json
  rankwise bench -n 4 --ops all_reduce,all_gather --sizes 1KiB:64MiB:4 --json > bench.json
  rankwise bench --compare gloo-torch,mpi4py --json"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add what the command takes."""
    parser.add_argument("-n", type=int, default=2, metavar="N", help="number of ranks; default 2")
    parser.add_argument("--backend", metavar="NAME", help="the backend; by default one that can run here")
    parser.add_argument(
        "--ops", default="all_reduce", metavar="LIST", help=f"any of {', '.join(OPS)}; default all_reduce"
    )
    parser.add_argument(
        "--sizes",
        default="1KiB:16MiB:4",
        metavar="LIST",
        help="FROM:TO:FACTOR, or a list such as 8,64KiB; default 1KiB:16MiB:4",
    )
    parser.add_argument("--warmup", type=int, default=5, metavar="N", help="untimed calls first; default 5")
    parser.add_argument(
        "--iterations", type=int, metavar="N", help="timed calls; defaults to as many as take 0.1 s, and at least 20"
    )
    parser.add_argument(
        "--compare", default="", metavar="LIST", help="also measure gloo-torch, mpi4py, or installed for all present"
    )
    parser.add_argument("--json", action="store_true", help="print the results as JSON")
    parser.add_argument("--save", type=Path, metavar="FILE", help="save the results for a later comparison")
    parser.add_argument(
        "--against", type=Path, metavar="FILE", help="report what is slower than in this saved run; exit code 1 if so"
    )
    parser.add_argument(
        "--like-docs",
        action="store_true",
        help="measure what the documentation shows: all_reduce of 8 B to 64 MiB beside the installed libraries",
    )


def run(options: argparse.Namespace) -> int:
    """Run the command, and return the exit code."""
    if options.like_docs:
        options.sizes, options.compare = LIKE_DOCS, options.compare or "installed"
    ops, sizes = _ops(options.ops), _sizes(options.sizes)
    if options.n < 1 or (options.iterations is not None and options.iterations < 1):
        raise CommandError("at least 1 rank and 1 iteration are needed", 2)
    if options.warmup < 0:
        raise CommandError(f"--warmup cannot be {options.warmup}; 0 leaves it out", 2)
    if "send_recv" in ops and options.n < 2:
        raise CommandError("send_recv needs 2 ranks", 2)
    then = None if options.against is None else load(options.against)
    if options.save is not None and not options.save.absolute().parent.is_dir():
        raise CommandError(f"{options.save} cannot be written: there is no folder {options.save.parent}", 2)
    backend = pick_backend(options.backend)
    names = [backend, *_rivals(options.compare)]
    results: list[dict[str, Any]] = []
    per_library = sum(_worth(0) if op == "barrier" else sum(map(_worth, sizes)) for op in ops)
    commands = [_command(name, backend, options, ops, sizes) for name in names]
    with Progress(per_library * len(names)) as progress:
        for name, command in zip(names, commands, strict=True):
            for result in _measure(name, command):
                results.append(result)
                progress.step(f"{name} {result['op']} {format_nbytes(result['nbytes'])}", _worth(result["nbytes"]))
    if options.save is not None:
        save(options.save, _about(), results)
    found = None if then is None else changes(results, then.results)
    _show(options, results, found)
    if then is not None and not found:
        raise CommandError(f"{options.against} has no run of these operations, sizes and libraries on as many ranks", 2)
    if then is not None and not options.json and (other := elsewhere(_about(), then.about)):
        print(f"mind that this was measured elsewhere: {other}")
    return int(any(change.is_slower for change in found or ()))


def _worth(nbytes: int) -> float:
    """Return about how long a size takes beside others: a part that all have, and one that grows."""
    return 1.0 + nbytes / (4 << 20)


def _command(name: str, backend: str, options: argparse.Namespace, ops: list[str], sizes: list[int]) -> list[str]:
    plan = {"name": name, "library": "rankwise" if name == backend else name, "backend": backend}
    text = json.dumps({**plan, "ops": ops, "sizes": sizes, "warmup": options.warmup, "iterations": options.iterations})
    if name == backend:
        return command_for(backend, options.n, PROGRAM, text)
    if name == "gloo-torch":
        return [sys.executable, "-m", "rankwise", "run", "-n", str(options.n), "-m", PROGRAM, text]
    return [*mpiexec(options.n), sys.executable, "-m", PROGRAM, text]


def _rivals(text: str) -> list[str]:
    if text == "installed":
        return [name for name, module in _NEEDS.items() if importlib.util.find_spec(module) is not None]
    names = [name for name in text.split(",") if name]
    for name in names:
        if name not in _NEEDS:
            raise CommandError(f"cannot compare with {name!r}; there are {', '.join(_NEEDS)}, and installed", 2)
        if importlib.util.find_spec(_NEEDS[name]) is None:
            raise CommandError(f"comparing with {name} needs {_NEEDS[name]}: pip install {_NEEDS[name]}")
    return names


def _measure(name: str, command: list[str]) -> Iterator[dict[str, Any]]:
    with tempfile.TemporaryFile("w+") as errors, child(command, stdout=subprocess.PIPE, stderr=errors) as process:
        assert process.stdout is not None
        for line in process.stdout:
            if MARK in line:
                yield json.loads(line.partition(MARK)[2])
        if process.wait():
            errors.seek(0)
            why = said_last(errors.read())
            raise CommandError(f"measuring {name} failed with exit code {process.returncode}: {why}")


def _about() -> dict[str, Any]:
    machine = {"machine": platform.machine(), "system": platform.release(), "python": platform.python_version()}
    return {**machine, "native": native.state()[1]}


def _show(options: argparse.Namespace, results: list[dict[str, Any]], found: list[Change] | None) -> None:
    if options.json:
        told = {} if found is None else {"changes": [{**c._asdict(), "is_slower": c.is_slower} for c in found]}
        print(json.dumps({**_about(), "results": results, **told}, indent=2))
        return
    head = ["library", "op", "ranks", "size", "latency us", "fastest us", "algbw GB/s", "busbw GB/s"]
    rows = [
        [r["library"], r["op"], str(r["ranks"]), format_nbytes(r["nbytes"]), f"{r['latency_s'] * 1e6:.1f}",
         f"{r['fastest_s'] * 1e6:.1f}", f"{r['algbw_bytes_per_s'] / 1e9:.3f}", f"{r['busbw_bytes_per_s'] / 1e9:.3f}"]
        for r in results
    ]  # fmt: skip
    print(columns([head, *rows], right=(2, 3, 4, 5, 6, 7)))
    print(f"\ncompiled parts: {native.state()[1]}")
    for line in _ratios(results):
        print(line)
    if found:
        print(f"\nagainst {options.against}:\n{verdict(found)}")


def _ratios(results: list[dict[str, Any]]) -> Iterator[str]:
    """Say for each other library how long it takes beside ours, small and large: geometric means, as in the docs."""
    ours = {(r["op"], r["nbytes"]): median(r["batches_s"]) for r in results if r["library"] == results[0]["library"]}
    for name in dict.fromkeys(r["library"] for r in results[1:] if r["library"] != results[0]["library"]):
        theirs = [r for r in results if r["library"] == name and (r["op"], r["nbytes"]) in ours]
        for word, least, most in (("up to 64 KiB", 0, 64 << 10), ("from 1 MiB", 1 << 20, 1 << 62)):
            near = [r for r in theirs if least <= r["nbytes"] <= most]
            found = [median(r["batches_s"]) / ours[r["op"], r["nbytes"]] for r in near]
            if found:
                times = geometric_mean(found)
                yield f"{name} takes {times:{'.0f' if times >= 100 else '.2g'}}x as long, {word}"


def _ops(text: str) -> list[str]:
    ops = list(OPS) if text == "all" else text.split(",")
    for op in ops:
        if op not in OPS:
            raise CommandError(f"cannot measure {op!r}{instead(op, [*OPS, 'all'])}", 2)
    return ops


def _sizes(text: str) -> list[int]:
    try:
        if ":" not in text:
            return [parse_nbytes(part) for part in text.split(",")]
        first, last, factor, *more = [*text.split(":"), "", ""]
        if not factor.isdecimal() or any(more):
            raise ValueError("a range is FIRST:LAST:FACTOR, such as 1KiB:64MiB:4")
        size, end, by = parse_nbytes(first), parse_nbytes(last), int(factor)
        if size < 1 or by < 2:
            raise ValueError("a range begins at 1 or more, with a factor of 2 or more")
        if size > end:
            raise ValueError(f"{first} is more than {last}; a range goes up")
    except ValueError as error:
        raise CommandError(f"--sizes {text}: {error}", 2) from error
    sizes = []
    while size <= end:
        sizes.append(size)
        size *= by
    return sizes
