"""`Context`: what a backend is told about a group when it is to make the group's communicator."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from rankwise.basics.deadline import Timeout, seconds

if TYPE_CHECKING:
    from rankwise.backends.communicator import Communicator
    from rankwise.store import Store

__all__ = ["Context"]


def _look() -> None:
    """Return: nobody is known to have died."""


@dataclass(frozen=True, slots=True)
class Context:
    """All that a backend is told about the group that it serves.

    Attributes:
        name: The group's name, unique in the job; the same on every rank.
        rank: This process's rank in the group.
        size: Number of ranks in the group.
        global_ranks: The global rank of each group rank.
        timeout_s: The group's default time-out.
        devices: Kinds of devices whose arrays this communicator serves.
        device_index: Which device of its kind, where the program has said so.
        store: A key-value store whose keys only the group's members share; None where a backend's own runtime
            takes its place. It is promised while `create` runs; afterwards the rank that hosts it may leave.
        options: `pg_options` as given by the program.
        secret: The job secret, if there is one.
        parent: The world's communicator on the same backend, for a group that is made from it.
        look: Raises if a member has died meanwhile; for `create` to call now and then while it waits for others.
    """

    name: str
    rank: int
    size: int
    global_ranks: tuple[int, ...]
    timeout_s: float
    devices: tuple[str, ...] = ("cpu",)
    device_index: int | None = None
    store: Store | None = None
    options: Any = None
    secret: bytes | None = None
    parent: Communicator | None = None
    look: Callable[[], None] = _look

    @classmethod
    def plain(cls, store: Store | None, rank: int, size: int, timeout: Timeout) -> Context:
        """Make a context from what the plain creator signature tells."""
        return cls("default", rank, size, tuple(range(size)), seconds(timeout), store=store)
