"""`PrefixStore`: a part of another store, as if it were a store of its own."""

from __future__ import annotations

from typing import Any

from rankwise.store.base import Store

__all__ = ["PrefixStore"]

_LISTS = ("check", "wait", "multi_get", "multi_set")


class PrefixStore(Store):
    """The keys of `store` that begin with `prefix` and a slash."""

    def __init__(self, prefix: str, store: Store) -> None:
        super().__init__(store.timeout)
        self.prefix = prefix
        self.underlying_store = store

    def __repr__(self) -> str:
        return f"PrefixStore({self.prefix!r}, {self.underlying_store!r})"


    def clone(self) -> Store:
        """Return the same part of a clone of the store."""
        return PrefixStore(self.prefix, self.underlying_store.clone())

    def _call(self, op: str, *args: Any, timeout_s: float = 0.0) -> Any:
        first, *rest = args
        own = [self._own(key) for key in first] if op in _LISTS else self._own(first)
        return self.underlying_store._call(op, own, *rest, timeout_s=timeout_s)

    def _own(self, key: str) -> str:
        return f"{self.prefix}/{key}"
