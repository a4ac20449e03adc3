"""Waits for the store in which the waiter looks around now and then, since what it waits for may never come."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from rankwise.basics.attending import attended
from rankwise.basics.deadline import Deadline
from rankwise.errors import DistNetworkError
from rankwise.store.base import ArrivalPoint, Store
from rankwise.store.operations import FINE
from rankwise.store.primitives import Series

__all__ = ["EXCHANGE", "exchange", "patiently"]

_T = TypeVar("_T")

#: Where it is said how an exchange has come out, `FINE` or why not; the names of its other keys begin so too.
EXCHANGE = "exchange"


def patiently(wait: Callable[[float], _T], deadline: Deadline, look: Callable[[], object]) -> _T:
    """Return what `wait` does, which gets the seconds that it may take; call `look` meanwhile, several times a second.

    Raises:
        DistTimeoutError: The deadline has passed.
    """
    return attended(lambda: wait(deadline.remaining()), look, deadline, "waiting for the others")


def exchange(
    store: Store, rank: int, size: int, value: bytes, deadline: Deadline, look: Callable[[], object]
) -> list[bytes]:
    """Give all members of a group the values of all, by one request of each to a store that is theirs alone.

    Args:
        store: The store; it serves one exchange.
        rank: This member.
        size: How many there are.
        value: What the others get from this one.
        deadline: When to give up.
        look: Raises if it is of no use to wait any more.

    Raises:
        DistTimeoutError: Some have not come.
        DistNetworkError: One that has come cannot go on, or the store is gone.
        DistError: What `look` raises.
    """
    place, all_keys = ArrivalPoint(f"{EXCHANGE}/come", EXCHANGE, size), Series(f"{EXCHANGE}/of/", size)
    step = lambda limit_s: store._arrive({all_keys[rank]: value}, place, all_keys, limit_s)  # noqa: E731
    said, found = patiently(step, deadline, look)
    if said != FINE:
        raise DistNetworkError(f"another member cannot go on: {said.decode()}")
    return [each or b"" for each in found]
