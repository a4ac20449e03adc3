"""Stores of other libraries, such as torch's: what they must have; `rankwise-stores` makes a `Store` of one."""

from __future__ import annotations

from datetime import timedelta
from typing import Any, Protocol

from rankwise.basics.entry_points import part
from rankwise.basics.tracebacks import shortened
from rankwise.store.base import Store


class StoreLike(Protocol):
    """What a store of another library must have so that processes can meet in it; any thread may call.

    Where it has them, these are used too:

    - `clone()` returns another client of the same store. All that rankwise does goes through that one, so that nothing
      waits for a call of the program's own. `close()` of the clone is called in the end.
    - `check(keys)` tells whether all the keys are there. Without it `wait` is asked again and again.
    - `multi_set(keys, values)` and `multi_get(keys)`, if `has_extended_api()` returns true, instead of one call a key
      where no key is deleted meanwhile.
    - `list_keys()` and `delete_key(key)`. Without them the keys of groups that have ended stay in the store.
    - `host`, the name or address of the machine that serves it, tells which interface leads to the other processes.
    """

    def set(self, key: str, value: Any, /) -> object:
        """Store bytes under a key, whatever was there."""

    def add(self, key: str, amount: int, /) -> int:
        """Add to the number under a key, which is zero if it is not there, and return the sum.

        It is stored as a decimal number.
        """

    def compare_set(self, key: str, expected: Any, desired: Any, /) -> Any:
        """Store `desired` if `expected` is there; an empty `expected` means that nothing is, or an empty value.

        Return the value that is there afterwards, as bytes or text; of a missing key where something was expected, that
        or nothing. Values are read in this way too, as `get` of such a store waits for a key that is not there.
        """

    def wait(self, keys: list[str], timeout: timedelta, /) -> object:
        """Return once all the keys are there, or raise when the time-out has passed; its text says so."""


def as_store(store: Store | StoreLike) -> Store:
    """Return a store of any kind as a store of rankwise.

    `init_process_group` and `ProcessGroup.create` do this with what they are given. Operations that wait look again and
    again, so that none keeps others waiting for the same client. A store of another library has no queues, barriers,
    `append` and `swap`.

    Args:
        store: The store; any that is `StoreLike`, as those of torch are.

    Returns:
        The store itself if it is one of rankwise, else an adapter, which leaves it open when it is closed.

    Raises:
        TypeError: It lacks a method.
        PluginError: It is not one of rankwise, and `rankwise-stores`, which brings the adapter, is not installed.

    Examples:
        >>> class Table(dict):  # a store for one process
        ...     set = dict.__setitem__
        ...     def add(self, key, amount):
        ...         self[key] = str(int(self.get(key) if key in self else 0) + amount)
        ...         return int(self[key])
        ...     def compare_set(self, key, expected, desired):
        ...         if (self.get(key) if key in self else b"") == expected:
        ...             self[key] = desired
        ...         return self[key] if key in self else b""
        ...     def wait(self, keys, timeout):
        ...         if not all(key in self for key in keys):
        ...             raise RuntimeError("timed out")
        >>> store = dist.as_store(Table())
        >>> store.compare_set("leader", "", "rank 0")
        b'rank 0'
        >>> store.get("nothing", timeout=0.01)
        Traceback (most recent call last):
        rankwise.errors.DistTimeoutError: timed out: get on ForeignStore(...): ...
    """
    with shortened:
        if isinstance(store, Store):
            return store
        needed = ("set", "add", "compare_set", "wait")
        lacking = [name for name in needed if not callable(getattr(store, name, None))]
        if lacking:
            raise TypeError(f"a store must have {', '.join(lacking)}, which {type(store).__name__} does not")
        adapted: Store = part("foreign_store", "rankwise-stores")(store)
        return adapted
