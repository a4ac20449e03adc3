"""A progress bar on stderr that tells the time left: rich's where it is installed, a plain one otherwise, none where
nobody is looking."""

from __future__ import annotations

import os
import sys
from time import monotonic
from types import TracebackType
from typing import Any

_WIDTH = 30


class Progress:
    """Shows how much of `total` is done, and how long the rest takes if it goes on like that."""

    def __init__(self, total: float) -> None:
        self._total, self._done, self._began = total or 1.0, 0.0, monotonic()
        self._looking = sys.stderr.isatty() and os.environ.get("TERM") != "dumb"
        self._rich: Any = _rich_bar() if self._looking else None
        if self._rich is not None:
            self._task = self._rich.add_task("", total=total)

    def __enter__(self) -> Progress:
        if self._rich is not None:
            self._rich.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._rich is not None:
            self._rich.stop()
        elif self._looking:
            self._write("\r\x1b[K")

    def step(self, text: str, worth: float = 1.0) -> None:
        """Say that something more is done, what it was, and how much of the total."""
        self._done += worth
        if self._rich is not None:
            self._rich.update(self._task, advance=worth, description=text, refresh=True)
        elif self._looking:
            part = min(1.0, self._done / self._total)
            filled = int(_WIDTH * part)
            bar = "#" * filled + "." * (_WIDTH - filled)
            self._write(f"\r\x1b[K[{bar}] {part:4.0%}, {self.left()} left: {text}")

    def left(self) -> str:
        """Say how long the rest takes."""
        rest = max(0.0, self._total - self._done) / self._done if self._done else 0.0
        seconds = round(rest * (monotonic() - self._began))
        return f"{seconds // 60}:{seconds % 60:02}"

    def _write(self, text: str) -> None:
        sys.stderr.write(text)
        sys.stderr.flush()


def _rich_bar() -> Any:
    try:
        from rich.console import Console
        from rich.progress import Progress as RichProgress
    except ImportError:
        return None
    # Without a thread of its own: processes are started meanwhile.
    return RichProgress(console=Console(stderr=True), transient=True, auto_refresh=False)
