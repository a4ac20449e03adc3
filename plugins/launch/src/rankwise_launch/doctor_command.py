"""`rankwise doctor`: diagnose this installation."""

from __future__ import annotations

import argparse
import json

from rankwise_launch.checks import Finding, Level, all_checks
from rankwise_launch.interviews import PATIENCE, PATIENCE_S
from rankwise_launch.peer_check import check_peer
from rankwise_launch.text import marked, meanwhile

DESCRIPTION = """\
Check everything that rankwise needs: versions, plugins, their libraries, the network interface, shared memory. Then
run a two-process all_reduce on every usable backend. The exit code is 0 if nothing is broken.

With --peer, test whether this host and another one can connect to each other. Run the command on both at the same time,
each naming the other: it then tries both directions, with the kinds of ports that the ranks of a job use."""

EXAMPLES = """\
examples:
  rankwise doctor
  rankwise doctor --quick --json
  rankwise doctor --peer node2          # on node1, and on node2 with --peer node1"""

_MARKS = {Level.GOOD: ("ok", "good"), Level.NOTE: ("--", "dim"), Level.WARN: ("!!", "warn"), Level.BAD: ("XX", "bad")}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add what the command takes."""
    parser.add_argument("--quick", action="store_true", help="do not start processes to test the backends")
    parser.add_argument("--peer", metavar="HOST[:PORT]", help="test the connection to another host, in both directions")
    parser.add_argument("--json", action="store_true", help="print the findings as JSON")
    parser.add_argument("--patience", type=float, default=PATIENCE_S, metavar="SECONDS", help=PATIENCE)


def run(options: argparse.Namespace) -> int:
    """Run the command, and return the exit code."""
    found: list[Finding] = []
    section = ""
    for finding in check_peer(options.peer) if options.peer else all_checks(options.quick, options.patience):
        meanwhile()
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
