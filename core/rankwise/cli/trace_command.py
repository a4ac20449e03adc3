"""`rankwise trace`: the records of all ranks as one timeline, and who left the common path first."""

from __future__ import annotations

import argparse
import json
import os
import textwrap
from collections.abc import Mapping
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rankwise.watch.records import Record

__all__ = ["DESCRIPTION", "EXAMPLES", "add_arguments", "run"]

DESCRIPTION = """\
Put together what the ranks of a job have recorded: their last operations, with the calls that made them. Each rank
writes a file to the folder RANKWISE_TRACE_DIR when a group fails, on SIGUSR1, and when it ends. The timeline opens in
https://ui.perfetto.dev and in chrome://tracing; the analysis says which rank left the common path first."""

EXAMPLES = """\
examples:
  RANKWISE_TRACE_DIR=/tmp/records rankwise run -n 4 train.py
  rankwise trace /tmp/records -o trace.json
  rankwise trace /tmp/records --analyse"""

_WIDTH = 100


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add what the command takes."""
    parser.add_argument("folder", metavar="DIR", help="where the ranks have written rank0.json and so on")
    parser.add_argument("-o", "--output", metavar="FILE", help="write the timeline to this file")
    parser.add_argument("--analyse", action="store_true", help="say who left the common path; the default without -o")


def run(options: argparse.Namespace) -> int:
    """Run the command, and return the exit code."""
    from rankwise.watch.analysis import analyse
    from rankwise.watch.records import load_all
    from rankwise.watch.timeline import timeline

    worlds = load_all(options.folder)
    if options.output:
        events = timeline(*worlds)
        with open(options.output, "w", encoding="utf-8") as file:
            json.dump(events, file, separators=(",", ":"))
        count = sum(event["ph"] == "X" for event in events["traceEvents"])
        path = os.path.abspath(options.output)
        print(f"{count} operations of {sum(map(len, worlds))} rank(s) are in {path}; https://ui.perfetto.dev opens it.")
    if options.analyse or not options.output:
        paragraphs = [p for records in worlds for p in [*_heading(records), *analyse(records).split("\n\n")]]
        print("\n\n".join(textwrap.fill(p, _WIDTH, break_long_words=False, break_on_hyphens=False) for p in paragraphs))
    return 0


def _heading(records: Mapping[int, Record]) -> list[str]:
    name = next(iter(records.values())).outside
    return [f"In the group {name!r}, which was made outside of the world:"] if name else []
