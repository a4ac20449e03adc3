"""The adapter that makes a `Store` of a store of another library, such as torch's."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import Any, NoReturn, ParamSpec, TypeVar

from rankwise.errors import DistError, DistStoreError, DistTimeoutError
from rankwise.stores import RESERVED, Missing, Operation, Series, Store, StoreLike, debug_log, operations

_R = TypeVar("_R")
_P = ParamSpec("_P")

#: What nobody has stored: a value is compared with it to be read, as torch's `get` waits for a key that is deleted
#: before it is asked for, holds its client meanwhile, and so keeps back this rank's heartbeats.
_NOBODYS = b"rankwise: nobody's value"
#: How long a store that only knows how to wait is asked whether a key is there: all others wait as long.
_GLANCE = timedelta(milliseconds=2)
#: What a time-out says of itself, whatever its type: torch raises `RuntimeError`.
_LATE = ("timeout", "timed out", "time-out")
#: The error of torch's after which a client of its store never answers again, as it does not connect a second time.
_LOST = "DistNetworkError"


class _Client:
    """Another library's client of a store: one of our own, if it can be had."""

    def __init__(self, given: Any, name: str) -> None:
        self._name = name
        twin = _twin(given)
        self._store = given if twin is None else twin
        self._owns = twin is not None
        #: What the store has said when its connection was lost.
        self._lost: Exception | None = None
        #: Whether it sets and gets many keys in one call.
        self.extended = bool(self.has("has_extended_api") and self.ask("has_extended_api"))

    def has(self, method: str) -> bool:
        """Tell whether the store has a method."""
        return hasattr(self._store, method)

    def ask(self, method: str, *args: Any) -> Any:
        """Call a method of the store."""
        store, what = self._store, f"{method} on {self._name}"
        if store is None:
            raise DistStoreError(f"{what}: the store has been closed")
        if self._lost is not None:  # torch's prints a warning each time that it is asked in vain
            raise DistStoreError(f"{what}: {type(self._lost).__name__}: {self._lost}")
        try:
            return getattr(store, method)(*args)
        except DistError:
            raise
        except Exception as error:
            late = isinstance(error, TimeoutError) or any(word in str(error).lower() for word in _LATE)
            text = f"{what}: {type(error).__name__}: {error}"
            if not late and type(error).__name__ == _LOST:
                self._lost = error.with_traceback(None)
            raise (DistTimeoutError if late else DistStoreError)(text) from error

    def close(self) -> None:
        """Give the client back; one without `close` ends when nobody holds it."""
        store, self._store = self._store, None
        if self._owns and hasattr(store, "close"):
            with contextlib.suppress(Exception):  # it is of no use any more, whatever it says
                store.close()


