"""The table of sub-commands, and what they have in common: help, `--traceback`, and errors in one paragraph."""

from __future__ import annotations

import argparse
import os
import sys
import textwrap
from importlib import import_module
from types import ModuleType
from typing import Any

from rankwise.basics.help_text import HelpFormatter

__all__ = ["COMMANDS", "NO_BACKEND", "CommandError", "execute"]

#: The exit code where there is no such backend, or it cannot run here.
NO_BACKEND = 69

#: Each name is a module of this package with `DESCRIPTION`, `EXAMPLES`, `add_arguments(parser)` and `run(options)`; one
#: with `AFTER_DASHES` finds what follows `--` in `options.after_dashes`.
COMMANDS = {
    "run": "start the ranks of a job",
    "demo": "watch some processes train something together",
    "backends": "what each backend can do, and which are installed",
    "doctor": "find out what does not work here, and why",
    "conformance": "prove what a backend declares",
    "bench": "measure latency and bandwidth",
    "explain": "which algorithm runs for a size and a number of ranks, and why",
    "top": "what the ranks of a running job do, and who is waited for",
    "trace": "one timeline of what all ranks did, and who left the common path first",
    "secret": "make a job secret",
    "completion": "what a shell needs to complete command lines",
}


_EPILOG = f"""\
example:
  rankwise demo -n 4

`rankwise COMMAND --help` tells about a command. Exit codes: 0 all is well, 1 it failed, 2 the command line makes no
sense, {NO_BACKEND} no such backend or none that can run here, 130 after Ctrl-C; `rankwise run --help` lists those of
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
    name = next((word for word in arguments if not word.startswith("-")), None)
    if name is not None and name not in COMMANDS:
        return _unknown(name)
    module = import_module(f"rankwise.cli.{name}_command") if name in COMMANDS else None
    # argparse would take what follows `--` for more of our own, where an option stands before it.
    end = arguments.index("--") if "--" in arguments and hasattr(module, "AFTER_DASHES") else len(arguments)
    options = _parser(name, module).parse_args(arguments[:end])
    options.after_dashes = arguments[end + 1 :]
    try:
        assert module is not None
        return int(module.run(options))
    except BrokenPipeError:
        # Whoever read our output is gone. Python would complain again when it flushes at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        return 141
    except KeyboardInterrupt:
        return 130
    except Exception as error:
        if options.traceback or os.environ.get("RANKWISE_DEBUG", "").lower() == "detail":
            raise
        return _tell(f"rankwise {name}", error)


def _unknown(name: str) -> int:
    from rankwise.cli.parser import near

    hint = near(name, COMMANDS)
    if name.endswith(".py"):
        hint = f"; did you mean rankwise run {name}?"
    print(f"rankwise: there is no command {name!r}{hint}\ncommands: {', '.join(COMMANDS)}", file=sys.stderr)
    return 2


def _tell(program: str, error: Exception) -> int:
    expected = isinstance(error, (CommandError, OSError, ValueError, RuntimeError))
    text = str(error) if expected and str(error) else f"{type(error).__name__}: {error}"
    from rankwise.errors import BackendNotFoundError, BackendUnavailableError
    from rankwise.launch.output import columns_of

    width = columns_of(sys.stderr, 100)
    print("\n".join(_filled(line, width) for line in f"{program}: {text}".splitlines()), file=sys.stderr)

    backend_is_missing = isinstance(error, (BackendNotFoundError, BackendUnavailableError))
    return int(getattr(error, "exit_code", NO_BACKEND if backend_is_missing else 1))


def _filled(line: str, width: int) -> str:
    """Break a line; what is indented goes on four columns further in."""
    further = " " * (4 + len(line) - len(line.lstrip())) if line.startswith(" ") else ""
    return textwrap.fill(line, width, subsequent_indent=further, break_long_words=False, break_on_hyphens=False)


def _parser(name: str | None, module: ModuleType | None) -> argparse.ArgumentParser:
    from rankwise.cli.parser import Parser

    parser = Parser(
        prog="rankwise",
        description="The communication layer of torch.distributed without torch.",
        epilog=_EPILOG,
        formatter_class=HelpFormatter,
        allow_abbrev=False,
    )
    parser.add_argument("--version", action="version", version=f"rankwise {_version()}")
    commands = parser.add_subparsers(title="commands", metavar="COMMAND", required=True)
    for command, line in COMMANDS.items():
        # Only the one that is asked for is imported and knows its options.
        if command == name and module is not None:
            own = commands.add_parser(command, help=line, **_texts(module))
            own.is_command = True
            _complete(own, module)
        else:
            commands.add_parser(command, help=line, add_help=False)
    return parser


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
