"""`rankwise trace`: the records of all ranks as one timeline, and which rank made another call than the rest."""

from __future__ import annotations

import argparse
import json
import os
import textwrap
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

from rankwise_launch.toolbox import CommandError, counted, meanwhile

if TYPE_CHECKING:
    from rankwise_tools.recordings.records import Record

DESCRIPTION = """\
Combine the records of a job's ranks: their last operations, with the lines that called them. Each rank writes a file to
the folder RANKWISE_TRACE_DIR when a group fails, on SIGUSR1, and when it ends. The analysis names the rank that first
made a different call; a timeline shows it, for https://ui.perfetto.dev or as a page that any browser opens."""

EXAMPLES = """\
examples:
  RANKWISE_TRACE_DIR=/tmp/records rankwise run -n 4 train.py
  rankwise trace /tmp/records --analyse
  rankwise trace /tmp/records -o trace.json
  rankwise trace /tmp/records -o trace.html"""

_WIDTH = 100
#: What the end of a name says about the format, where nothing else does.
_ENDINGS = {".html": "html", ".htm": "html"}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add what the command takes."""
    parser.add_argument("folder", metavar="DIR", help="the folder with rank0.json and so on")
    parser.add_argument("-o", "--output", metavar="FILE", help="write the timeline to this file")
    kinds = f"of the timeline: {', '.join(_WRITERS)}; default perfetto, or html for FILE.html"
    parser.add_argument("--format", choices=_WRITERS, metavar="KIND", help=kinds)
    parser.add_argument(
        "--analyse", action="store_true", help="name a rank with a different call; the default without -o"
    )


def run(options: argparse.Namespace) -> int:
    """Run the command, and return the exit code."""
    from rankwise_tools.recordings.records import load_all

    if options.format and not options.output:
        raise CommandError(f"--format {options.format} needs -o, to say where to", 2)
    worlds = load_all(options.folder)
    many = f"the records of {sum(map(len, worlds))} ranks"
    if options.output:
        meanwhile(f"drawing {many}")
        ending = os.path.splitext(options.output)[1].lower()
        written = _WRITERS[options.format or _ENDINGS.get(ending, "perfetto")](worlds, options.output)
        meanwhile()
        print(written)
    if options.analyse or not options.output:
        meanwhile(f"comparing {many}")
        paragraphs = [p for records in worlds for p in [*_heading(records), *_said(records)]]
        meanwhile()
        print("\n\n".join(textwrap.fill(p, _WIDTH, break_long_words=False, break_on_hyphens=False) for p in paragraphs))
    return 0


def _said(records: Mapping[int, Record]) -> list[str]:
    """Return the paragraphs about one world: which rank made another call, and for whom the others have waited."""
    from rankwise_tools.recordings.analysis import analyse
    from rankwise_tools.timelines.waiting import waited_for

    late = [f"On the way, {sentence}." for sentence in waited_for(records)]
    return [*analyse(records).split("\n\n"), *late]


def _heading(records: Mapping[int, Record]) -> list[str]:
    name = next(iter(records.values())).outside
    return [f"In the group {name!r}, which was made outside of the world:"] if name else []


_Worlds = Sequence[Mapping[int, "Record"]]


def _perfetto(worlds: _Worlds, path: str) -> str:
    from rankwise_tools.timelines.perfetto import timeline

    events = timeline(*worlds)
    # opens: files that a command line, or a launcher's variable, names
    with open(path, "w", encoding="utf-8") as file:
        json.dump(events, file, separators=(",", ":"))
    count = sum(event["ph"] == "X" for event in events["traceEvents"])
    clocks = {host: told for host, told in events["otherData"]["clocks"].items() if told != "+-0 us"}
    doubt = f" Clocks against the first host: {', '.join(f'{h} {t}' for h, t in clocks.items())}." if clocks else ""
    told = f"{count} operations of {_ranks(worlds)} are in {os.path.abspath(path)}"
    return f"{told}; https://ui.perfetto.dev opens it.{doubt}"


def _html(worlds: _Worlds, path: str) -> str:
    from rankwise_tools.timelines.page import page

    # opens: files that a command line, or a launcher's variable, names
    with open(path, "w", encoding="utf-8") as file:
        file.write(page(*worlds))
    count = sum(len(record.operations) for records in worlds for record in records.values())
    where = os.path.abspath(path)
    return f"{count} operations of {_ranks(worlds)} are in {where}; any browser opens it."


def _ranks(worlds: _Worlds) -> str:
    return counted(sum(map(len, worlds)), "rank")


_WRITERS: dict[str, Callable[[_Worlds, str], str]] = {
    "perfetto": _perfetto,
    "html": _html,
}
