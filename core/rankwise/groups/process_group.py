"""`ProcessGroup`: some ranks, and for each kind of device the communicator that serves them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from functools import lru_cache, partial
from typing import TYPE_CHECKING, Any, ClassVar, Protocol, TypeAlias

import numpy as np

from rankwise.backends import capability
from rankwise.backends.backend import BackendConfig
from rankwise.backends.communicator import Communicator
from rankwise.backends.fast_calls import Shortcuts
from rankwise.backends.registry import registry
from rankwise.backends.vocabulary import COLLECTIVES
from rankwise.basics.arrays import Array, device_of, dtype_name
from rankwise.basics.deadline import Timeout, seconds
from rankwise.basics.devices import device_kind_named
from rankwise.basics.ending import Ending
from rankwise.basics.interrupts import aborted_by, is_a_handlers
from rankwise.basics.recording import Trail
from rankwise.basics.reduce_op import ReduceOp
from rankwise.basics.tracebacks import anew, shortened
from rankwise.errors import DistBackendError, DistError, GroupAbortedError, PeerDiedError

if TYPE_CHECKING:
    from rankwise.backends.capability import Capabilities
    from rankwise.backends.cells import Cell
    from rankwise.basics.work import Work
    from rankwise.store import Store, StoreLike

#: The shortcuts of a group before its first call and after its end.
UNUSED = Shortcuts()
#: What a rank has in place of a group that it is not in.
NON_GROUP_MEMBER = -100


@lru_cache(64)
def _positions(ranks: tuple[int, ...]) -> Mapping[int, int]:
    """Return the group rank of each global rank, once for all groups of the same ranks."""
    return {rank: index for index, rank in enumerate(ranks)}


@dataclass
class Plan:
    """A group to be made: what it needs beside its world."""

    name: str
    ranks: tuple[int, ...]
    global_rank: int
    config: BackendConfig
    timeout_s: float
    store: Store | None
    #: What all members must agree on, beside the backends.
    terms: Mapping[str, Any]
    description: str = ""
    options: Any = None
    device_index: int | None = None
    #: All who must come before the group is made; its members, if empty.
    participants: tuple[int, ...] = ()
    #: What the members are about to do, for messages, if not just to make this group.
    purpose: str = ""

    def __post_init__(self) -> None:
        self.participants = self.participants or self.ranks


class Create(Protocol):
    """What makes a group outside of the world; see `ProcessGroup.create`."""

    def __call__(
        self,
        *,
        store: Store | StoreLike | None = None,
        rank: int,
        size: int,
        name: str,
        backend: str | None = None,
        timeout: Timeout | None = None,
        ranks: Sequence[int] | None = None,
        description: str = "",
        options: Any = None,
        device_id: Any = None,
        parent: ProcessGroup | None = None,
        secret: bytes | None = None,
    ) -> ProcessGroup:
        """Make it."""


#: What compiled code reads of a group in each plain call.
_AT_KNOWN_PLACES = ("rank_of", "shortcuts")


class ProcessGroup:
    """A group of ranks that this process belongs to.

    `init_process_group`, `new_group`, `split_group` and `shrink_group` make groups of a world, and
    `ProcessGroup.create` makes one outside of any world.
    """

    __slots__ = (*_AT_KNOWN_PLACES, "__dict__", "__weakref__")

    #: Comes from `rankwise.groups.group`: what makes groups knows this class, and not the other way round.
    create: ClassVar[Create]

    def __init__(self, plan: Plan, communicators: dict[str, Communicator], world: Any) -> None:
        self.name = plan.name
        self.ranks = plan.ranks
        self.global_rank = plan.global_rank
        self.config = plan.config
        self.timeout_s = plan.timeout_s
        self.store = plan.store
        self.group_desc = plan.description or plan.name
        #: The `World` that it was made in, and is watched and left with.
        self.world = world
        #: What this rank has called on the group.
        self.trail: Trail = world.recorder.trail(self.name, self.group_desc, self.ranks)
        #: Group rank of each global rank.
        self.rank_of = _positions(self.ranks)
        #: How many ranks have met to make it, members or not.
        self.came = len(plan.participants)
        self._end = Ending()
        #: The uuid of the configuration in which it ended, if it was made from a default group that was made anew.
        self.configuration = ""
        #: What calls say of a group that has no communicators.
        self.parting = "has been destroyed"
        #: For each thread with an open `coalescing` block on this group, the works of that block.
        self.collected: dict[int, list[Work]] = {}
        #: How many monitored barriers this rank has begun.
        self.monitored = 0
        self._rank = self.rank_of.get(self.global_rank, -1)
        self._communicators = communicators
        self._lanes: dict[Any, Communicator] = {}
        #: What its backend's table says of those collectives on its usual device that depend on no condition.
        self.certain: Mapping[tuple[str, str], Cell] = {}
        #: The features and calls that were asked for, each with a kind of device, and that its backend has.
        self.granted: dict[tuple[str, str], None] = {}
        #: For plain calls on the CPU's arrays, or on those of the only kind of device; from the first call on.
        self.shortcuts = UNUSED
        #: Whether a backend of it tells for how long others were waited for.
        self.tells_waits = any(communicator.tells_waits for communicator in self.communicators())
        for communicator in self.communicators():
            communicator.on_failure = self._failed
            communicator.note_to(self.trail)

    def __repr__(self) -> str:
        return f"<ProcessGroup {self.group_desc!r}: rank {self._rank} of {self.size()}, {self.config}>"

    def _repr_html_(self) -> str:
        from rankwise.basics.rich_display import facts

        rows = (("rank", self._rank), ("size", self.size()), ("backend", self.config), ("ranks", list(self.ranks)))
        return facts(f"group {self.group_desc!r}", rows)

    def rank(self) -> int:
        """Return this process's rank in the group."""
        return self._rank

    def size(self) -> int:
        """Return the number of ranks in the group."""
        return len(self.ranks)

    @property
    def group_name(self) -> str:
        """The group's unique name, as torch spells it."""
        return self.name

    @property
    def backend(self) -> str:
        """The backend's name, or the composite that says which serves which device."""
        return str(self.config)

    @property
    def timeout(self) -> timedelta:
        """The default time-out of the group's operations."""
        return timedelta(seconds=self.timeout_s)

    def set_timeout(self, timeout: Timeout) -> None:
        """Change the default time-out of the group's operations."""
        with shortened:
            self.timeout_s = seconds(timeout)

    def get_group_store(self) -> Store | None:
        """Return the store whose keys the members share."""
        return self.store

    def abort(self, reason: str = "by a call of abort()") -> None:
        """Abort the group: pending and later operations raise `GroupAbortedError` on this rank.

        The other members learn it in the calls in which they wait; see `abort_process_group`.

        Args:
            reason: How or why, for the message; it follows "group 'default' was aborted on rank 1".
        """
        error = GroupAbortedError(f"group {self.group_desc!r} was aborted on rank {self.global_rank} {reason}")
        for communicator in self.communicators():
            communicator.give_up_and_tell(error)

    def report_death(self, rank: int, cause: str) -> None:
        """Be told that a member has died, by the engine that runs it and knows so sooner or better than its peers.

        Calls that need that member raise a `PeerDiedError` on this rank immediately, later ones too, and on the other
        ranks as soon as the store has told them. This call waits for nothing; what does not need the member goes on.

        Args:
            rank: The member, as `src` and `dst` name it.
            cause: How it came, for the message, such as "its pod was evicted".

        Raises:
            ValueError: It is no member, or this rank.
        """
        with shortened:
            if rank not in self.rank_of or rank == self.global_rank:
                raise ValueError(f"report_death: rank {rank} is no other member of group {self.group_desc!r}")
            if self.world.watcher is not None:
                self.world.watcher.reported(rank, cause)
            else:
                for communicator in self.communicators():
                    communicator.give_up(PeerDiedError(rank, "?", cause))

    def on_failure(self, told: Callable[[DistError], object]) -> None:
        """Have something called once with the error that has made the group of no use; immediately if it has failed.

        That is a death, an abort, or a call that has failed half-way, as soon as this rank knows it. The thread that
        finds out calls it, so it must not wait.
        """
        self._end.then(lambda: told(self._end.value))

    def _failed(self, error: DistError) -> None:
        self.trail.fail(error)
        self._end.tell(error)

    def interrupted(self, error: BaseException, what: str) -> None:
        """Give the group up after an interrupt in one of its calls, which may stand half-way."""
        where = f"{what} on group {self.group_desc!r}, rank {self.global_rank},"
        for communicator in self.communicators():
            communicator.fail(aborted_by(error, where))

    def process_ends(self) -> None:
        """Abort the group because the process ends without having destroyed it."""
        from rankwise.basics.systems import last_words

        words = last_words()
        where = f"group {self.group_desc!r} was aborted on rank {self.global_rank} by the end of the process"
        where += f": {words}" if words else ""
        for communicator in self.communicators():
            communicator.process_ends(GroupAbortedError(where))

    def is_open(self) -> bool:
        """Tell whether the group has not been destroyed, by itself or with the world that it was made in."""
        return self.world.groups.get(self.name) is self

    def lane(self, array: Array, op: str, reduce_op: ReduceOp | None = None) -> Communicator:
        """Return the communicator for a call, or raise if the capability table refuses it.

        This is on the path of every call: the answer is kept per operation, array type, dtype and reduce op.
        """
        key = (op, type(array), array.dtype, None if reduce_op is None else reduce_op.name)
        communicator = self._lanes.get(key)
        if communicator is None:
            device = "cpu" if type(array) is np.ndarray else device_of(array)
            communicator = self._lanes[key] = self._open_lane(op, device, array.dtype, reduce_op)
        if communicator.failure is not None:
            raise anew(communicator.failure)
        return communicator

    def make_ready(self) -> None:
        """Make what all calls share, so that the first one does no more than a call of another kind.

        The default group does so before the program goes on. Many others never make a call.
        """
        if self._communicators:
            device = _usual(self._communicators)
            table = self._table(device)
            cells = {op: table.cell(op, device) for op in COLLECTIVES}
            self.certain = {(op, device): cell for op, cell in cells.items() if cell.certain}
            self.shortcuts = self._communicators[device].shortcuts(self)

    def any_lane(self, op: str, device: str | None = None) -> tuple[Communicator, str]:
        """Return a communicator for an operation without an array, and its device: the CPU's if there is one."""
        device = device or _usual(self._communicators)
        communicator = self._open_lane(op, device, None, None)
        if communicator.failure is not None:
            raise anew(communicator.failure)
        return communicator, device

    def require_feature(self, feature: str, device: str, op: str) -> None:
        """Raise unless the backend for `device` has a feature that this call of `op` needs."""
        if (feature, device) not in self.granted:
            table, served = self._table(device), self._serving(device)
            capability.require_feature(table, feature, served, op, registry.others)
            self.granted[feature, device] = None

    def compares_calls(self) -> bool:
        """Tell whether the ranks compare their calls on arrays of the host before anything moves."""
        communicator = self._communicators.get(self._serving("cpu"))
        if communicator is None or not communicator.compares_calls:
            return False
        key = "mismatch", "cpu"
        if key not in self.granted and self._table("cpu").cell(*key).usable:
            self.granted[key] = None
        return key in self.granted

    def require_call(self, call: str, device: str) -> None:
        """Raise unless the backend for `device` has all that a public call needs which is put together of others."""
        if (call, device) not in self.granted:
            capability.require_call(self._table(device), call, self._serving(device), registry.others)
            self.granted[call, device] = None

    def _table(self, device: str) -> Capabilities:
        return registry.get(self.config.device_backend_map[self._serving(device)]).capabilities

    def _serving(self, device: str) -> str:
        """Return the kind that an array is served as: a kind that nothing installed brings has arrays of the host."""
        served = self.config.device_backend_map
        if device in served or device != "cpu":
            return device
        return next((kind for kind in served if device_kind_named(kind) is None), device)

    def require_open(self) -> dict[str, Communicator]:
        """Raise a `ValueError` if the group has been destroyed; return the communicators by the devices they serve."""
        communicators = self._communicators  # another thread may destroy the group meanwhile
        if not communicators:
            raise ValueError(f"group {self.group_desc!r} {self.parting}")
        return communicators

    def become(self, other: ProcessGroup) -> None:
        """Take the place of a group that was made after this one: its members, its communicators, its records."""
        vars(self).update(vars(other))
        for name in _AT_KNOWN_PLACES:
            setattr(self, name, getattr(other, name))
        for communicator in self.communicators():
            communicator.on_failure = self._failed

    def lacks_members(self, why: str) -> None:
        """Have no members until the group becomes another; calls say why, after "group 'default'"."""
        self.ranks, self.rank_of, self._rank, self.global_rank = (), {}, -1, -1
        self._communicators, self.parting = {}, why
        self._lanes.clear()
        self.certain = {}
        self.shortcuts = UNUSED

    def communicators(self) -> list[Communicator]:
        """Return the group's communicators, each once."""
        return list({id(c): c for c in self._communicators.values()}.values())

    def communicator_of(self, backend: str) -> Communicator | None:
        """Return the communicator on the backend called `backend`, if the group has one."""
        for device, name in self.config.device_backend_map.items():
            if name == backend:
                return self._communicators.get(device)
        return None

    def poison(self, error: DistError) -> None:
        """Make every call raise `error`, touching nothing that a backend holds."""
        for communicator in self.communicators():
            communicator.failure = communicator.failure or error

    def close(self, timeout_s: float) -> None:
        """Wait for what has been issued, then give everything back. The first error is raised after the rest."""
        communicators, self._communicators = self.communicators(), {}
        self._lanes.clear()
        self.certain = {}
        self.shortcuts = UNUSED
        errors: list[BaseException] = []
        for communicator in communicators:
            for step in (partial(communicator.drain, timeout_s), communicator.shutdown):
                try:
                    step()
                except BaseException as error:  # one backend's trouble must not keep the others open
                    errors.append(self._broken_off(communicator, error))
        if errors:
            raise errors[0]

    def _broken_off(self, communicator: Communicator, error: BaseException) -> BaseException:
        """Return what the end of a communicator that has failed raises: an error, or what a handler has raised."""
        if is_a_handlers(error):
            where = f"destroy_process_group on group {self.group_desc!r}, rank {self.global_rank},"
            communicator.fail(aborted_by(error, where))
            return error
        failure = error if isinstance(error, DistError) else DistBackendError(f"closing failed: {error!r}")
        communicator.fail(failure)
        return failure

    def _open_lane(self, op: str, device: str, dtype: Any, reduce_op: ReduceOp | None) -> Communicator:
        communicators = self.require_open()
        cell = self.certain.get((op, device)) if dtype is None or dtype.itemsize else None
        name = None if dtype is None else dtype_name(dtype)
        if cell is not None and cell.takes(name, None if reduce_op is None else reduce_op.name):
            return communicators[device]
        device = self._serving(device)
        if device not in communicators:
            raise ValueError(f"{op}: group {self.group_desc!r} has no backend for {device} arrays ({self.config!r})")
        table = registry.get(self.config.device_backend_map[device]).capabilities
        capability.require(table, op, device, dtype, reduce_op, registry.others)
        if self.shortcuts is UNUSED:  # should two threads make the first call, either's will do
            self.make_ready()
        return communicators[device]


def _usual(communicators: dict[str, Communicator]) -> str:
    """Return the kind of device of calls without arrays, and of the group's shortcuts."""
    return "cpu" if "cpu" in communicators else next(iter(communicators), "cpu")


#: What calls take for a group: None is the default group, and `NON_GROUP_MEMBER` does nothing.
GroupLike: TypeAlias = ProcessGroup | int | None
