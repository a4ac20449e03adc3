"""Which commands there are: those of the core, those that other distributions bring, and those that could be installed.

A command of another distribution is an entry point of the group `rankwise.commands`: its key is the command's name, and
its value a module with `DESCRIPTION`, `EXAMPLES`, `add_arguments(parser)` and `run(options)`, as the commands in this
package are. It is imported only when it is asked for.
"""

from __future__ import annotations

from importlib import import_module
from types import ModuleType
from typing import NamedTuple

from rankwise.backends import discovery

__all__ = ["COMMANDS", "ENTRY_POINT_GROUP", "Command", "CommandNotInstalledError", "installed", "load"]

ENTRY_POINT_GROUP = "rankwise.commands"
#: What a module of a command has; one with `AFTER_DASHES` finds what follows `--` in `options.after_dashes`.
_MEMBERS = ("DESCRIPTION", "EXAMPLES", "add_arguments", "run")
_CORE = "rankwise"


class Command(NamedTuple):
    """A command of this project: its line in the overview, and the distribution that brings it."""

    help: str
    distribution: str = _CORE


#: Those of the core are modules of this package, `NAME_command`; for the others these lines say what to install.
COMMANDS = {
    "run": Command("start the ranks of a job", "rankwise-launch"),
    "demo": Command("watch some processes train something together", "rankwise-launch"),
    "backends": Command("what each backend can do, and which are installed", "rankwise-launch"),
    "doctor": Command("find out what does not work here, and why", "rankwise-launch"),
    "conformance": Command("prove what a backend declares", "rankwise-testing"),
    "new-backend": Command("a distribution with a backend, to begin from", "rankwise-testing"),
    "bench": Command("measure latency and bandwidth", "rankwise-tools"),
    "explain": Command("which algorithm runs for a size and a number of ranks, and why", "rankwise-tools"),
    "top": Command("what the ranks of a running job do, and who is waited for", "rankwise-tools"),
    "trace": Command("one timeline of what all ranks did, and who left the common path first", "rankwise-tools"),
    "secret": Command("make a job secret"),
    "completion": Command("what a shell needs to complete command lines", "rankwise-tools"),
}


class CommandNotInstalledError(Exception):
    """A command of this project is asked for whose distribution is not installed."""


def installed() -> dict[str, str]:
    """Return all commands that are installed, with their lines in the overview; none is imported."""
    lines = {name: command.help for name, command in COMMANDS.items() if command.distribution == _CORE}
    for name, value in discovery.declared(ENTRY_POINT_GROUP):
        known = COMMANDS.get(name)
        lines.setdefault(name, known.help if known else f"(brought by {value.partition('.')[0]})")
    return {name: lines[name] for name in [*COMMANDS, *sorted(lines.keys() - COMMANDS.keys())] if name in lines}


def load(name: str) -> ModuleType | None:
    """Import the module of a command; None if there is no such command.

    Raises:
        CommandNotInstalledError: It is one of this project's, and not installed.
        RuntimeError: What brings it is broken, or two distributions do.
    """
    known = COMMANDS.get(name)
    if known is not None and known.distribution == _CORE:
        return import_module(f"rankwise.cli.{name}_command")
    values = {value for found, value in discovery.declared(ENTRY_POINT_GROUP) if found == name}
    owners = name
    if len(values) != 1:  # installed in some unusual way, by two, or not at all
        values, owners = _thoroughly(name)
    if len(values) > 1:
        raise RuntimeError(f"the command {name!r} is claimed by {owners}; uninstall all but one")
    if values:
        return _imported(name, values.pop())
    if known is not None:
        raise CommandNotInstalledError(f"it is not installed: pip install {known.distribution}")
    return None


def _thoroughly(name: str) -> tuple[set[str], str]:
    """Return what stands behind a name as `importlib.metadata` knows it, and which distributions bring it."""
    points = [point for point in discovery.installed(ENTRY_POINT_GROUP) if point.name == name]
    owners = dict.fromkeys(point.owner for point in points)
    return {point.value for point in points}, " and ".join(owners)


def _imported(name: str, value: str) -> ModuleType:
    try:
        module = import_module(value)
        lacking = [member for member in _MEMBERS if not hasattr(module, member)]
        if lacking:
            raise TypeError(f"its module {value} has no {' and no '.join(lacking)}")
    except KeyboardInterrupt:
        raise
    except BaseException as error:  # a module may even call `sys.exit`
        _, owners = _thoroughly(name)
        what = f"{type(error).__name__}: {error}"
        raise RuntimeError(f"the command {name!r} of {owners or value} cannot be loaded: {what}") from error
    return module
