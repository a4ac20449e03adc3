"""`rankwise run`: start the ranks of a job."""

from __future__ import annotations

import argparse

from rankwise.launch.options import EPILOG as EXAMPLES
from rankwise.launch.options import add_options as add_arguments
from rankwise.launch.options import to_config
from rankwise.launch.run import run as launch

__all__ = ["DESCRIPTION", "EXAMPLES", "add_arguments", "run"]

DESCRIPTION = "Start the ranks of a job on this node, with the variables that torchrun sets, and see them through."


def run(options: argparse.Namespace) -> int:
    """Run the command, and return the exit code."""
    return launch(to_config(options))
