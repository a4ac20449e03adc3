"""The demo's live table: one row for each rank, redrawn as the program's lines come in. Needs rich."""

from __future__ import annotations

import math
import re
import sys
from collections.abc import Iterable
from typing import Any

from rankwise_launch.text import use_colour

__all__ = ["LiveTable"]

#: A line of examples/data_parallel.py: step, the losses of the ranks, milliseconds a step, MB/s.
_LINE = re.compile(r"^(?:\[ *0\]: )?(\d+) +((?:\d+\.\d{4} +)+)([\d.]+) +(\d+) MB/s$")
#: The head of these lines.
_HEAD = re.compile(r"^(?:\[ *0\]: )?step +loss 0")
#: How long a bar is, and at which part of the first loss it is gone; in between it is logarithmic.
_BAR, _LEAST = 30, 100
#: Ranks beyond these are not shown by the program.
_MOST_ROWS = 8


class LiveTable:
    """Shows how far the training is, and each rank's loss."""

    def __init__(self, ranks: int, steps: int) -> None:
        self._ranks, self._steps = ranks, steps
        self._first: list[float] = []

    @classmethod
    def for_terminal(cls, ranks: int, steps: int) -> LiveTable | None:
        """Return one if stdout is a terminal that takes colours and rich is installed, else None."""
        if not use_colour(sys.stdout):
            return None
        try:
            import rich  # noqa: F401
        except ImportError:
            return None
        return cls(ranks, steps)

    def follow(self, lines: Iterable[str]) -> None:
        """Draw what the lines tell, and print those that tell something else."""
        from rich.live import Live

        with Live(auto_refresh=False) as live:
            for line in map(str.rstrip, lines):
                found = _LINE.match(line)
                if found is not None:
                    losses = [float(loss) for loss in found[2].split()]
                    title = f"step {found[1]} of {self._steps}, {found[3]} ms each, all_reduce {found[4]} MB/s"
                    live.update(self._drawn(title, losses), refresh=True)
                    if int(found[1]) == self._steps:
                        live.stop()  # what follows belongs below the table
                elif not _HEAD.match(line):
                    live.console.print(line, markup=False, highlight=False, soft_wrap=True)

    def _drawn(self, title: str, losses: list[float]) -> Any:
        from rich.table import Table

        self._first = self._first or losses
        table = Table(title=title, title_justify="left")
        for name in ("rank", "loss at first", "loss now"):
            table.add_column(name, justify="right")
        table.add_column(f"down to 1/{_LEAST}", style="cyan", min_width=_BAR)
        for rank, (first, loss) in enumerate(zip(self._first, losses, strict=True)):
            left = 1 + math.log(max(loss / first, 1 / _LEAST), _LEAST)
            table.add_row(str(rank), f"{first:.4f}", f"{loss:.4f}", "█" * min(round(_BAR * left), _BAR))
        if self._ranks > _MOST_ROWS:
            table.caption = f"and {self._ranks - _MOST_ROWS} more ranks"
        return table
