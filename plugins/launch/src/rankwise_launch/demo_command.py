"""`rankwise demo`: watch some processes train something together."""

from __future__ import annotations

import argparse
import subprocess
import sys
from pathlib import Path

from rankwise.cli.commands import CommandError
from rankwise_launch.launching import child, command_for, pick_backend
from rankwise_launch.live import LiveTable
from rankwise_launch.text import marked

__all__ = ["DESCRIPTION", "EXAMPLES", "add_arguments", "run"]

PROGRAM = "rankwise_launch.demo_program"

DESCRIPTION = """\
Train a small network on several processes of this machine. Each has data of its own; after every step all_reduce adds
up their gradients, so that all keep the same parameters.
With rich (pip install "rankwise[cli]") a terminal shows a live table, otherwise there are lines."""

EXAMPLES = """\
examples:
  rankwise demo
  rankwise demo -n 8 --backend mpi"""


_READ_ON = """
What was exchanged: after every step the gradients, by all_reduce; and once, at
the beginning, the parameters, by broadcast. The program, in some hundred lines:
  {program}
Read on: `rankwise backends` tells what each backend can do, `rankwise bench`
how fast it is, `rankwise doctor` what is wrong, if anything is; and docs/ has
the first five minutes."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add what the command takes."""
    parser.add_argument("-n", type=int, default=4, metavar="N", help="number of processes; default 4")
    parser.add_argument("--backend", metavar="NAME", help="the backend; by default one that can run here")
    parser.add_argument("--steps", type=int, default=800, metavar="N", help="steps to train; default 800")


def run(options: argparse.Namespace) -> int:
    """Run the command, and return the exit code."""
    if options.n < 1 or options.steps < 1:
        raise CommandError("at least 1 process and 1 step are needed", 2)
    backend = pick_backend(options.backend)
    table = LiveTable.for_terminal(options.n, options.steps)
    asked = [
        "--backend",
        backend,
        "--steps",
        str(options.steps),
        *(["--every", str(-(-options.steps // 80))] if table else []),
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
