"""How a group gets communicators of its own."""

from __future__ import annotations

from collections.abc import Sequence

from mpi4py import MPI

from rankwise.backends import Communicator, Context, Deadline, DebugLevel, PrefixStore, Store, get_debug_level
from rankwise_mpi.checked import CheckedCommunicator
from rankwise_mpi.collectives.entry_barrier import open_entry_barrier
from rankwise_mpi.communicator import MpiCommunicator
from rankwise_mpi.group.pages import Pages
from rankwise_mpi.library.failures import translate
from rankwise_mpi.process.process import LiveGroup, Process, process

__all__ = ["create"]


def create(context: Context) -> Communicator:
    """Make the communicator of one group; only its members call.

    Raises:
        ValueError: MPI knows this process by another rank.
    """
    context.options_as(type(None))
    here = process()
    here.check_thread()
    if context.global_ranks[context.rank] != here.rank:
        raise ValueError(
            f"{_what(context)}: this process is called rank {context.global_ranks[context.rank]} there, but is rank "
            f"{here.rank} of MPI; give ProcessGroup.create the members' ranks in MPI as `ranks`"
        )
    deadline = Deadline(context.timeout_s)
    try:
        here.base(deadline.remaining())
        with here.assembled(context.name, _life(context.store), context.global_ranks, deadline, context.look):
            first = _first(here, context, deadline)
        pages = Pages(first, lambda comm: here.duplicate(comm, deadline.remaining(), _what(context)))
        entry = None
        if here.may_share_memory(context.global_ranks):
            entry = open_entry_barrier(first, deadline, here.first_looks, here.keep)
    except MPI.Exception as error:
        raise translate(error, _what(context)) from error
    if get_debug_level() is DebugLevel.DETAIL:
        return CheckedCommunicator(context, here, pages, entry)
    made = MpiCommunicator(context, here, pages, entry)
    made.shorten()
    return made


def _first(here: Process, context: Context, deadline: Deadline) -> MPI.Intracomm:
    base = here.base(deadline.remaining())
    ranks = context.global_ranks
    survivors = here.find(ranks) if here.survives_deaths else None
    if survivors is not None:
        made = _after_deaths(survivors, ranks)
    elif ranks == tuple(range(base.size)):
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


def _after_deaths(parent: LiveGroup, ranks: Sequence[int]) -> MPI.Intracomm:
    """Make a communicator where others may have died: all that has dead members is useless, except to be shrunk."""
    members = parent.context.global_ranks
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


def _life(store: Store | None) -> str:
    """Return what tells the life of a world from others whose groups have the same names: where its store is."""
    place = []
    while isinstance(store, PrefixStore):
        place.append(store.prefix)
        store = store.underlying_store
    served: bytes = getattr(store, "identity", b"")
    return "/".join((served.hex(), *reversed(place)))


def _tag(context: Context) -> int:
    """Return a tag that keeps groups apart that are made at the same time by different threads."""
    return sum(context.name.encode()) % 32_000


def _what(context: Context) -> str:
    return f"making group {context.name!r}"
