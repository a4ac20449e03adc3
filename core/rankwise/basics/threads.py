"""Threads of the library's own, which may be refused."""

from __future__ import annotations

import threading

from rankwise.basics.held import held
from rankwise.basics.system_errors import cause
from rankwise.errors import DistBackendError

__all__ = ["start"]


def start(thread: threading.Thread) -> None:
    """Start a thread, whole or not at all: an interrupt waits until it runs.

    Raises:
        DistBackendError: The system starts no more threads; it says which limit that is.
    """
    try:
        with held:
            thread.start()
    except RuntimeError as error:
        if cause(error) == str(error):
            raise
        raise DistBackendError(f"{thread.name}: {cause(error)}") from error
