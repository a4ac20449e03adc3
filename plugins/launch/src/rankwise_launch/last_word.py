"""Tell node 0 that a launcher was killed: what the process does that guarded its ranks, once these are gone too."""

from __future__ import annotations

import sys
from contextlib import suppress

from rankwise.errors import DistError
from rankwise_launch.words import KILLED

__all__ = ["command", "main"]

#: The store answers at once, or it is gone, as is node 0.
_TELL_S = 5.0
#: Modules of the program's folder are none of ours.
_PROGRAM = "import sys; sys.path = [*filter(None, sys.path)]; from rankwise_launch.last_word import main; main()"


def command(address: str, port: int, key: str) -> list[str]:
    """Return the command that says so.

    Args:
        address: Where the launchers meet.
        port: Likewise.
        key: What the launcher's own words are in the store.
    """
    return [sys.executable, "-c", _PROGRAM, address, str(port), key]


def main() -> None:
    """Say it."""
    from rankwise_stores import TCPStore

    address, port, key = sys.argv[1:]
    with (
        suppress(DistError, OSError, ValueError),
        TCPStore(address, int(port), timeout=_TELL_S, wait_for_server=False) as store,
    ):
        store.set(key, KILLED)
