"""Groups and communicators of mpi4py side by side: each made of the other, with the same ranks in the same order."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from mpi4py import MPI

import rankwise as dist
from rankwise.backends import anew
from rankwise_mpi.communicator import MpiCommunicator
from rankwise_mpi.process.process import process


def group_from_comm(comm: MPI.Intracomm, timeout: Any = None, group_desc: str | None = None) -> dist.ProcessGroup:
    """Make a group on `mpi` of the processes of a communicator, in its order; all of these call.

    The group has communicators of its own, so calls of both may follow on each other in any order that is the same on
    all ranks, and `comm` may be freed.

    Args:
        comm: The communicator.
        timeout: How long operations of the group may take, in seconds or as a `timedelta`; None is as long as those of
            the default group.
        group_desc: What errors call the group.

    Returns:
        The group, whose ranks are those of `comm`.

    Raises:
        ValueError: There is no default group, or a process of `comm` is not in MPI's world, or not in the default group
            that was reconfigured.
    """
    world, own = MPI.COMM_WORLD.Get_group(), comm.Get_group()
    try:
        ranks = MPI.Group.Translate_ranks(own, None, world)
    finally:
        own.Free()
        world.Free()
    if MPI.UNDEFINED in ranks:
        raise ValueError(
            f"group_from_comm: rank {ranks.index(MPI.UNDEFINED)} of {comm.name!r} is not in MPI.COMM_WORLD"
        )
    named = _as_the_default_group_calls(ranks, comm)
    made = dist.new_group(
        named, timeout, "mpi", use_local_synchronization=True, group_desc=group_desc, sort_ranks=False
    )
    assert isinstance(made, dist.ProcessGroup)
    return made


def _as_the_default_group_calls(ranks: Sequence[int], comm: MPI.Intracomm) -> Sequence[int]:
    """Return the global ranks of ranks of MPI; they differ once the default group was reconfigured."""
    default = dist.group.WORLD
    over = default.communicator_of("mpi") if isinstance(default, dist.ProcessGroup) else None
    if not isinstance(over, MpiCommunicator) or not over.context.runtime_ranks:
        return ranks
    absent = [place for place, rank in enumerate(ranks) if rank not in over.context.runtime_ranks]
    if absent:
        raise ValueError(f"group_from_comm: rank {absent[0]} of {comm.name!r} is not in the default group")
    return [over.context.runtime_ranks.index(rank) for rank in ranks]


def comm_of(group: dist.ProcessGroup | None = None) -> MPI.Intracomm:
    """Make a communicator of the ranks of a group on `mpi`, in its order; all of these call.

    It is the caller's own: nothing of the group goes by it, and the caller frees it.

    Args:
        group: The group; None is the default group.

    Returns:
        The communicator, whose ranks are those of the group.

    Raises:
        ValueError: The group is not on `mpi`, or this rank is not in it.
        DistTimeoutError: Not all have called within the group's time-out.
    """
    found = dist.group.WORLD if group is None else group
    made = found.communicator_of("mpi") if isinstance(found, dist.ProcessGroup) else None
    if not isinstance(made, MpiCommunicator):
        raise ValueError(f"comm_of: {found!r} is no group on mpi that this rank is in")
    if made.failure is not None:
        raise anew(made.failure)
    dist.barrier(found)  # what was issued before is over: MPI's calls on one communicator have one order
    return process().duplicate(made.mpi, made.context.timeout_s, f"comm_of group {made.context.name!r}")
