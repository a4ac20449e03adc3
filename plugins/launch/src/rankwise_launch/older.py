"""`python -m rankwise.launch`: the older command line, for scripts that take `--local_rank`."""

from __future__ import annotations

import argparse
import sys

from rankwise.basics.systems import keep_standard
from rankwise.cli.parser import HelpFormatter
from rankwise_launch.exit_codes import LaunchError
from rankwise_launch.options import EPILOG, add_options, to_config
from rankwise_launch.run import run

__all__ = ["main"]


def main(arguments: list[str] | None = None) -> int:
    """Run the older command line, and return the exit code."""
    keep_standard()
    parser = argparse.ArgumentParser(
        prog="python -m rankwise.launch",
        description="Start ranks on this node, as torch.distributed.launch does. New programs use `rankwise run`.",
        epilog=EPILOG.replace("rankwise run", "python -m rankwise.launch"),
        formatter_class=HelpFormatter,
        allow_abbrev=False,
    )
    add_options(parser, older=True)
    try:
        config = to_config(parser.parse_args(arguments))
    except LaunchError as error:
        print(f"{parser.prog}: {error}", file=sys.stderr)
        return int(error.exit_code)
    return run(config)
