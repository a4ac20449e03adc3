"""How a group gets communicators of its own."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from collections.abc import Set as AbstractSet

from mpi4py import MPI

from rankwise.backends import Communicator, Context, Deadline, DebugLevel, get_debug_level
from rankwise.errors import PeerDiedError
from rankwise_mpi.checked import CheckedCommunicator
from rankwise_mpi.collectives.entry_barrier import open_entry_barrier
from rankwise_mpi.communicator import MpiCommunicator
from rankwise_mpi.group.pages import Pages
from rankwise_mpi.library.failures import translate
from rankwise_mpi.process.process import LiveGroup, Process, life_of, process, ranks_in_mpi


def create(context: Context) -> Communicator:
    """Make the communicator of one group; only its members call.

    Raises:
        ValueError: MPI knows this process by another rank.
    """
    context.options_as(type(None))
    here = process()
    here.check_thread()
    ranks = ranks_in_mpi(context)
    if ranks[context.rank] != here.rank:
        raise ValueError(
            f"{_what(context)}: this process is called rank {context.global_ranks[context.rank]} there, but is rank "
            f"{here.rank} of MPI; give ProcessGroup.create the members' ranks in MPI as `ranks`"
        )
    deadline = Deadline(context.timeout_s)
    try:
        here.base(deadline.remaining())
        with here.assembled(context, ranks, deadline) as dead:
            first = _first(here, context, ranks, dead, deadline)
        here.retired.free_those_within(ranks)
        pages = Pages(first, lambda comm: here.duplicate(comm, deadline.remaining(), _what(context)))
        entry = None
        if here.may_share_memory(ranks):
            entry = open_entry_barrier(first, deadline, here.first_looks, here.keep)
    except MPI.Exception as error:
        raise translate(error, _what(context)) from error
    if get_debug_level() is DebugLevel.DETAIL:
        return CheckedCommunicator(context, here, pages, entry)
    made = MpiCommunicator(context, here, pages, entry)
    made.shorten()
    return made


def _first(
    here: Process, context: Context, ranks: Sequence[int], dead: AbstractSet[int], deadline: Deadline
) -> MPI.Intracomm:
    base = here.base(deadline.remaining())
    survivors = here.find(ranks) if here.survives_deaths else None
    if survivors is not None:
        made = _after_deaths(survivors, ranks)
    elif dead:
        made = _of_survivors(here, context, ranks, dead)
    elif tuple(ranks) == tuple(range(base.size)):
        made = here.duplicate(base, deadline.remaining(), _what(context))
    else:
        made = _part(base, ranks, _tag(context))
    made.Set_errhandler(MPI.ERRORS_RETURN)
    made.Set_name(f"rankwise {context.name}"[: MPI.MAX_OBJECT_NAME - 1])
    return made


def _part(comm: MPI.Intracomm, ranks: Sequence[int], tag: int) -> MPI.Intracomm:
    """Make a communicator of some ranks of another; only these call."""
    group = comm.Get_group().Incl(ranks)
    made = comm.Create_group(group, tag)
    group.Free()
    return made


def _of_survivors(here: Process, context: Context, ranks: Sequence[int], dead: AbstractSet[int]) -> MPI.Intracomm:
    """Make a communicator of some ranks of MPI, of which some others have died.

    Open MPI makes none from one that has dead members. One of all that are left needs all of these, so it is made where
    they are the members, and kept for smaller groups.
    """
    if here.left is None or not dead.isdisjoint(here.left[1]):
        if {*ranks, *dead} != {*range(here.size)}:
            return _of_processes(ranks, f"{life_of(context.store)}/{context.name}")
        base = here.base(context.timeout_s)
        left = MPI.Intracomm(base.Shrink())
        left.Set_errhandler(MPI.ERRORS_RETURN)
        here.left = left, list(MPI.Group.Translate_ranks(left.Get_group(), None, base.Get_group()))
    comm, members = here.left
    for name, rank in zip(context.global_ranks, ranks, strict=True):
        if rank not in members:
            raise PeerDiedError(name, here.host_of(rank), f"noticed in {_what(context)}")
    return _part(comm, [members.index(rank) for rank in ranks], 0)


def _of_processes(ranks: Sequence[int], name: str) -> MPI.Intracomm:
    """Make a communicator of some ranks of MPI, which alone call; others may have died.

    Args:
        ranks: They.
        name: What no other group is called that any of them makes.
    """
    world = MPI.COMM_WORLD.Get_group()
    group = world.Incl(ranks)
    made = MPI.Intracomm.Create_from_group(group, hashlib.blake2b(name.encode(), digest_size=16).hexdigest())
    group.Free()
    world.Free()
    return made


def _after_deaths(parent: LiveGroup, ranks: Sequence[int]) -> MPI.Intracomm:
    """Make a communicator where others may have died: all that has dead members is useless, except to be shrunk."""
    members = ranks_in_mpi(parent.context)
    if parent.failure is None:
        return _part(parent.mpi, [members.index(rank) for rank in ranks], 0)
    left = MPI.Intracomm(parent.mpi.Shrink())
    theirs = MPI.Group.Translate_ranks(left.Get_group(), None, parent.mpi.Get_group())
    survivors = [members[rank] for rank in theirs]
    if survivors == list(ranks):
        return left
    made = _part(left, [survivors.index(rank) for rank in ranks], 0)
    left.Free()
    return made


def _tag(context: Context) -> int:
    """Return a tag that keeps groups apart that are made at the same time by different threads."""
    return sum(context.name.encode()) % 32_000


def _what(context: Context) -> str:
    return f"making group {context.name!r}"
