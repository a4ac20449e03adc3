"""The one word about the end of a group, which all members read in the store: the first rank that fails writes it."""

from __future__ import annotations

import contextlib

from rankwise.backends import Store
from rankwise.errors import DistError
from rankwise_nccl.library.failures import from_notice, to_notice

__all__ = ["Notices"]

_KEY = "aborted"

#: The store may be gone, and an abort must not wait for it.
_PATIENCE_S = 2.0


class Notices:
    """Tells the peers why this rank has given the group up, and hears it from them. Used by the watchdog alone.

    Args:
        store: The group's store, or None where there is nobody to talk to.
    """

    def __init__(self, store: Store | None) -> None:
        self._source, self._store = store, store
        self._cloned = False

    def publish(self, error: DistError) -> DistError:
        """Tell `error`, and return the error of the rank that was first; it is this one if nobody else was."""
        mine = to_notice(error)
        with contextlib.suppress(DistError):
            store = self._open()
            if store is not None:
                said = store.compare_set(_KEY, "", mine).decode()
                return error if said == mine else from_notice(said)
        return error

    def hear(self) -> DistError | None:
        """Return the error that a peer has told, if one has."""
        try:
            store = self._open()
            return from_notice(store.get(_KEY)) if store is not None and store.check([_KEY]) else None
        except DistError:
            self._store = None  # nobody is told any more, and nobody hears
            return None

    def close(self) -> None:
        """Leave the store."""
        if self._cloned and self._store is not None:
            self._store.close()
        self._store = None

    def _open(self) -> Store | None:
        if self._store is not None and not self._cloned:
            # With a time-out of its own, and a connection that no waiting operation of another thread occupies.
            self._store = self._store.clone()
            self._store.set_timeout(_PATIENCE_S)
            self._cloned = True
        return self._store
