"""Tell node 0 that a launcher was killed: what the process does that guarded its ranks, once these are gone too."""

from __future__ import annotations

import sys
from contextlib import suppress
from typing import TYPE_CHECKING

from rankwise.errors import DistError
from rankwise_launch.words import KILLED

if TYPE_CHECKING:
    from rankwise.stores import Store

#: The store answers at once, or it is gone, as is node 0.
_TELL_S = 5.0
#: Modules of the program's folder are none of ours.
_PROGRAM = "import sys; sys.path = [*filter(None, sys.path)]; from rankwise_launch.last_word import main; main()"


def command(place: str, key: str) -> list[str]:
    """Return the command that says so.

    Args:
        place: Where the launchers meet: HOST:PORT of node 0, or the URL of a server.
        key: What the launcher's own words are in the store.
    """
    return [sys.executable, "-c", _PROGRAM, place, key]


def main() -> None:
    """Say it."""
    place, key = sys.argv[1:]
    with suppress(DistError, OSError, ValueError), _store_at(place) as store:
        store.set(key, KILLED)


def _store_at(place: str) -> Store:
    if "://" in place:
        from rankwise_stores.serving import opened

        return opened(place, _TELL_S)
    from rankwise_stores import TCPStore

    address, _, port = place.rpartition(":")
    return TCPStore(address, int(port), timeout=_TELL_S, wait_for_server=False)
