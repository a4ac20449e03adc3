"""`PrefixStore`: a part of another store, for one purpose."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Any, ParamSpec, TypeVar

from rankwise.basics.deadline import Deadline, Timeout
from rankwise.basics.tracebacks import shorten, shortened
from rankwise.errors import DistError
from rankwise.store import operations
from rankwise.store.base import Operation, Store, TableStore
from rankwise.store.primitives import Missing, to_key

_R = TypeVar("_R")
_P = ParamSpec("_P")

#: Which arguments of an operation are keys, or lists of keys, where these are not the first one alone.
_KEYS: dict[Callable[..., Any], tuple[int, ...]] = {operations.set_and_peek: (0, 2), operations.arrive: (0, 2, 4, 5, 6)}


class PrefixStore(TableStore):
    """The keys of another store that begin with a prefix and a slash; it looks as if there were no others.

    The time-out is that of the other store. Closing a PrefixStore leaves the other store open.

    Args:
        prefix: What the keys begin with.
        store: The other store.

    Examples:
        >>> store = dist.HashStore()
        >>> dist.PrefixStore("mine", store).set("key", "value")
        >>> store.list_keys()
        ['mine/key']
    """

    def __init__(self, prefix: str, store: Store) -> None:
        if not isinstance(store, Store):
            raise TypeError(f"PrefixStore: store must be a Store, not {type(store).__name__}")
        self._prefix = to_key(prefix)
        self._store = store
        self._words = _OwnWords(prefix)
        #: Whether to close the other store too: a clone made it.
        self._owns = False

    @property
    def prefix(self) -> str:
        """What the keys begin with."""
        return self._prefix

    @property
    def underlying_store(self) -> Store:
        """The other store."""
        return self._store

    @property
    def _timeout_s(self) -> float:
        return self._store._timeout_s

    @_timeout_s.setter
    def _timeout_s(self, timeout_s: float) -> None:
        self._store._timeout_s = timeout_s

    # ------------------------------------------------------------------ everything is done by the other store

    def _run(self, operation: Operation[_P, _R], limit_s: float, /, *args: _P.args, **kwargs: _P.kwargs) -> _R:
        self._check_open(operation)
        with self._words:
            return self._store._run(operation, limit_s, *self._outers(operation, args), **kwargs)

    def _await(
        self, operation: Operation[_P, _R | Missing], timeout_s: float, /, *args: _P.args, **kwargs: _P.kwargs
    ) -> _R:
        self._check_open(operation)
        with self._words:
            return self._store._await(operation, timeout_s, *self._outers(operation, args), **kwargs)

    def _first_item(self, queue: str, token: bytes, block: bool, deadline: Deadline) -> bytes:
        with self._words:
            return self._store._first_item(self._outer(queue), token, block, deadline)

    def _outers(self, operation: Callable[..., Any], args: Sequence[Any]) -> list[Any]:
        """Return the arguments of an operation with the keys as the other store has them."""
        keys = _KEYS.get(operation, (0,))
        return [self._outer(arg) if place in keys else arg for place, arg in enumerate(args)]

    def _outer(self, keys: Any) -> Any:
        return to_key(f"{self._prefix}/{keys}") if isinstance(keys, str) else [self._outer(key) for key in keys]

    def scan(self) -> Sequence[str]:
        self._check_open(operations.scan)
        return self._inners(self._store.scan())

    def list_keys(self) -> list[str]:
        with shortened:
            self._check_open(operations.list_keys)
            return self._inners(self._store.list_keys())

    def num_keys(self) -> int:
        return len(self.list_keys())

    def _inners(self, keys: Sequence[str]) -> list[str]:
        begin = f"{self._prefix}/"
        return [key[len(begin) :] for key in keys if key.startswith(begin)]

    def view(self, timeout: Timeout) -> PrefixStore:
        return PrefixStore(self._prefix, self._store.view(timeout))

    def among(self, ranks: Sequence[int]) -> PrefixStore:
        below = self._store.among(ranks)
        return self if below is self._store else PrefixStore(self._prefix, below)

    def clone(self) -> PrefixStore:
        twin = PrefixStore(self._prefix, self._store.clone())
        twin._owns = True
        return twin

    def close(self) -> None:
        super().close()
        if self._owns:
            self._store.close()

    def __repr__(self) -> str:
        return f"PrefixStore({self._prefix!r}, {self._store!r})"


class _OwnWords:
    """Has the errors of a block call keys as those do who know nothing of the prefix."""

    def __init__(self, prefix: str) -> None:
        self._prefix = prefix

    def __enter__(self) -> None:
        """Have nothing to do."""

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if isinstance(error, DistError):  # others are about the key as it was given
            outer = re.compile(rf"(['\"]){re.escape(self._prefix)}/")
            error.args = tuple(outer.sub(r"\1", arg) if isinstance(arg, str) else arg for arg in error.args)
        if error is not None:
            shorten(error)


def innermost(store: Store | None) -> Store | None:
    """Return the store that prefixes lead to in the end."""
    while isinstance(store, PrefixStore):
        store = store.underlying_store
    return store
