"""What programs see of groups by their class: `ProcessGroup.create`, and the default group under torch's two names."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from rankwise.groups.process_group import NON_GROUP_MEMBER, ProcessGroup
from rankwise.groups.world import current

__all__ = ["WORLD", "GroupMember", "ProcessGroup"]

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rankwise.basics.deadline import Timeout
    from rankwise.store import Store, StoreLike

    WORLD: ProcessGroup | None
    """The default group, or None before `init_process_group`."""


class _GroupMemberMeta(type):
    @property
    def WORLD(cls) -> ProcessGroup | None:
        """The default group, or None before `init_process_group`."""
        return current().default


class GroupMember(metaclass=_GroupMemberMeta):
    """`GroupMember.WORLD` is the default group; `NON_GROUP_MEMBER` is what a non-member gets for a group."""

    NON_GROUP_MEMBER = NON_GROUP_MEMBER


def create(
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
    """Make a group outside of the world, and return once all its members have come.

    There need be no default group, and there may be any number of such groups. Each is watched, recorded and
    checked as a world of its own is. Every call takes it as `group`; `split_group`, `new_subgroups` and
    `shrink_group` make further groups from it, and `destroy_process_group(group)` ends it and these.

    Args:
        store: A store in which the members meet: one of rankwise's, or any that is `StoreLike`, as torch's are. It
            must serve until all have left the group, and stays the caller's. None for a group of one.
        rank: This process's rank in the group.
        size: Number of members.
        name: The group's name, the same for all members. Groups that meet in one store have different names.
        backend: As for `init_process_group`.
        timeout: Default time-out of the group's operations, and of this call; 30 minutes.
        ranks: How messages, `src` and `dst` call the members, in the order of their ranks in the group; for members
            that are known by other numbers, such as those of a larger job. 0 to `size - 1` if None.
        description: A name for messages; the group's name if empty.
        options: Passed on to the backend, as `pg_options`.
        device_id: The device that this rank uses, as an index or "cuda:1".
        parent: A group of which all members are members too, by the names in `ranks`. They meet in its store,
            and need no other client of that and no other thread to watch them; the group ends with its parent.
        secret: The job secret, if it is neither that of the store nor the one of the environment; a process may
            have groups of several jobs.

    Returns:
        The group.

    Raises:
        ValueError: The arguments contradict each other.
        RendezvousError: The processes that met do not form one group.
        DistTimeoutError: Not all members came; the missing ones are named.
        BackendNotFoundError: The backend is not installed.
        BackendUnavailableError: The backend cannot run on this machine.

    Examples:
        >>> store = dist.FileStore("store")
        >>> pair = dist.ProcessGroup.create(store=store, rank=0, size=1, name="alone")
        >>> dist.get_world_size(pair), dist.is_initialized()
        (1, False)
        >>> dist.destroy_process_group(pair)
        >>> store.close()
    """
    from rankwise.groups import lifecycle, outside  # which few programs need before they make their first group

    made: list[ProcessGroup] = []
    try:
        where = store, rank, size, name, backend, timeout, ranks, description, options, device_id, parent
        made.append(outside.create(outside.GroupRequest(*where, secret)))
        return made[0]
    except BaseException as error:
        lifecycle.not_made("ProcessGroup.create", made, error)
        raise


ProcessGroup.create = staticmethod(create)


def __getattr__(name: str) -> ProcessGroup | None:
    if name == "WORLD":
        return current().default
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
