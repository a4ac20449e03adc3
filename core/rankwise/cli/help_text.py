"""How `--help` is laid out: prose in lines as wide as the terminal, examples and lists as they were written."""

from __future__ import annotations

import argparse
import textwrap
from itertools import groupby

__all__ = ["HelpFormatter"]

_WIDEST = 118


class HelpFormatter(argparse.HelpFormatter):
    """Breaks lines that begin at the margin anew, and leaves indented ones alone."""

    def _fill_text(self, text: str, width: int, indent: str) -> str:
        blocks = groupby(text.splitlines(), key=lambda line: bool(line) and not line.startswith(" "))
        lines: list[str] = []
        for is_prose, block in blocks:
            lines += textwrap.wrap(" ".join(block), min(width, _WIDEST)) if is_prose else block
        return "\n".join(indent + line for line in lines)
