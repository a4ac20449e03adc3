"""A rank's log file: what happens to it must never happen to the rank."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable
from pathlib import Path

from rankwise.basics.systems import cause

__all__ = ["LogFile"]


class LogFile:
    """A file that takes a stream of a rank, as long as the disk does.

    Attributes:
        works: Whether all has been written so far.

    Args:
        path: The file.
        say: How to tell the user, once, that no more can be written.
    """

    def __init__(self, path: Path, say: Callable[[str], None]) -> None:
        self._path, self._say = path, say
        self._descriptor = -1
        self.works = True
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            self._descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o666)
        except OSError as error:
            self._give_up(error)

    def write(self, data: bytes) -> None:
        """Append some bytes."""
        view = memoryview(data)
        try:
            while self.works and view:
                view = view[os.write(self._descriptor, view) :]
        except OSError as error:
            self._give_up(error)

    def close(self) -> None:
        """Close the file; again does nothing."""
        descriptor, self._descriptor = self._descriptor, -1
        if descriptor >= 0:
            with contextlib.suppress(OSError):  # some file systems tell only now; what is lost is lost
                os.close(descriptor)

    def _give_up(self, error: OSError) -> None:
        self.works = False
        self.close()
        self._say(f"rankwise: cannot write to {self._path}: {cause(error)}; the rank goes on without this log")
