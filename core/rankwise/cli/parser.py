"""A parser that says what a mistyped option may have been meant to be."""

from __future__ import annotations

import argparse
import re
from collections.abc import Iterable, Sequence
from typing import NoReturn

__all__ = ["Parser", "near"]

#: So many letters of an option, its dashes included, must be right if it was cut short or only begun alike.
_ALIKE = 5
#: How argparse tells of a value that is none of those there are.
_CHOICE = re.compile(r"invalid choice: '(.+?)' \(choose from (.+)\)$")
_UNKNOWN = "unrecognized arguments: "


def near(word: str, known: Iterable[str]) -> str:
    """Return the end of a sentence that asks whether something else was meant; "" if nothing is near."""
    import difflib  # which nobody needs who makes no mistake

    names = list(dict.fromkeys(known))
    begun = [name for name in names if name.startswith(word[: max(_ALIKE, len(word) - 2)])]
    found = begun or difflib.get_close_matches(word, names, n=2, cutoff=0.6 if len(word) <= _ALIKE else 0.7)
    return f"; did you mean {' or '.join(found[:2])}?" if found else ""


class Parser(argparse.ArgumentParser):
    """`ArgumentParser` with near matches for unknown options, its own and those of its sub-commands."""

    def error(self, message: str) -> NoReturn:
        """Print the usage and a message, and end with exit code 2."""
        if message.startswith(_UNKNOWN):
            unknown = message.removeprefix(_UNKNOWN).split()
            known = list(_options(self))
            hints = [near(word.partition("=")[0], known) for word in unknown if word.startswith("-")]
            message += next((hint for hint in hints if hint), "")
        elif chosen := _CHOICE.search(message):
            message += near(chosen[1], re.findall(r"'?([\w.-]+)'?(?:, |$)", chosen[2]))
        super().error(message)

    def parse_known_args(  # type: ignore[override]
        self, args: Sequence[str] | None = None, namespace: argparse.Namespace | None = None
    ) -> tuple[argparse.Namespace, list[str]]:
        """Parse; a sub-command's unknown options are its own to complain of, with its own usage."""
        found, unknown = super().parse_known_args(args, namespace)
        if unknown and self.is_command:
            self.error(f"{_UNKNOWN}{' '.join(unknown)}")
        return found, unknown

    #: Whether this is the parser of a sub-command.
    is_command = False


def _options(parser: argparse.ArgumentParser) -> Iterable[str]:
    for action in parser._actions:
        if action.help != argparse.SUPPRESS:
            yield from (name for name in action.option_strings if "_" not in name)
