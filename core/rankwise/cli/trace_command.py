"""`rankwise trace`: the records of all ranks as one timeline, and who left the common path first."""

from __future__ import annotations

import argparse
import json
import os
import pickle
import textwrap
from collections.abc import Callable, Mapping
from typing import Any

from rankwise.cli.commands import CommandError

__all__ = ["DESCRIPTION", "EXAMPLES", "add_arguments", "run"]

DESCRIPTION = """\
Put together what the ranks of a job have recorded: their last operations, with the calls that made them. Each rank
writes a file to the folder RANKWISE_TRACE_DIR when a group fails, on SIGUSR1, and when it ends. The analysis says which
rank left the common path first; timelines show it: for https://ui.perfetto.dev and chrome://tracing, as a page that any
browser opens, or for torch's own analyser (torchfrtrace)."""

EXAMPLES = """\
examples:
  RANKWISE_TRACE_DIR=/tmp/records rankwise run -n 4 train.py
  rankwise trace /tmp/records --analyse
  rankwise trace /tmp/records -o trace.json
  rankwise trace /tmp/records -o trace.html
  rankwise trace /tmp/records --format torch-fr -o /tmp/dumps && torchfrtrace /tmp/dumps"""

_WIDTH = 100
#: What the end of a name says about the format, where nothing else does.
_ENDINGS = {".html": "html", ".htm": "html"}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add what the command takes."""
    parser.add_argument("folder", metavar="DIR", help="where the ranks have written rank0.json and so on")
    parser.add_argument("-o", "--output", metavar="FILE", help="write the timeline there; for torch-fr to this folder")
    parser.add_argument("--format", choices=_WRITERS, help="of the timeline; default perfetto, or html for FILE.html")
    parser.add_argument("--analyse", action="store_true", help="say who left the common path; the default without -o")


def run(options: argparse.Namespace) -> int:
    """Run the command, and return the exit code."""
    from rankwise.watch.analysis import analyse
    from rankwise.watch.records import load

    if options.format and not options.output:
        raise CommandError(f"--format {options.format} needs -o, to say where to", 2)
    records = load(options.folder)
    if options.output:
        ending = os.path.splitext(options.output)[1].lower()
        print(_WRITERS[options.format or _ENDINGS.get(ending, "perfetto")](records, options.output))
    if options.analyse or not options.output:
        paragraphs = analyse(records).split("\n\n")
        print("\n\n".join(textwrap.fill(p, _WIDTH, break_long_words=False, break_on_hyphens=False) for p in paragraphs))
    return 0


def _perfetto(records: Mapping[int, Any], path: str) -> str:
    from rankwise.watch.timelines.perfetto import timeline

    events = timeline(records)
    with open(path, "w", encoding="utf-8") as file:
        json.dump(events, file, separators=(",", ":"))
    count = sum(event["ph"] == "X" for event in events["traceEvents"])
    clocks = {host: told for host, told in events["otherData"]["clocks"].items() if told != "+-0 us"}
    doubt = f" Clocks against the first host: {', '.join(f'{h} {t}' for h, t in clocks.items())}." if clocks else ""
    where = os.path.abspath(path)
    return f"{count} operations of {len(records)} rank(s) are in {where}; https://ui.perfetto.dev opens it.{doubt}"


def _html(records: Mapping[int, Any], path: str) -> str:
    from rankwise.watch.timelines.page import page

    with open(path, "w", encoding="utf-8") as file:
        file.write(page(records))
    count = sum(len(record.operations) for record in records.values())
    return f"{count} operations of {len(records)} rank(s) are in {os.path.abspath(path)}; any browser opens it."


def _torch_fr(records: Mapping[int, Any], path: str) -> str:
    from rankwise.watch.timelines.torch_fr import dumps

    os.makedirs(path, exist_ok=True)
    for rank, dump in dumps(records).items():
        with open(os.path.join(path, f"rank_{rank}"), "wb") as file:
            pickle.dump(dump, file)
    where = os.path.abspath(path)
    return f"The collectives of {len(records)} rank(s) are in {where}; `torchfrtrace {where}` reads them."


_WRITERS: dict[str, Callable[[Mapping[int, Any], str], str]] = {
    "perfetto": _perfetto,
    "torch-fr": _torch_fr,
    "html": _html,
}
