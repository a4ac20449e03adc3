"""A store that behaves as torch's do, in Python: one client serialises its calls, missing keys block and then raise a
`RuntimeError`, `compare_set` knows no deletion and returns of an absent key what was expected."""

from __future__ import annotations

import threading
from datetime import timedelta

from rankwise.errors import DistStoreError, DistTimeoutError
from rankwise_stores import FileStore


class StoreError(RuntimeError):
    """What it raises for everything."""


class Bare:
    """No more than a store must have. Processes share the table by its path."""

    def __init__(self, path: str, patience_s: float = 30.0) -> None:
        self.path, self._patience_s = path, patience_s
        self._table = FileStore(path)
        self._one_call = threading.Lock()

    def set(self, key: str, value: str | bytes) -> None:
        with self._one_call:
            self._table.set(key, value)

    def get(self, key: str) -> bytes:
        with self._one_call:
            return self._blocking(lambda: self._table.get(key, timeout=self._patience_s))

    def add(self, key: str, amount: int) -> int:
        with self._one_call:
            try:
                return self._table.add(key, amount)
            except DistStoreError as error:
                raise StoreError("invalid stoi argument") from error

    def compare_set(self, key: str, expected: str | bytes, desired: str | bytes) -> bytes:
        with self._one_call:
            wanted, new = (each.encode() if isinstance(each, str) else each for each in (expected, desired))
            if not wanted:
                return self._table.compare_set(key, wanted, new)
            found = self._table.swap(key, wanted, new)  # in one step, as theirs
            if found is None:
                return wanted  # as if it were there
            return new if found == wanted else found

    def wait(self, keys: list[str], timeout: timedelta) -> None:
        if not isinstance(timeout, timedelta):
            raise TypeError("incompatible function arguments")
        with self._one_call:
            self._blocking(lambda: self._table.wait(keys, timeout))

    def close(self) -> None:
        self._table.close()

    @staticmethod
    def _blocking(wait):  # type: ignore[no-untyped-def]
        try:
            return wait()
        except DistTimeoutError:
            # Without our own words, which are not the other library's.
            raise StoreError("wait timeout after 30000ms, keys: /...") from None


class Alien(Bare):
    """And what a store may have beside."""

    host = "127.0.0.1"

    def check(self, keys: list[str]) -> bool:
        with self._one_call:
            return self._table.check(keys)

    def delete_key(self, key: str) -> bool:
        with self._one_call:
            return self._table.delete_key(key)

    def list_keys(self) -> list[str]:
        with self._one_call:
            return self._table.list_keys()

    def clone(self) -> Alien:
        return type(self)(self.path, self._patience_s)
