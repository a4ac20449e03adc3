"""`rankwise demo`: watch some processes train something together."""

from __future__ import annotations

import argparse
import math
import re
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import rankwise
from rankwise.cli import NOT_INSTALLED
from rankwise.errors import PluginError
from rankwise_launch.commands import CommandError
from rankwise_launch.launching import child, command_for, pick_backend
from rankwise_launch.text import marked, use_colour

PROGRAM = "rankwise_launch.demo_program"
ELASTIC_PROGRAM = "rankwise_launch.demo_elastic"
#: What the elastic demo stands on, and the steps of the other one.
_ELASTIC_BACKEND, _STEPS = "gloo", 800

DESCRIPTION = """\
Train a small network on several processes of this machine. Each has its own data; after every step all_reduce adds up
their gradients, so that all keep the same parameters.
With rich (pip install "rankwise[cli]") a terminal shows a live table, otherwise plain lines.
With --elastic two of the processes are killed, the others go on, and newcomers take their places."""

EXAMPLES = """\
examples:
  rankwise demo
  rankwise demo -n 8 --backend mpi
  rankwise demo --elastic"""


_READ_ON = """
The ranks exchanged their gradients after every step, by all_reduce, and at the
beginning the parameters, once, by broadcast. The program has about 100 lines:
  {program}
Next, `rankwise backends` shows what each backend supports, `rankwise bench` how
fast it is, and `rankwise doctor` checks this installation. The documentation
begins with the first five minutes: docs/first-five-minutes.md."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add what the command takes."""
    parser.add_argument("-n", type=int, default=4, metavar="N", help="number of processes; default 4")
    parser.add_argument("--backend", metavar="NAME", help="the backend; by default one that can run here")
    parser.add_argument("--steps", type=int, metavar="N", help=f"steps to train; default {_STEPS}")
    elastic = "kill two ranks, and show how the others go on and newcomers join"
    parser.add_argument("--elastic", action="store_true", help=elastic)


def run(options: argparse.Namespace) -> int:
    """Run the command, and return the exit code."""
    steps = _STEPS if options.steps is None else options.steps
    if options.n < 1 or steps < 1:
        raise CommandError("at least 1 process and 1 step are needed", 2)
    if options.elastic:
        return _run_elastic(options)
    backend = pick_backend(options.backend)
    table = LiveTable.for_terminal(options.n, steps)
    asked = [
        "--backend",
        backend,
        "--steps",
        str(steps),
        *(["--every", str(-(-steps // 80))] if table else []),
    ]
    command = command_for(backend, options.n, PROGRAM, *asked)
    start = "rankwise run" if command[1:3] == ["-m", "rankwise"] else Path(command[0]).name
    program = f"-m {PROGRAM}" if start == "rankwise run" else f"{Path(sys.executable).name} -m {PROGRAM}"
    print(f"{marked('$', 'dim')} {start} -n {options.n} {program} --backend {backend}", flush=True)
    with child(command, stdout=subprocess.PIPE if table else None) as process:
        if table is not None:
            assert process.stdout is not None
            table.follow(process.stdout)
        code = process.wait()
    if code == 0:
        print(_READ_ON.format(program=Path(__file__).with_name("demo_program.py")))
    return code


def _run_elastic(options: argparse.Namespace) -> int:
    """Run the demo of ranks that are killed."""
    if options.steps is not None or options.backend not in (None, _ELASTIC_BACKEND):
        raise CommandError(f"--elastic goes with no --steps, and with no --backend but {_ELASTIC_BACKEND}", 2)
    try:
        rankwise.elastic  # noqa: B018  the error says what to install
    except PluginError as error:
        raise CommandError(str(error), NOT_INSTALLED) from None
    backend = pick_backend(_ELASTIC_BACKEND)
    command = command_for(backend, options.n, ELASTIC_PROGRAM)
    place = command.index("-m", 3)
    command[place:place] = ["--elastic", "--max-restarts", "10"]
    print(f"{marked('$', 'dim')} rankwise {' '.join(command[3:])}", flush=True)
    with child(command) as process:
        code = process.wait()
    if code == 0:
        print(f"Read on in docs/elastic.md; the program is {Path(__file__).with_name('demo_elastic.py')}")
    return code


# ------------------ the demo's live table: one row for each rank, redrawn as the program's lines come in. Needs rich

#: A line of examples/data_parallel.py: step, the losses of the ranks, milliseconds a step, MB/s.
_LINE = re.compile(r"^(?:\[ *0\]: )?(\d+) +((?:\d+\.\d{4} +)+)([\d.]+) +(\d+) MB/s$")
#: The head of these lines.
_HEAD = re.compile(r"^(?:\[ *0\]: )?step +loss 0")
#: How long a bar is, and at which part of the first loss it is gone; in between it is logarithmic.
_BAR, _LEAST = 30, 100
#: Ranks beyond these are not shown by the program.
_MOST_ROWS = 8


class LiveTable:
    """Shows how far the training is, and each rank's loss."""

    def __init__(self, ranks: int, steps: int) -> None:
        self._ranks, self._steps = ranks, steps
        self._first: list[float] = []

    @classmethod
    def for_terminal(cls, ranks: int, steps: int) -> LiveTable | None:
        """Return one if stdout is a terminal that takes colours and rich is installed, else None."""
        if not use_colour(sys.stdout):
            return None
        try:
            import rich  # noqa: F401
        except ImportError:
            return None
        return cls(ranks, steps)

    def follow(self, lines: Iterable[str]) -> None:
        """Draw what the lines tell, and print those that tell something else."""
        from rich.live import Live

        with Live(auto_refresh=False) as live:
            for line in map(str.rstrip, lines):
                found = _LINE.match(line)
                if found is not None:
                    losses = [float(loss) for loss in found[2].split()]
                    title = f"step {found[1]} of {self._steps}, {found[3]} ms each, all_reduce {found[4]} MB/s"
                    live.update(self._drawn(title, losses), refresh=True)
                    if int(found[1]) == self._steps:
                        live.stop()  # what follows belongs below the table
                elif not _HEAD.match(line):
                    live.console.print(line, markup=False, highlight=False, soft_wrap=True)

    def _drawn(self, title: str, losses: list[float]) -> Any:
        from rich.table import Table

        self._first = self._first or losses
        table = Table(title=title, title_justify="left")
        for name in ("rank", "loss at first", "loss now"):
            table.add_column(name, justify="right")
        table.add_column(f"down to 1/{_LEAST}", style="cyan", min_width=_BAR)
        for rank, (first, loss) in enumerate(zip(self._first, losses, strict=True)):
            left = 1 + math.log(max(loss / first, 1 / _LEAST), _LEAST)
            table.add_row(str(rank), f"{first:.4f}", f"{loss:.4f}", "█" * min(round(_BAR * left), _BAR))
        if self._ranks > _MOST_ROWS:
            table.caption = f"and {self._ranks - _MOST_ROWS} more ranks"
        return table
