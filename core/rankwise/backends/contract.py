"""The contract of a backend: what it is told of a group, what its `Communicator` has to do, and what it may do better.

A backend that implements `isend`, `irecv`, `close` and `abort` has every collective: the core derives them from these.
It overrides `algorithm`, or `run` of `Communicator`, for what its library does natively, and declares which is which in
its capability table.

Backends never check arguments, never translate ranks and never look at globals. They get group ranks, and arrays
that are exactly `numpy.ndarray` or a device's, C-contiguous, writable where they are written to, of a dtype
that the backend has declared.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterable, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from rankwise.basics.arguments import shown
from rankwise.basics.arrays import Array
from rankwise.basics.deadline import Deadline, Timeout, seconds
from rankwise.basics.messages import Status
from rankwise.basics.work import Work
from rankwise.collective.call import Call, Prepared
from rankwise.errors import DistError, DistTimeoutError

if TYPE_CHECKING:
    from rankwise.store import Store

_T = TypeVar("_T")

#: How long a step may wait before it is looked whether what it waits for can come at all.
_GLANCE_S = 0.2


def see_nothing() -> None:
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
    look: Callable[[], None] = see_nothing
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


class Gauges(NamedTuple):
    """What a communicator tells the commands that look at a running job.

    Attributes:
        moved_nbytes: How many bytes have gone and come so far, by way, such as "pipe" or "tcp".
        queued: How many things wait, by kind.
        way: How the bytes of collectives go, as far as one word can tell; else "".
        memory_nbytes: How much memory it shares with other ranks.
    """

    moved_nbytes: Mapping[str, int] = {}
    queued: Mapping[str, int] = {}
    way: str = ""
    memory_nbytes: int = 0


class Contract(ABC):
    """One live group on one backend, as its author sees it: a subclass of `Communicator` implements this.

    Any thread may call, `abort` even while another thread is blocked in a call. Point-to-point operations are
    independent of each other; collectives run one at a time, in the order they were issued.
    """

    #: Whether this backend calls `on_wait`.
    tells_waits = False
    #: Whether this group compares the calls of all ranks, where the table has `mismatch`; else it gets all in C order.
    compares_calls = True

    def __init__(self, context: Context) -> None:
        self.context = context
        self.rank = context.rank
        self.size = context.size

    def __repr__(self) -> str:
        return f"<{type(self).__name__} of group {self.context.name!r}: rank {self.rank} of {self.size}>"

    # ------------------------------------------------------------------ what a backend must implement

    @abstractmethod
    def isend(self, array: Array, dst: int, tag: int) -> Work:
        """Begin to send the bytes of `array`; must not wait for the receiver.

        The buffer belongs to the backend until the work has ended. Messages with the same destination and tag
        arrive in the order they were sent. `dst` may be this rank itself. Zero-size arrays are messages too.
        Tags from 2**30 are the core's; a backend treats them as any other.
        """

    @abstractmethod
    def irecv(self, array: Array, src: int | None, tag: int) -> Work:
        """Begin to receive one message into `array`, from `src`, or from anyone if None.

        The buffer belongs to the backend until the work has ended. A shorter message fills the beginning; a longer
        one fails the work with an error that names both sizes, and nothing is written past the end. The
        work's `source_rank()` is the sender's group rank, and its `nbytes` the message's length. Receives of the same
        source and tag are met in the order they were begun.
        """

    @abstractmethod
    def close(self) -> None:
        """Give back everything: threads, descriptors, memory. Sends that have been issued are delivered first,
        within the context's time-out. Called once, when no operation is pending."""

    @abstractmethod
    def abort(self, error: DistError) -> None:
        """End every operation that is pending with `error`, and make the peers' pending ones end too.

        Never blocks, may be called from any thread and more than once. `close` still follows.
        """

    # ------------------------------------------------------------------ what a backend may do better

    def iprobe(self, src: int | None, tag: int) -> Status | None:
        """Return what the message is that `irecv` would take now, with the sender's group rank; None if there is none.

        A backend that declares `probe` implements this. It takes in what has come, and never waits.

        Raises:
            DistError: The group has failed, or who is asked for can send nothing more.
        """
        raise NotImplementedError(f"{type(self).__name__} declares probe and has no iprobe")

    def algorithm(self, call: Call) -> Any:
        """Return what moves the data of a call: a backend overrides this for what it does in a way of its own.

        The result is an `Algorithm`, or whatever else the backend's own `compare_and_run` takes; by default the one
        that the core derives from messages.
        """
        return call.derived(self)

    def new_kind(self, call: Call) -> Prepared | None:
        """Return what does all calls of a kind: a backend overrides this where much of a call is the same each time.

        A communicator that does takes a time-out for each call, and its plain calls have a fast path, see
        `rankwise.backends.fast_calls`. None, as by default, for calls of which nothing is kept.
        """
        return None

    def own_collectives(self) -> Collection[str]:
        """Return the names of those that this backend carries out itself, which its table calls native."""
        return ()

    def peer_died(self, rank: int, error: DistError) -> bool:
        """Learn that the process of a member has ended, and say whether this communicator acts on that by itself.

        What a rank has completed before its end must complete on the others too. A backend that knows which ranks its
        operations wait for overrides this and returns true. It ends with `error` those that need something of the dead
        rank, but not before it has taken in what that rank has sent; later ones that need that rank fail with `error`
        immediately; operations among the others go on. It must not wait for the end of a connection for long: another
        process may hold that open.

        If it returns false, as it does by default, the whole group is given up, immediately or, where a
        collective is running, some 50 ms later, in which that may end.

        Never blocks. Called on a thread of the core, for each member once; that a member is silent or cannot be
        reached is told by `give_up` instead.

        Args:
            rank: The dead member's group rank.
            error: What operations that need it are to raise: a `PeerDiedError`, the same on all ranks.
        """
        return False

    def batch(self) -> AbstractContextManager[None]:
        """Return a context in which several operations are begun together, for libraries that gain by it."""
        return nullcontext()
