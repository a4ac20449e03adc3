"""What all commands have in common: help, `--traceback`, and errors in one paragraph."""

from __future__ import annotations

import argparse
import os
import sys
import textwrap
from importlib import import_module
from types import ModuleType
from typing import Any

from rankwise.cli import COMMANDS, NOT_INSTALLED
from rankwise.launching import entry_points
from rankwise_launch.parser import HelpFormatter, Parser, columns_of, near

_EPILOG = f"""\
example:
  rankwise demo -n 4

`rankwise COMMAND --help` explains a command. Exit codes: 0 success, 1 failure, 2 wrong command line, {NOT_INSTALLED} a
backend or command is not installed or cannot run here, 130 after Ctrl-C. `rankwise run --help` lists the exit codes of
a job. RANKWISE_DEBUG=detail, or --traceback after a command, shows where an error came from."""


class CommandError(Exception):
    """A command cannot do what it was asked to; told in one paragraph.

    Attributes:
        exit_code: What the process ends with.
    """

    def __init__(self, message: str, exit_code: int = 1) -> None:
        super().__init__(message)
        self.exit_code = exit_code


def execute(arguments: list[str]) -> int:
    """Run a command line, and return the exit code."""
    if arguments[:1] == ["help"]:
        arguments = [*arguments[1:2], "--help"]
    name = next((word for word in arguments if not word.startswith("-")), None)
    options = None
    try:
        module = load(name) if name is not None else None
        if name is not None and module is None:
            return _unknown(name)
        if not arguments:
            _parser(None, None).print_help()
            return 0
        # argparse would take what follows `--` for more of our own, where an option stands before it.
        end = arguments.index("--") if "--" in arguments and hasattr(module, "AFTER_DASHES") else len(arguments)
        options = _parser(name, module).parse_args(arguments[:end])
        options.after_dashes = arguments[end + 1 :]
        assert module is not None
        return int(module.run(options))
    except BrokenPipeError:
        # The reader of our output is gone. Python would complain again when it flushes at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        return 141
    except KeyboardInterrupt:
        return 130
    except Exception as error:
        asked = options.traceback if options is not None else "--traceback" in arguments
        if asked or os.environ.get("RANKWISE_DEBUG", "").lower() == "detail":
            raise
        return _tell(f"rankwise {name}", error)


def _unknown(name: str) -> int:
    names = installed()
    hint = near(name, {**names, **COMMANDS})
    if name.endswith(".py"):
        hint = f"; did you mean rankwise run {name}?"
    print(f"rankwise: there is no command {name!r}{hint}\ncommands: {', '.join(names)}", file=sys.stderr)
    return 2


def _tell(program: str, error: Exception) -> int:
    expected = isinstance(error, (CommandError, CommandNotInstalledError, OSError, ValueError, RuntimeError))
    text = str(error) if expected and str(error) else f"{type(error).__name__}: {error}"
    from rankwise.errors import BackendNotFoundError, BackendUnavailableError

    width = columns_of(sys.stderr, 100)
    print("\n".join(_filled(line, width) for line in f"{program}: {text}".splitlines()), file=sys.stderr)

    missing = isinstance(error, (BackendNotFoundError, BackendUnavailableError, CommandNotInstalledError))
    return int(getattr(error, "exit_code", NOT_INSTALLED if missing else 1))


def _filled(line: str, width: int) -> str:
    """Break a line; what is indented goes on four columns further in."""
    further = " " * (4 + len(line) - len(line.lstrip())) if line.startswith(" ") else ""
    return textwrap.fill(line, width, subsequent_indent=further, break_long_words=False, break_on_hyphens=False)


def _parser(name: str | None, module: ModuleType | None) -> argparse.ArgumentParser:
    parser = Parser(
        prog="rankwise",
        description="The communication layer of torch.distributed without torch.",
        epilog=_EPILOG + _not_installed(),
        formatter_class=HelpFormatter,
        allow_abbrev=False,
    )
    parser.add_argument("--version", action="version", version=f"rankwise {_version()}")
    commands = parser.add_subparsers(title="commands", metavar="COMMAND", required=True)
    lines = installed()
    if name is not None:
        lines.setdefault(name, "")  # installed in a way that takes more than a quick look
    for command, line in lines.items():
        # Only the one that is asked for is imported and knows its options.
        if command == name and module is not None:
            own = commands.add_parser(command, help=line, **_texts(module))
            own.is_command = True
            _complete(own, module)
        else:
            commands.add_parser(command, help=line, add_help=False)
    return parser


def _not_installed() -> str:
    """Return the commands that are not there, after what installs them; nothing if all are."""
    there, missing = installed(), dict[str, list[str]]()
    for name, command in COMMANDS.items():
        if name not in there:
            missing.setdefault(str(command.distribution), []).append(name)
    lines = [f"pip install {distribution}: adds {', '.join(names)}" for distribution, names in missing.items()]
    return "".join(f"\n\n{line}" for line in lines)


def _complete(parser: argparse.ArgumentParser, module: ModuleType) -> None:
    parser.add_argument("--traceback", action="store_true", help="show where in the program an error came from")
    module.add_arguments(parser)


def _texts(module: ModuleType) -> dict[str, Any]:
    return {
        "description": module.DESCRIPTION,
        "epilog": module.EXAMPLES,
        "formatter_class": HelpFormatter,
        "allow_abbrev": False,
    }


def _version() -> str:
    from rankwise.launching import __version__

    return __version__


# Which commands there are: those that distributions bring, and those that could be installed
#
# A command of another distribution is an entry point of the group `rankwise.commands`: its key is the command's name,
# and its value a module with `DESCRIPTION`, `EXAMPLES`, `add_arguments(parser)` and `run(options)`, as the commands of
# this distribution are. It is imported only when it is asked for.

ENTRY_POINT_GROUP = "rankwise.commands"
#: What a module of a command has; one with `AFTER_DASHES` finds what follows `--` in `options.after_dashes`.
_MEMBERS = ("DESCRIPTION", "EXAMPLES", "add_arguments", "run")


class CommandNotInstalledError(Exception):
    """A command of this project is asked for whose distribution is not installed."""


def installed() -> dict[str, str]:
    """Return all commands that are installed, with their lines in the overview; none is imported."""
    lines: dict[str, str] = {}
    for name, value in entry_points.declared(ENTRY_POINT_GROUP):
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
    found = entry_points.named(ENTRY_POINT_GROUP, name)
    if len(found) > 1:
        raise RuntimeError(f"the command {name!r} is claimed by {' and '.join(found.values())}; uninstall all but one")
    if found:
        ((value, owner),) = found.items()
        return _imported(name, value, owner)
    if known is not None:
        raise CommandNotInstalledError(f"it is not installed: pip install {known.distribution}")
    return None


def _imported(name: str, value: str, owner: str) -> ModuleType:
    try:
        module = import_module(value)
        lacking = [member for member in _MEMBERS if not hasattr(module, member)]
        if lacking:
            raise TypeError(f"its module {value} has no {' and no '.join(lacking)}")
    except KeyboardInterrupt:
        raise
    except BaseException as error:  # a module may even call `sys.exit`
        what = f"{type(error).__name__}: {error}"
        raise RuntimeError(f"the command {name!r} of {owner} cannot be loaded: {what}") from error
    return module
