"""The demo's live table: one row for each rank, redrawn as the program's lines come in. Needs rich."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable
from typing import Any

from rankwise.cli.text import format_rate
from rankwise.launch.output import use_colour

__all__ = ["LiveTable"]

#: A line of examples/data_parallel.py: step, the losses of the ranks, milliseconds a step, MB/s.
_LINE = re.compile(r"^(?:\[ *0\]: )?(\d+) +((?:\d+\.\d{4} +)+)([\d.]+) +(\d+) MB/s$")
_BAR = 24
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
            for line in lines:
                found = _LINE.match(line.rstrip())
                if found is None:
                    live.console.print(line.rstrip(), markup=False, highlight=False)
                else:
                    losses = [float(loss) for loss in found[2].split()]
                    live.update(self._drawn(int(found[1]), losses, found[3], float(found[4]) * 1e6), refresh=True)

    def _drawn(self, step: int, losses: list[float], step_ms: str, rate: float) -> Any:
        from rich.table import Table

        self._first = self._first or losses
        table = Table(title=f"step {step} of {self._steps}, {step_ms} ms a step", title_justify="left")
        for name in ("rank", "loss at first", "loss now", "", "all_reduce"):
            table.add_column(name, justify="left" if name == "" else "right", style="cyan" if name == "" else None)
        for rank, (first, loss) in enumerate(zip(self._first, losses, strict=True)):
            bar = "█" * max(round(_BAR * loss / first), 0)
            table.add_row(str(rank), f"{first:.4f}", f"{loss:.4f}", f"{bar:{_BAR}.{_BAR}}", format_rate(rate))
        if self._ranks > _MOST_ROWS:
            table.caption = f"and {self._ranks - _MOST_ROWS} more ranks"
        return table
