"""What commands and kits of other distributions are made of: how ranks are started, errors told, and text laid out."""

from __future__ import annotations

from rankwise_launch.commands import CommandError
from rankwise_launch.config import LaunchError
from rankwise_launch.entrance import STORE_OF_RANKS
from rankwise_launch.launching import child, command_for, environment, pick_backend, said_last
from rankwise_launch.libraries import mpiexec
from rankwise_launch.parser import columns_of, instead
from rankwise_launch.preloading import Forked, Preloaded
from rankwise_launch.processes import die_with_parent, require_folder
from rankwise_launch.text import (
    columns,
    counted,
    format_nbytes,
    format_rate,
    format_seconds,
    marked,
    meanwhile,
    parse_nbytes,
    use_colour,
)

__all__ = [
    "STORE_OF_RANKS",
    "CommandError",
    "Forked",
    "LaunchError",
    "Preloaded",
    "child",
    "columns",
    "columns_of",
    "command_for",
    "counted",
    "die_with_parent",
    "environment",
    "format_nbytes",
    "format_rate",
    "format_seconds",
    "instead",
    "marked",
    "meanwhile",
    "mpiexec",
    "parse_nbytes",
    "pick_backend",
    "require_folder",
    "said_last",
    "use_colour",
]
