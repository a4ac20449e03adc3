"""What all commands have in common: help, `--traceback`, and errors in one paragraph."""

from __future__ import annotations

import argparse
import os
import sys
import textwrap
from types import ModuleType
from typing import Any

from rankwise.cli.parser import HelpFormatter, Parser, columns_of, near
from rankwise.cli.table import COMMANDS, CommandNotInstalledError, installed, load

__all__ = ["NO_BACKEND", "CommandError", "execute"]

#: The exit code where a backend or a command is not installed, or cannot run here.
NO_BACKEND = 69

_EPILOG = f"""\
example:
  rankwise demo -n 4

`rankwise COMMAND --help` tells about a command. Exit codes: 0 all is well, 1 it failed, 2 the command line makes no
sense, {NO_BACKEND} a backend or command is not installed or cannot run here, 130 after Ctrl-C; `rankwise run --help`
lists those of a job. RANKWISE_DEBUG=detail, or --traceback after a command, shows where an error came from."""


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
    return int(getattr(error, "exit_code", NO_BACKEND if missing else 1))


def _filled(line: str, width: int) -> str:
    """Break a line; what is indented goes on four columns further in."""
    further = " " * (4 + len(line) - len(line.lstrip())) if line.startswith(" ") else ""
    return textwrap.fill(line, width, subsequent_indent=further, break_long_words=False, break_on_hyphens=False)


def _parser(name: str | None, module: ModuleType | None) -> argparse.ArgumentParser:
    parser = Parser(
        prog="rankwise",
        description="The communication layer of torch.distributed without torch.",
        epilog=_EPILOG + "".join(f"\n{line}" for line in _not_installed()),
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


def _not_installed() -> list[str]:
    there = installed()
    missing = {name: command.distribution for name, command in COMMANDS.items() if name not in there}
    return [f"Not installed: {name} (pip install {distribution})" for name, distribution in missing.items()]


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
    from rankwise.basics.version import __version__

    return __version__
