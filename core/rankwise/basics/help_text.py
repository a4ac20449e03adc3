"""How `--help` is laid out: prose, examples and lists, in lines as wide as the terminal."""

from __future__ import annotations

import argparse
import copy
import re
import textwrap
from collections.abc import Iterable
from itertools import groupby

__all__ = ["HelpFormatter"]

_WIDEST = 118
_CODES = re.compile(r"\x1b\[[0-9;]*m")
#: A part of a usage that stays whole, with what is in its brackets.
_PART = re.compile(r"\([^)]*\)|\[[^][]*(?:\[[^]]*\][^][]*)*\]|\S+")
#: A word of a command, with what is in its quotation marks.
_WORD = re.compile(r"(?:'[^']*'|\"[^\"]*\"|\S)+")


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
