"""What the members of a group tell each other through the store, as NCCL tells nothing.

The first rank that fails writes the one word about the end of the group, which all read. And a rank that has waited
for half the time-out of a collective says so: who has said nothing by the end is who was waited for.
"""

from __future__ import annotations

import contextlib
import json
import threading
from collections.abc import Sequence

from rankwise.backends import Store, pack_error, unpack_error
from rankwise.errors import DistError

_KEY, _WAITING = "aborted", "waiting"

#: The store may be gone, and an abort must not wait for it.
_PATIENCE_S = 2.0


class Notices:
    """Tells the peers why this rank has given the group up, and hears it from them.

    Args:
        store: The group's store, or None where there is nobody to talk to.
        me: This rank's name.
    """

    def __init__(self, store: Store | None, me: int) -> None:
        self._store, self._me = store, me
        self._cloned = False
        self._cloning = threading.Lock()
        #: The latest collective that this rank has said to wait in.
        self._waiting = -1

    def waits(self, number: int) -> None:
        """Tell that this rank waits in a collective, once for each."""
        if number <= self._waiting:
            return
        self._waiting = number
        with contextlib.suppress(DistError):
            store = self._open()
            if store is not None:
                store.append(_WAITING, f"{self._me} {number}\n")

    def missing(self, ranks: Sequence[int], number: int) -> list[int] | None:
        """Return those of some ranks that have not told to wait in a collective; None if nobody knows."""
        try:
            store = self._open()
            told = store.get(_WAITING).decode() if store is not None and store.check([_WAITING]) else ""
        except DistError:
            return None
        latest = {int(rank): int(turn) for rank, turn in map(str.split, told.splitlines())}
        return [rank for rank in ranks if rank != self._me and latest.get(rank, -1) < number]

    def publish(self, error: DistError) -> DistError:
        """Tell `error`, and return it, or what a rank has told that was first."""
        mine = json.dumps(pack_error(error, self._me))
        with contextlib.suppress(DistError):
            store = self._open()
            if store is not None:
                said = store.compare_set(_KEY, "", mine).decode()
                return error if said == mine else unpack_error(json.loads(said))
        return error

    def hear(self) -> DistError | None:
        """Return the error that a peer has told, if one has."""
        try:
            store = self._open()
            return unpack_error(json.loads(store.get(_KEY))) if store is not None and store.check([_KEY]) else None
        except DistError:
            self._store = None  # nobody is told any more, and nobody hears
            return None

    def close(self) -> None:
        """Leave the store."""
        if self._cloned and self._store is not None:
            self._store.close()
        self._store = None

    def _open(self) -> Store | None:
        with self._cloning:  # whoever fails first comes here beside the watchdog
            if self._store is not None and not self._cloned:
                # With a time-out of its own, and a connection that no waiting operation of another thread occupies.
                self._store = self._store.clone()
                self._store.set_timeout(_PATIENCE_S)
                self._cloned = True
            return self._store
