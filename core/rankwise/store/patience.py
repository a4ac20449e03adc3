"""Waits for the store in which the waiter looks around now and then, since what it waits for may never come."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import TypeVar

from rankwise.basics.attending import attended
from rankwise.basics.deadline import Deadline
from rankwise.errors import DistError, DistNetworkError, DistTimeoutError
from rankwise.store.base import ArrivalPoint, Store
from rankwise.store.operations import FINE
from rankwise.store.primitives import Series

_T = TypeVar("_T")

#: Where it is said how an exchange has come out, `FINE` or why not; the names of its other keys begin so too.
EXCHANGE = "exchange"
#: How long it may take to ask who has not come.
_ASK_S = 1.0


def patiently(wait: Callable[[float], _T], deadline: Deadline, look: Callable[[], object]) -> _T:
    """Return what `wait` does, which gets the seconds that it may take; call `look` meanwhile, several times a second.

    Raises:
        DistTimeoutError: The deadline has passed.
    """
    return attended(lambda: wait(deadline.remaining()), look, deadline, "waiting for the others")


def late(store: Store, keys: Sequence[str], ranks: Sequence[int], deadline: Deadline) -> DistTimeoutError:
    """Return the error of a wait for ranks each of which sets a key as it comes; it names those that have not."""
    missing: tuple[int, ...] = ()
    with suppress(DistError):
        found = store.view(_ASK_S)._set_and_peek({}, keys)
        missing = tuple(rank for rank, each in zip(ranks, found, strict=True) if each is None)
    who = f"rank{'s' * (len(missing) > 1)} {', '.join(map(str, missing))}" if missing else "not all ranks"
    error = DistTimeoutError(
        f"timed out: {who} did not come to make {'their' if len(missing) != 1 else 'its'} communicators within "
        f"{deadline.timeout_s:g} s"
    )
    error.waited_for = missing
    return error


def exchange(
    store: Store, rank: int, ranks: Sequence[int], value: bytes, deadline: Deadline, look: Callable[[], object]
) -> list[bytes]:
    """Give all members of a group the values of all, by one request of each to a store that serves this exchange alone.

    `rank` is this member's rank in the group, and `ranks` are the global ranks of all; `look` raises if it is of no use
    to wait any more.

    Raises:
        DistTimeoutError: Some have not come, which are named.
        DistNetworkError: One that has come cannot go on, or the store is gone.
        DistError: What `look` raises.
    """
    size = len(ranks)
    place, all_keys = ArrivalPoint(f"{EXCHANGE}/come", EXCHANGE, size), Series(f"{EXCHANGE}/of/", size)
    step = lambda limit_s: store._arrive({all_keys[rank]: value}, place, all_keys, limit_s)  # noqa: E731
    try:
        said, found = patiently(step, deadline, look)
    except DistTimeoutError as error:
        raise late(store, [all_keys[each] for each in range(size)], ranks, deadline) from error
    if said != FINE:
        raise DistNetworkError(f"another member cannot go on: {said.decode()}")
    return [each or b"" for each in found]
