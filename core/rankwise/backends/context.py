"""`Context`: what a backend is told about a group when it is to make the group's communicator."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

from rankwise.basics.arguments import shown
from rankwise.basics.deadline import Deadline, Timeout, seconds
from rankwise.errors import DistTimeoutError

if TYPE_CHECKING:
    from rankwise.store import Store

__all__ = ["Context"]

_T = TypeVar("_T")

#: How long a step may wait before it is looked whether what it waits for can come at all.
_GLANCE_S = 0.2


def _look() -> None:
    """Return: nobody is known to have died."""


#: Of a context that somebody makes by hand.
_NEVER = Deadline(1e9)


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
        options: `pg_options` as given by the program; see `options_as`.
        secret: The job secret, if the program or the store has given one; else that of the process may be used.
        parent: The world's `Communicator` on the same backend, for a group that is made from it.
        runtime_ranks: The rank of each group rank in the backend's own runtime, where the default group can be
            reconfigured, so that its ranks are named otherwise than there; else empty.
        look: Raises if a member has died meanwhile, or cannot make its communicator; for `create` to call now and then
            while it waits for others. `wait` does.
        deadline: When the group must be made.
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
    parent: Any = None
    runtime_ranks: tuple[int, ...] = ()
    look: Callable[[], None] = _look
    deadline: Deadline = _NEVER

    def options_as(self, kind: type[_T]) -> _T:
        """Return the options as one of a kind, which is made by itself where the program has given none.

        Args:
            kind: A class, such as a frozen dataclass; `type(None)` of a backend that has no options.

        Raises:
            TypeError: The program has given something else.
        """
        if self.options is None:
            return kind()
        if isinstance(self.options, kind):
            return self.options
        wanted = "None" if kind is type(None) else f"a {kind.__module__}.{kind.__qualname__}"
        raise TypeError(f"group {self.name!r}: pg_options must be {wanted}, not {shown(self.options)}")

    def fetch(self, key: str, peer: int) -> bytes:
        """Return what another member sets in the group's store, once it has; see `wait`."""
        assert self.store is not None
        store = self.store
        return self.wait(lambda wait_s: store.get(key, wait_s), [peer])

    def wait(self, step: Callable[[float], _T], peers: Iterable[int]) -> _T:
        """Return what a step of `create` returns that waits for other ranks; it is tried again and again, for a moment.

        Args:
            step: Takes the seconds that it may wait, and raises a `TimeoutError` when they have passed, as sockets and
                stores do.
            peers: The group ranks that are waited for.

        Raises:
            DistTimeoutError: The time is up; it names the ranks, the group and the backend's step.
            DistError: A rank has died, or cannot make its communicator.
        """
        while True:
            self.look()
            try:
                return step(min(_GLANCE_S, self.deadline.remaining()))
            except TimeoutError as error:
                if not self.deadline.expired():
                    continue
                missing = tuple(sorted(self.global_ranks[peer] for peer in peers))
                late = DistTimeoutError(
                    f"making group {self.name!r} on rank {self.global_ranks[self.rank]}: timed out: rank"
                    f"{'s' * (len(missing) > 1)} {', '.join(map(str, missing))} did not connect within "
                    f"{self.timeout_s:g} s"
                )
                late.waited_for = missing
                raise late from error

    @classmethod
    def plain(cls, store: Store | None, rank: int, size: int, timeout: Timeout) -> Context:
        """Make a context from what the plain creator signature tells."""
        timeout_s = seconds(timeout)
        return cls("default", rank, size, tuple(range(size)), timeout_s, store=store, deadline=Deadline(timeout_s))
