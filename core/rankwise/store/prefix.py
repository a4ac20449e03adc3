"""`PrefixStore`: a part of another store, for one purpose."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from datetime import timedelta

from rankwise.basics.deadline import Timeout
from rankwise.basics.tracebacks import shorten
from rankwise.errors import DistError, DistStoreError
from rankwise.store.base import Arrival, ArrivalPoint, Store, Value
from rankwise.store.primitives import Series, to_key, to_keys

__all__ = ["PrefixStore", "innermost"]


class PrefixStore(Store):
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
    def _open(self) -> Store:
        if self._closed:
            raise DistStoreError(f"{self!r} has been closed")
        return self._store

    def _outer(self, key: str) -> str:
        return f"{self._prefix}/{to_key(key)}"

    def _outers(self, keys: Iterable[str]) -> list[str]:
        return [f"{self._prefix}/{key}" for key in to_keys(keys)]

    # ------------------------------------------------------------------ everything is done by the other store

    def set(self, key: str, value: Value) -> None:
        with self._words:
            self._open.set(self._outer(key), value)

    def get(self, key: str, timeout: Timeout | None = None) -> bytes:
        with self._words:
            return self._open.get(self._outer(key), timeout)

    def add(self, key: str, amount: int) -> int:
        with self._words:
            return self._open.add(self._outer(key), amount)

    def compare_set(self, key: str, expected: Value, desired: Value) -> bytes:
        with self._words:
            return self._open.compare_set(self._outer(key), expected, desired)

    def append(self, key: str, value: Value) -> None:
        with self._words:
            self._open.append(self._outer(key), value)

    def delete_key(self, key: str) -> bool:
        with self._words:
            return self._open.delete_key(self._outer(key))

    def check(self, keys: Iterable[str]) -> bool:
        with self._words:
            return self._open.check(self._outers(keys))

    def wait(self, keys: Iterable[str], timeout: Timeout | None = None) -> None:
        with self._words:
            self._open.wait(self._outers(keys), timeout)

    def multi_get(self, keys: Iterable[str], timeout: Timeout | None = None) -> list[bytes]:
        with self._words:
            return self._open.multi_get(self._outers(keys), timeout)

    def multi_set(self, keys: Iterable[str], values: Iterable[Value]) -> None:
        with self._words:
            self._open.multi_set(self._outers(keys), values)

    def _set_and_peek(self, values: Mapping[str, bytes], keys: Sequence[str]) -> list[bytes | None]:
        mine = dict(zip(self._outers(values), values.values(), strict=True))
        return self._open._set_and_peek(mine, self._outers(keys))

    def _claim(self, keys: Sequence[str], values: Sequence[bytes]) -> list[bytes]:
        return self._open._claim(self._outers(keys), values)

    def _arrive(self, values: Mapping[str, bytes], at: ArrivalPoint, wanted: Series, timeout: Timeout) -> Arrival:
        mine = dict(zip(self._outers(values), values.values(), strict=True))
        there = ArrivalPoint(self._outer(at.counter), self._outer(at.said), at.size, tuple(self._outers(at.forget)))
        return self._open._arrive(mine, there, Series(self._outer(wanted.prefix), wanted.length), timeout)

    def num_keys(self) -> int:
        return len(self.list_keys())

    def num_refused(self) -> int:
        return self._open.num_refused()

    def list_keys(self) -> list[str]:
        begin = f"{self._prefix}/"
        return [key[len(begin) :] for key in self._open.list_keys() if key.startswith(begin)]

    def delete_prefix(self, prefix: str) -> int:
        with self._words:
            return self._open.delete_prefix(self._outer(prefix))

    def queue_push(self, key: str, value: Value) -> None:
        with self._words:
            self._open.queue_push(self._outer(key), value)

    def queue_pop(self, key: str, block: bool = True, timeout: Timeout | None = None) -> bytes:
        with self._words:
            return self._open.queue_pop(self._outer(key), block, timeout)

    def queue_len(self, key: str) -> int:
        with self._words:
            return self._open.queue_len(self._outer(key))

    def barrier(self, key: str, world_size: int, timeout: Timeout | None = None) -> None:
        with self._words:
            self._open.barrier(self._outer(key), world_size, timeout)

    @property
    def timeout(self) -> timedelta:
        return self.underlying_store.timeout

    def set_timeout(self, timeout: Timeout) -> None:
        self._store.set_timeout(timeout)

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

    # ------------------------------------------------------------------ the primitives

    def peek(self, key: str) -> bytes | None:
        return self._open.peek(f"{self._prefix}/{key}")

    def swap(self, key: str, expected: bytes | None, desired: bytes | None) -> bytes | None:
        return self._open.swap(f"{self._prefix}/{key}", expected, desired)

    def scan(self) -> Sequence[str]:
        begin = f"{self._prefix}/"
        return [key[len(begin) :] for key in self._open.scan() if key.startswith(begin)]

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
