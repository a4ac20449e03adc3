"""`rankwise doctor`: find out what does not work here, and why."""

from __future__ import annotations

import argparse
import json

from rankwise.cli.checks import Finding, Level, all_checks
from rankwise.cli.text import marked

__all__ = ["DESCRIPTION", "EXAMPLES", "add_arguments", "run"]

DESCRIPTION = """\
Look at everything that rankwise needs: versions, plugins, libraries behind them, the network interface, shared memory.
Then let two processes all_reduce over every backend that can run here. The exit code is 0 if nothing is broken."""

EXAMPLES = """\
examples:
  rankwise doctor
  rankwise doctor --quick --json"""

_MARKS = {Level.GOOD: ("ok", "good"), Level.NOTE: ("--", "dim"), Level.WARN: ("!!", "warn"), Level.BAD: ("XX", "bad")}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add what the command takes."""
    parser.add_argument("--quick", action="store_true", help="start no processes to prove that backends work")
    parser.add_argument("--json", action="store_true", help="the findings as JSON")


def run(options: argparse.Namespace) -> int:
    """Run the command, and return the exit code."""
    found: list[Finding] = []
    section = ""
    for finding in all_checks(quick=options.quick):
        found.append(finding)
        if options.json:
            continue
        if finding.section != section:
            section = finding.section
            print(marked(section, "bold"))
        word, style = _MARKS[finding.level]
        print(f"  {marked(word, style)}  {finding.text}", flush=True)
        if finding.remedy:
            print(f"      -> {finding.remedy}", flush=True)
    bad = [finding for finding in found if finding.level is Level.BAD]
    if options.json:
        print(json.dumps({"healthy": not bad, "findings": [finding.to_dict() for finding in found]}, indent=2))
    else:
        print(f"\n{marked('healthy', 'good') if not bad else marked(f'not healthy: {len(bad)} broken', 'bad')}")
    return 1 if bad else 0
