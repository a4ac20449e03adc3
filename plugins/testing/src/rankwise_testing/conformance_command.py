"""`rankwise conformance`: prove what a backend declares."""

from __future__ import annotations

import argparse
import json
import os
import signal
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any, NoReturn

from rankwise.kits import cause, registry
from rankwise_launch.toolbox import CommandError, columns, environment, marked, pick_backend, require_folder
from rankwise_testing.conformance import conformance
from rankwise_testing.own_mutants import MUTANTS, try_mutants

DESCRIPTION = """\
Run the conformance kit against a backend: every cell of its capability table, every error, time-outs and deaths of
ranks. The backend must support what it declares and refuse everything else."""

EXAMPLES = """\
examples:
  rankwise conformance gloo --report gloo.json
  rankwise conformance mine --fast                   # while you write it: a minute of one processor
  rankwise conformance mine --mutants 30             # how many planted mistakes the kit notices
  rankwise conformance mine --badge conformance.json # for a badge of shields.io
  rankwise conformance gloo --variant tcp            # one of the ways that it declares; or all of them
  rankwise conformance mine -- -x -k all_reduce      # what follows -- goes to pytest"""


#: What may follow `--`.
AFTER_DASHES = "arguments for pytest ..."


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add what the command takes."""
    parser.add_argument("backend", metavar="NAME", help="the backend")
    parser.add_argument("--device", metavar="KIND", default="cpu", help="the kind of device: cpu (default), cuda")
    parser.add_argument("--variant", metavar="WAY", help="a variant that the backend declares, such as tcp; or all")
    parser.add_argument("--launch", metavar="COMMAND", help="the command to start ranks, such as 'mpiexec -n {size}'")
    parser.add_argument(
        "--fast", action="store_true", help="try each promise in part, within one minute of processor time"
    )
    parser.add_argument(
        "--mutants",
        type=int,
        nargs="?",
        const=MUTANTS,
        metavar="N",
        help=f"plant N mistakes in the backend, one at a time ({MUTANTS}), and show those that a fast run misses",
    )
    parser.add_argument("--badge", type=Path, metavar="FILE", help="write the result as JSON for publishing")
    parser.add_argument("--report", type=Path, metavar="FILE", help="write the declared and the measured table as JSON")
    parser.usage = f"{parser.prog} NAME [options] [-- {AFTER_DASHES}]"


def run(options: argparse.Namespace) -> int:
    """Run the command, and return the exit code."""
    require_folder()
    _check(options.backend, options.device)
    variants = _variants(options.backend, options.variant)
    for report in {path for variant in variants if (path := _report_path(options, variant)) is not None}:
        _check_report(report)
    os.environ.update(environment())
    if options.mutants is not None:
        return try_mutants(options.backend, options.mutants, [*_asked(options), *options.after_dashes])
    return max(_run_variant(options, variant) for variant in variants)


def _run_variant(options: argparse.Namespace, variant: str) -> int:
    with tempfile.TemporaryDirectory(prefix="rankwise-") as folder:
        report = _report_path(options, variant) or Path(folder, "report.json")
        asked = ["-q", "--report", str(report.absolute()), *_asked(options)]
        asked += ["--variant", variant] if variant else []
        asked += ["--fast"] if options.fast else []
        asked += ["--badge", str(options.badge.absolute())] if options.badge else []
        code = _ended_by_sigterm(conformance)(options.backend, options.device, [*asked, *options.after_dashes])
        if report.exists() and report.stat().st_size:
            print(_compared(json.loads(report.read_text(encoding="utf-8")), code))
    return code


def _asked(options: argparse.Namespace) -> list[str]:
    return ["--launch", options.launch] if options.launch else []


def _check_report(report: Path) -> None:
    """See that the report can be written before everything else is done."""
    try:
        report.write_bytes(b"")
    except OSError as error:
        raise CommandError(f"--report {report}: {cause(error)}", 2) from error


def _ended_by_sigterm(call: Callable[..., int]) -> Callable[..., int]:
    """Have SIGTERM end a call as an exception does, so that what it has started is ended too."""

    def end(number: int, frame: object) -> NoReturn:
        raise SystemExit(128 + number)

    def wrapped(*arguments: Any) -> int:
        before = signal.signal(signal.SIGTERM, end)
        try:
            return call(*arguments)
        finally:
            signal.signal(signal.SIGTERM, before)

    return wrapped


def _variants(backend: str, asked: str | None) -> list[str]:
    """Return the variants to run; the empty one leaves the choice to the backend."""
    declared = list(registry.get(backend).variants)
    if asked == "all":
        return declared or [""]
    if asked and asked not in declared:
        there = ", ".join(declared) or "none"
        raise CommandError(f"backend {backend!r} declares no variant {asked!r}; it declares {there}", 2)
    return [asked or ""]


def _report_path(options: argparse.Namespace, variant: str) -> Path | None:
    """Return where the report goes: with all variants, each into a file of its own."""
    path: Path | None = options.report
    return path.with_stem(f"{path.stem}-{variant}") if path and options.variant == "all" and variant else path


def _compared(report: dict[str, Any], code: int) -> str:
    """Lay out the declared table beside the measured one, and what differs."""
    declared, measured = (report[table][report["device"]] for table in ("declared", "measured"))
    rows = [["", "declared", "measured"]]
    for kind in ("ops", "features"):
        for name, cell in declared[kind].items():
            shown = "not measured" if name in report["not_measured"] else measured[kind][name]["support"]
            rows.append([name, cell["support"], shown])
    lines = ["", columns(rows), ""]
    for found in report["differences"]:
        what = " ".join(str(found[key]) for key in ("op", "feature", "reduce_op", "dtype") if found.get(key))
        words = ("works, but is not declared", "is declared, but does not work")
        lines.append(f"{marked('differs', 'bad')}: {what} {words[found['declared']]} ({found['test']})")
    if not report["differences"] and code == 0:
        lines.append(marked(_verdict(report["covered"]), "good"))
    if report["not_tried"]:
        lines.append(marked(f"not tried, for lack of time: {', '.join(report['not_tried'])}", "bad"))
    return "\n".join(lines)


def _verdict(covered: dict[str, Any]) -> str:
    """Say what was shown, and claim nothing of what was not run."""
    left = [f"{kind} {', '.join(names)}" for kind, names in covered["not_run"].items()]
    if covered["cells"] == covered["declared_cells"] and not left:
        return "what is declared is what works"
    return f"what was run works; declared, but not run: {'; '.join(left) or 'some of the cells'}"


def _check(backend: str, device: str) -> None:
    devices = registry.get(backend).capabilities.devices
    if device not in devices:
        raise CommandError(f"backend {backend!r} declares nothing for {device!r}, only for {', '.join(devices)}", 2)
    pick_backend(backend)
