"""`rankwise run`: start the ranks of a job."""

from __future__ import annotations

import argparse
import sys

from rankwise.launching import keep_standard
from rankwise_launch.commands import CommandError
from rankwise_launch.config import LaunchConfig, LaunchError
from rankwise_launch.options import EPILOG, add_options, to_config
from rankwise_launch.options import EPILOG as EXAMPLES
from rankwise_launch.parser import HelpFormatter
from rankwise_launch.run import check_command
from rankwise_launch.run import run as launch
from rankwise_launch.worker import command_line

__all__ = ["DESCRIPTION", "EXAMPLES", "add_arguments", "older", "run"]

DESCRIPTION = "Start the ranks of a job on this node, with the variables that torchrun sets, and wait for them."

#: What only our own launcher does, and tells its ranks.
_OWN = {
    "nnodes": "--nnodes",
    "max_restarts": "--max-restarts",
    "elastic": "--elastic",
    "preload": "--preload",
    "log_dir": "--log-dir",
    "tee": "--tee",
    "redirects": "--redirects",
    "shown": "--local-ranks-filter",
    "master_port": "--master-port",
    "meeting": "--rdzv-endpoint",
}
_OURS = (
    *("RANK", "LOCAL_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT"),
    *("RANKWISE_SECRET_FD", "RANKWISE_STORE"),
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options."""
    parser.add_argument(
        "--backend",
        metavar="NAME",
        help="start the ranks as this backend requires: for mpi with the library's mpiexec, whose output and "
        "exit code are then those of the job; the script must still name the backend",
    )
    add_options(parser)


def run(options: argparse.Namespace) -> int:
    """Run the command, and return the exit code."""
    config = to_config(options)
    if options.backend is not None:
        from rankwise_launch.launching import launcher_of, pick_backend

        started = launcher_of(pick_backend(options.backend), config.nproc_per_node)
        if started:
            return _run_by(started, config)
    return launch(config)


def _run_by(launcher: list[str], config: LaunchConfig) -> int:
    """Have the launcher of a backend's runtime start the ranks, and return the exit code."""
    from rankwise_launch.launching import environment, run_launcher

    plain = LaunchConfig(config.command)
    asked = [option for name, option in _OWN.items() if getattr(config, name) != getattr(plain, name)]
    if asked:
        names = ", ".join(asked)
        raise CommandError(f"{names}: not with this --backend, whose ranks {launcher[0]} starts; use its options", 2)
    check_command(config)
    ours = {name: value for name, value in environment().items() if name not in _OURS}
    return run_launcher([*launcher, *command_line(config, 0)], ours)


# ------------------ `python -m rankwise_launch`: the older command line, for scripts that take `--local_rank`


def older(arguments: list[str] | None = None) -> int:
    """Run the older command line, and return the exit code."""
    keep_standard()
    parser = argparse.ArgumentParser(
        prog="python -m rankwise_launch",
        description="Start ranks on this node, as torch.distributed.launch does. New programs use `rankwise run`.",
        epilog=EPILOG.replace("rankwise run", "python -m rankwise_launch"),
        formatter_class=HelpFormatter,
        allow_abbrev=False,
    )
    add_options(parser, older=True)
    try:
        config = to_config(parser.parse_args(arguments))
    except LaunchError as error:
        print(f"{parser.prog}: {error}", file=sys.stderr)
        return int(error.exit_code)
    return launch(config)
