"""How command lines are read and explained: near matches for what is mistyped, and help as wide as the terminal."""

from __future__ import annotations

import argparse
import copy
import os
import re
import textwrap
from collections.abc import Iterable, Sequence
from itertools import groupby
from typing import IO, NoReturn

#: So many letters of an option, its dashes included, must be right if it was cut short or only begun alike.
_ALIKE = 5
#: How argparse tells of a value that is none of those there are.
_CHOICE = re.compile(r"invalid choice: '(.+?)' \(choose from (.+)\)$")
_UNKNOWN = "unrecognized arguments: "

_WIDEST = 118
_CODES = re.compile(r"\x1b\[[0-9;]*m")
#: A part of a usage that stays whole, with what is in its brackets.
_PART = re.compile(r"\([^)]*\)|\[[^][]*(?:\[[^]]*\][^][]*)*\]|\S+")
#: A word of a command, with what is in its quotation marks.
_WORD = re.compile(r"(?:'[^']*'|\"[^\"]*\"|\S)+")


def near(word: str, known: Iterable[str]) -> str:
    """Return the end of a sentence that asks whether something else was meant; "" if nothing is near."""
    import difflib  # which nobody needs who makes no mistake

    names = list(dict.fromkeys(known))
    begun = [name for name in names if name.startswith(word[: max(_ALIKE, len(word) - 2)])]
    found = begun or difflib.get_close_matches(word, names, n=2, cutoff=0.6 if len(word) <= _ALIKE else 0.7)
    return f"; did you mean {' or '.join(found[:2])}?" if found else ""


def instead(word: str, known: Iterable[str]) -> str:
    """Return the end of a sentence on a word that is unknown: what was meant, and what there is."""
    names, hint = list(known), near(word, known)
    return f"{hint} There are {', '.join(names)}" if hint else f"; there are {', '.join(names)}"


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


def columns_of(stream: IO[str] | None, most: int) -> int:
    """Return how many columns to fill of a stream: those that its terminal has, and no more than `most`."""
    try:
        wanted = int(os.environ.get("COLUMNS") or 0)
        there = wanted or os.get_terminal_size(-1 if stream is None else stream.fileno()).columns
    except (OSError, ValueError):  # it is no terminal
        return most
    return max(20, min(there, most))


class HelpFormatter(argparse.HelpFormatter):
    """Breaks prose that begins at the margin; indented lines stay as they are if there is room for them."""

    def _fill_text(self, text: str, width: int, indent: str) -> str:
        blocks = groupby(text.splitlines(), key=lambda line: bool(line) and not line.startswith(" "))
        lines: list[str] = []
        for is_prose, block in blocks:
            if is_prose:
                lines += textwrap.wrap(" ".join(block), min(width, _WIDEST), break_on_hyphens=False)
            else:
                lines += (part for line in block for part in _broken(line, width))
        return "\n".join(indent + line for line in lines)

    def _format_usage(
        self,
        usage: str | None,
        actions: Iterable[argparse.Action],
        groups: Iterable[argparse._MutuallyExclusiveGroup],
        prefix: str | None,
    ) -> str:
        """Return the usage; where the name of a program leaves too little room beside it, its options go below."""
        text = super()._format_usage(usage, actions, groups, prefix)
        if all(len(_CODES.sub("", line)) <= self._width for line in text.splitlines()):
            return text
        parts = (part.replace(" ", "\0") for part in _PART.findall(_CODES.sub("", text)))
        below = " " * len("usage: ")
        lines = textwrap.wrap(" ".join(parts), self._width, subsequent_indent=below, break_on_hyphens=False)
        return "\n".join(lines).replace("\0", " ") + "\n\n"

    def _format_action_invocation(self, action: argparse.Action) -> str:
        """Leave out spellings with underscores, which are for users who know them from torchrun."""
        shown = copy.copy(action)
        shown.option_strings = [name for name in action.option_strings if "_" not in name]
        return super()._format_action_invocation(shown)


def _broken(line: str, width: int) -> list[str]:
    """Break an indented line for which there is no room: a command, or a number and what it means."""
    if len(line) <= width:
        return [line]
    if number := re.match(r" +\d+ +", line):
        return textwrap.wrap(line, width, subsequent_indent=" " * number.end(), drop_whitespace=True)
    indent = " " * (len(line) - len(line.lstrip()))
    command, _, comment = line.partition("  # ")
    above = textwrap.wrap(comment.strip(), width, initial_indent=f"{indent}# ", subsequent_indent=f"{indent}# ")
    lines, here = [], indent
    for word in _WORD.findall(command):
        # Room is kept for the backslash.
        if here.strip() and len(f"{here} {word} \\") > width:
            lines.append(f"{here} \\")
            here = f"{indent}    {word}"
        else:
            here = f"{here} {word}" if here.strip() else here + word
    return [*above, *lines, here]
