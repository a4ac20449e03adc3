"""`rankwise conformance`: prove what a backend declares."""

from __future__ import annotations

import argparse
import importlib.util
import json
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from rankwise.cli.commands import CommandError
from rankwise.cli.text import columns, marked

__all__ = ["DESCRIPTION", "EXAMPLES", "add_arguments", "run"]

SUITE = "rankwise.testing.suite"

DESCRIPTION = """\
Run the conformance kit against a backend: every cell of its capability table, every error, time-outs and the death of
ranks. What is declared must work, what is not must be refused. Needs pytest: pip install "rankwise[testing]"."""

EXAMPLES = """\
examples:
  rankwise conformance gloo --report gloo.json
  rankwise conformance mine -- -x -k all_reduce      # what follows -- goes to pytest"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add what the command takes."""
    parser.add_argument("backend", metavar="NAME", help="the backend")
    parser.add_argument("--device", metavar="KIND", default="cpu", help="the kind of device: cpu (default), cuda")
    parser.add_argument("--launch", metavar="COMMAND", help="how ranks are started, such as 'mpiexec -n {size}'")
    parser.add_argument("--report", type=Path, metavar="FILE", help="keep the declared and the measured table, as JSON")
    parser.add_argument("pytest_arguments", nargs="*", metavar="...", help="further arguments, for pytest")


def run(options: argparse.Namespace) -> int:
    """Run the command, and return the exit code."""
    _check(options.backend, options.device)
    with tempfile.TemporaryDirectory(prefix="rankwise-") as folder:
        report = options.report or Path(folder, "report.json")
        code = subprocess.run(_command(options, report), check=False).returncode
        if report.exists():
            print(_compared(json.loads(report.read_text(encoding="utf-8"))))
    return code


def _command(options: argparse.Namespace, report: Path) -> list[str]:
    suite = importlib.util.find_spec(SUITE)
    assert suite is not None
    assert suite.origin is not None
    # The suite's own settings, whatever project this is called in.
    settings = Path(suite.origin).with_name("pytest.ini")
    command = [sys.executable, "-m", "pytest", "-c", str(settings), "-p", f"{SUITE}.plugin", "--pyargs", SUITE, "-q"]
    command += ["--backend", options.backend, "--device", options.device, "--report", str(report.absolute())]
    return [*command, *(["--launch", options.launch] if options.launch else []), *options.pytest_arguments]


def _compared(report: dict[str, Any]) -> str:
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
        lines.append(f"{marked('differs', 'bad')}: {what} {words[found['declared']]}")
    return "\n".join(lines if report["differences"] else [*lines, marked("what is declared is what works", "good")])


def _check(backend: str, device: str) -> None:
    # The kit itself brings a backend of its own, `local`.
    import rankwise.testing  # noqa: F401
    from rankwise.registry import registry

    if importlib.util.find_spec("pytest") is None:
        raise CommandError('the kit runs on pytest, which is not installed: pip install "rankwise[testing]"')
    devices = registry.get(backend).capabilities.devices
    if device not in devices:
        raise CommandError(f"backend {backend!r} declares nothing for {device!r}, only for {', '.join(devices)}", 2)
    answer = registry.availability(backend)
    if not answer:
        raise CommandError(f"backend {backend!r} cannot run here: {answer.reason} {answer.remedy}".rstrip())
