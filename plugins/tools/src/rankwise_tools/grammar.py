"""What can be typed after `rankwise`, read off the parsers of its commands."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from types import ModuleType
from typing import NamedTuple

from rankwise.launching import KNOWN
from rankwise_launch.toolbox import installed, load

__all__ = ["Command", "Option", "grammar"]


class Option(NamedTuple):
    """One option of a command: how it is spelled, what it is for, whether a value follows, and which ones may."""

    names: tuple[str, ...]
    help: str
    takes_value: bool
    values: tuple[str, ...]


class Command(NamedTuple):
    """One command: its line in the overview, its options, and the words that may stand without one."""

    name: str
    help: str
    options: tuple[Option, ...]
    words: tuple[str, ...]


def grammar() -> list[Command]:
    """Return all commands that are installed; of one that is broken nothing but its name."""
    return [_command(name, line) for name, line in installed().items()]


def _command(name: str, line: str) -> Command:
    try:
        module = load(name)
        assert module is not None
        return _described(name, line, module)
    except Exception:  # the command itself tells it, when it is used
        return Command(name, line, (), ())


def _described(name: str, line: str, module: ModuleType) -> Command:
    parser = argparse.ArgumentParser()
    parser.add_argument("--traceback", action="store_true", help="show where in the program an error came from")
    module.add_arguments(parser)
    actions = [action for action in parser._actions if action.help != argparse.SUPPRESS]
    words = tuple(word for action in actions if not action.option_strings for word in _values(action))
    return Command(name, line, tuple(_options(actions)), words)


def _options(actions: list[argparse.Action]) -> Iterator[Option]:
    for action in actions:
        names = tuple(name for name in action.option_strings if "_" not in name)
        if names:
            yield Option(names, _first_clause(action.help or ""), action.nargs != 0, _values(action))


def _values(action: argparse.Action) -> tuple[str, ...]:
    """Return the values that an option or a word may have, as far as they are known beforehand."""
    if action.choices is not None:
        return tuple(map(str, action.choices))
    return tuple(KNOWN) if action.dest in ("backend", "name") and action.metavar == "NAME" else ()


def _first_clause(text: str) -> str:
    return text.partition(";")[0].partition(" (")[0]
