"""A progress bar on stderr: rich's where it is installed, a plain one otherwise, none where nobody is looking."""

from __future__ import annotations

import os
import sys
from types import TracebackType
from typing import Any

__all__ = ["Progress"]

_WIDTH = 30


class Progress:
    """Shows how many of `total` steps are done."""

    def __init__(self, total: int) -> None:
        self._total, self._done = max(total, 1), 0
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

    def step(self, text: str) -> None:
        """Say that one more is done, and what it was."""
        self._done += 1
        if self._rich is not None:
            self._rich.update(self._task, advance=1, description=text, refresh=True)
        elif self._looking:
            filled = _WIDTH * self._done // self._total
            self._write(f"\r\x1b[K[{'#' * filled}{'.' * (_WIDTH - filled)}] {self._done}/{self._total} {text}")

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