class ForeignStore(Store):
    """A store of another library. Made by `as_store`."""

    takes_many_keys = False

    def __init__(self, store: StoreLike) -> None:
        self._given = store
        #: Shared by views.
        self._client = _Client(store, repr(self))

    @property
    def host(self) -> str | None:
        """Where the store is served, as far as it tells."""
        store: Any = self._given
        while hasattr(store, "underlying_store"):
            store = store.underlying_store
        host = getattr(store, "host", None)
        return host if isinstance(host, str) else None

    # ------------------------------------------------------------------ the primitives, as far as there are any

    def peek(self, key: str) -> bytes | None:
        if key.startswith(RESERVED):
            self._refuse()
        value = _as_bytes(self._client.ask("compare_set", key, _NOBODYS, _NOBODYS))
        if value == _NOBODYS or (not value and not self._has([key])):
            return None
        return value

    def swap(self, key: str, expected: bytes | None, desired: bytes | None) -> bytes | None:
        self._refuse()

    def _refuse(self) -> NoReturn:
        raise DistStoreError(
            f"{self!r} has no queues, barriers, append and swap, which are made of steps that a store of another "
            "library does not have; use a store of rankwise"
        )

    def scan(self) -> Sequence[str]:
        if not self._client.has("list_keys"):
            raise DistStoreError(f"{self!r} cannot list its keys")
        return [str(key) for key in self._client.ask("list_keys")]

    # ------------------------------------------------------------------ what the other store does by itself

    def _set(self, key: str, value: bytes) -> None:
        self._client.ask("set", key, value)

    def _add(self, key: str, amount: int) -> int:
        return int(self._client.ask("add", key, amount))

    def _compare_set(self, key: str, expected: bytes, desired: bytes) -> bytes:
        found = _as_bytes(self._client.ask("compare_set", key, expected, desired))
        # torch returns what was expected where the key is missing, as if it were there.
        return b"" if expected and found == expected and (expected != desired or not self._has([key])) else found

    def _delete_key(self, key: str) -> bool:
        return self._client.has("delete_key") and bool(self._client.ask("delete_key", key))

    def _delete_prefix(self, prefix: str) -> int:
        if not (self._client.has("list_keys") and self._client.has("delete_key")):
            return 0
        return sum(self._delete_key(key) for key in self.scan() if key.startswith(prefix))

    def _multi_set(self, keys: Sequence[str], values: Sequence[bytes]) -> None:
        if self._client.extended and len(keys) > 1:
            self._client.ask("multi_set", list(keys), list(values))
            return
        for key, value in zip(keys, values, strict=True):
            self._set(key, value)

    def _kept(self, keys: Sequence[str]) -> list[bytes | None]:
        """Return the values of keys that are there, and that nobody deletes before this rank has read them."""
        if self._client.extended and len(keys) > 1:
            return [_as_bytes(value) for value in self._client.ask("multi_get", list(keys))]
        return [*map(self.peek, keys)]

    def _set_then_peek(self, keys: Sequence[str], values: Sequence[bytes], wanted: Sequence[str]) -> list[bytes | None]:
        self._multi_set(keys, values)
        return [*map(self.peek, wanted)]

    def _claim_each(self, keys: Sequence[str], values: Sequence[bytes]) -> list[bytes]:
        return [self._compare_set(key, b"", value) for key, value in zip(keys, values, strict=True)]

    def _come(
        self,
        keys: Sequence[str],
        values: Sequence[bytes],
        counter: str,
        count: int,
        verdict: str,
        forget: Sequence[str],  # which would take a request for each key
        prefix: str,
        length: int,
    ) -> list[bytes | None] | Missing:
        self._multi_set(keys, values)
        if self._add(counter, 1) < count:
            return self._arrived(verdict, prefix, length)
        said = self._compare_set(verdict, b"", operations.FINE)  # the last to come knows it without asking again
        wanted = list(Series(prefix, length))
        return [said, *self._kept(wanted)] if self._has(wanted) else operations.arrived(self, verdict, prefix, length)

    def _arrived(self, verdict: str, prefix: str, length: int) -> list[bytes | None] | Missing:
        """Return the verdict and the values of the series, all in one call where all are there."""
        if not self._has([verdict]):
            return Missing(verdict, operations.arrived, (verdict, prefix, length))
        wanted = list(Series(prefix, length))
        if self._has(wanted):
            return self._kept([verdict, *wanted])
        return operations.arrived(self, verdict, prefix, length)

    def _has(self, keys: Sequence[str]) -> bool:
        if not keys:
            return True
        if self._client.has("check"):
            return bool(self._client.ask("check", list(keys)))
        try:
            self._client.ask("wait", list(keys), _GLANCE)
        except DistTimeoutError:
            return False
        return True

    def _wait(self, keys: Sequence[str], begin: int = 0) -> bool | Missing:
        """Return once all the keys are there; who waits for many looks for the first that is missing alone."""
        if self._has(keys[begin : begin + 1]) and self._has(keys):
            return True
        low, high = begin, len(keys)
        while high - low > 1 and self._has(keys[low : low + 1]):
            middle = (low + high) // 2
            low, high = (middle, high) if self._has(keys[low:middle]) else (low, middle)
        return Missing(keys[low], operations.wait, (keys, low))

    def _multi_get(self, keys: Sequence[str], begin: int = 0) -> list[bytes] | Missing:
        missing = self._wait(keys, begin)
        if isinstance(missing, Missing):
            return missing._replace(operation=operations.multi_get)
        values: list[bytes] = []
        for index, key in enumerate(keys):
            value = self.peek(key)
            if value is None:  # it has been deleted meanwhile
                return Missing(key, operations.multi_get, (keys, index))
            values.append(value)
        return values

    # ------------------------------------------------------------------ how operations run

    def clone(self) -> ForeignStore:
        self._check_open(operations.check)
        twin = ForeignStore(self._given)
        twin._timeout_s = self._timeout_s
        return twin

    def close(self) -> None:
        super().close()
        self._client.close()

    def _run(self, operation: Operation[_P, _R], limit_s: float, /, *args: _P.args, **kwargs: _P.kwargs) -> _R:
        self._check_open(operation)
        own = _OWN.get(operation)
        return operation(self, *args, **kwargs) if own is None else own(self, *args, **kwargs)

    def __repr__(self) -> str:
        return f"ForeignStore({type(self._given).__module__}.{type(self._given).__qualname__})"


#: What does not go by the primitives.
_OWN: dict[Callable[..., Any], Callable[..., Any]] = {
    operations.set_: ForeignStore._set,
    operations.add: ForeignStore._add,
    operations.compare_set: ForeignStore._compare_set,
    operations.delete_key: ForeignStore._delete_key,
    operations.delete_prefix: ForeignStore._delete_prefix,
    operations.check: ForeignStore._has,
    operations.multi_set: ForeignStore._multi_set,
    operations.set_and_peek: ForeignStore._set_then_peek,
    operations.claim: ForeignStore._claim_each,
    operations.arrive: ForeignStore._come,
    operations.arrived: ForeignStore._arrived,
    operations.wait: ForeignStore._wait,
    operations.multi_get: ForeignStore._multi_get,
}


def _twin(store: Any) -> Any:
    """Return another client of a store; None if it has none to give."""
    if not callable(getattr(store, "clone", None)):
        return None
    try:
        twin = store.clone()
    except Exception as error:  # a subclass in Python of torch's store has the method, and no body for it
        debug_log(f"{type(store).__qualname__} has no clone to give, so it is used itself: {error!r}")
        return None
    return None if twin is store else twin


def _as_bytes(value: Any) -> bytes:
    return value.encode() if isinstance(value, str) else bytes(value)
