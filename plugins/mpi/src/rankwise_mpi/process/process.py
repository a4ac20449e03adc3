"""MPI in this process: initialised once, by whom, at which thread level, and how it ends."""

from __future__ import annotations

import os
import threading
import weakref
from typing import TYPE_CHECKING, Any, Protocol

from rankwise.backends import Context, Deadline, PrefixStore, Store
from rankwise.errors import DistBackendError, DistError, DistTimeoutError, GroupAbortedError
from rankwise_mpi.library import ulfm
from rankwise_mpi.library.launchers import check_world
from rankwise_mpi.library.requests import Testable
from rankwise_mpi.process.beginning import begin
from rankwise_mpi.process.engine import Engine
from rankwise_mpi.process.kept import Kept
from rankwise_mpi.process.leaving import leave_at_exit
from rankwise_mpi.process.retired import Retired
from rankwise_mpi.process.waiting import FIRST_LOOKS, LOOKS, SHARED_FIRST_LOOKS, SHARED_LOOKS, wait_until

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from contextlib import AbstractContextManager

    from mpi4py import MPI

    from rankwise_mpi.process.assembly import Assembly
    from rankwise_mpi.process.base import Base, Steps

#: How long the other ranks may take to initialise MPI where no time-out is known.
_INIT_S = 1800.0


class LiveGroup(Protocol):
    """A group of this process, as the process sees it."""

    context: Context
    size: int
    failure: DistError | None

    @property
    def mpi(self) -> MPI.Intracomm:
        """The communicator of MPI that its collectives run on."""

    def let_go(self, error: DistError) -> None:
        """End what is pending here, and call MPI no more."""


class Process:
    """What all groups of this process have in common. Made by `process`.

    Args:
        timeout_s: How long the other ranks may take to initialise MPI.
    """

    def __init__(self, timeout_s: float) -> None:
        mpi, self.initialised_here = begin(timeout_s)
        self._mpi = mpi
        self.library: str = mpi.Get_library_version()
        self.is_openmpi = "Open MPI" in self.library
        level = mpi.Query_thread()
        #: Whether any thread may call MPI at any time.
        self.multiple = level == mpi.THREAD_MULTIPLE
        self._any_thread = level >= mpi.THREAD_SERIALIZED
        self._thread = threading.get_ident()
        #: Whether this process goes on when another one dies.
        self.survives_deaths = ulfm.job_survives_deaths()
        self.rank: int = mpi.COMM_WORLD.rank
        self.size: int = mpi.COMM_WORLD.size
        check_world(self.size, self.library, os.environ)
        self.engine = Engine()
        self._kept = Kept()
        #: The communicators of configurations that the default group was reconfigured from.
        self.retired = Retired()
        #: After deaths, a communicator of all that lived at some moment, and what they are called in MPI.
        self.left: tuple[MPI.Intracomm, list[int]] | None = None
        #: How often to look for the end of an operation before giving way to others, and before anything else.
        self.looks, self.first_looks = LOOKS, FIRST_LOOKS
        #: Whether there are more ranks on this host than cores.
        self.shares_cores = False
        self._steps: Steps[Base] | None = None
        self._base: MPI.Intracomm | None = None
        self._assembly: Assembly | None = None
        self._making = threading.Lock()
        self._job = ""
        self._near: frozenset[int] = frozenset()
        self._hosts: Sequence[str] = ()
        self._last_tasks: list[Callable[[], object]] = []
        self._live: weakref.WeakSet[LiveGroup] = weakref.WeakSet()
        # MPI_Finalize begins by deleting the attributes of MPI_COMM_SELF: the moment to let go, in any case.
        keyval = mpi.Comm.Create_keyval(delete_fn=lambda *_: self.let_go())
        mpi.COMM_SELF.Set_attr(keyval, self)
        leave_at_exit(self)

    def base(self, timeout_s: float) -> MPI.Intracomm:
        """Return our duplicate of `MPI_COMM_WORLD`, from which all groups are made; the first time, all ranks call.

        Raises:
            DistTimeoutError: Not all ranks have called; the next attempt goes on from there.
        """
        with self._making:
            if self._base is None:
                from rankwise_mpi.process.assembly import Assembly
                from rankwise_mpi.process.base import Steps, base_steps

                if self._steps is None:
                    self._steps = Steps(base_steps(), f"init_process_group on rank {self.rank}")
                made = self._steps.finish(timeout_s)
                _duplicate_mpi4pys(self._mpi.COMM_WORLD)
                self._job, self._near, self._hosts = made.job, made.near, made.hosts
                if len(self._near) > (os.cpu_count() or 1):
                    self.shares_cores = True
                    self.looks, self.first_looks = SHARED_LOOKS, SHARED_FIRST_LOOKS
                self._assembly = Assembly(made.comm, self.keep, self._known_dead)
                self._base = made.comm
            return self._base

    def job(self, timeout_s: float) -> str:
        """Return what tells the processes of this job from all others, once all have called `base` or this."""
        self.base(timeout_s)
        return self._job

    def assembled(
        self, context: Context, ranks: Sequence[int], deadline: Deadline
    ) -> AbstractContextManager[frozenset[int]]:
        """Return a context that is entered once all members of a group have come to make it; see `Assembly.of`."""
        assert self._assembly is not None
        life = life_of(context.store)
        return self._assembly.of(context.name, life, ranks, deadline, context.look, context.global_ranks)

    def _known_dead(self) -> Sequence[int]:
        return ulfm.failed_ranks(self._base) if self.survives_deaths and self._base is not None else ()

    def duplicate(self, comm: MPI.Intracomm, timeout_s: float, what: str) -> MPI.Intracomm:
        """Return a duplicate of a communicator whose errors are exceptions.

        Raises:
            DistTimeoutError: Not all its ranks have called.
        """
        made, request = comm.Idup()
        try:
            if not wait_until(request.Test, timeout_s, lambda: None):
                raise DistTimeoutError(
                    f"{what} on rank {self.rank}: not all of {comm.size} ranks came within {timeout_s:g} s"
                )
        except BaseException:
            self.keep(request, made)
            raise
        made.Set_errhandler(self._mpi.ERRORS_RETURN)
        return made

    def may_share_memory(self, ranks: Sequence[int]) -> bool:
        """Tell whether several ranks are all on this host, and a death among them is the launcher's business."""
        return len(ranks) > 1 and self._near.issuperset(ranks) and not self.survives_deaths

    def keep(self, request: Testable | None, buffers: Any) -> None:
        """Keep what MPI may still read or write although nobody waits for it, until it has ended."""
        self._kept.add(request, buffers)

    @property
    def kept(self) -> int:
        """How many requests have not ended although nobody waits for them any more."""
        return len(self._kept)

    def may_call(self) -> bool:
        """Tell whether this thread may call MPI now, whatever others are doing."""
        mine = self.multiple or threading.get_ident() == self._thread
        return mine and not self._mpi.Is_finalized()

    def enter(self, group: LiveGroup) -> None:
        """Let a group know when MPI is finalised."""
        self._live.add(group)

    def leave(self, group: LiveGroup) -> None:
        """Forget a group that has been closed."""
        self._live.discard(group)

    def find(self, ranks: Sequence[int]) -> LiveGroup | None:
        """Return the best group to make one of `ranks` from: whole rather than failed, small rather than large."""
        around = [one for one in list(self._live) if set(ranks) <= set(ranks_in_mpi(one.context))]
        return min(around, key=lambda one: (one.failure is not None, one.size), default=None)

    def before_finalising(self, task: Callable[[], object]) -> None:
        """Run `task` when MPI is about to be finalised, with the progress thread still running."""
        self._last_tasks.append(task)

    def let_go(self) -> None:
        """Do what is left to do before MPI is finalised, and call it no more."""
        tasks, self._last_tasks = self._last_tasks, []
        for task in tasks:
            task()
        self.engine.stop()
        error = GroupAbortedError("MPI has been finalised; call destroy_process_group before that")
        for group in list(self._live):
            group.let_go(error)

    def check_thread(self) -> None:
        """Raise if this thread must not call MPI at all."""
        if not self._any_thread and threading.get_ident() != self._thread:
            raise DistBackendError(
                "MPI was initialised for calls from one thread only; initialise it with MPI_THREAD_MULTIPLE "
                "(RANKWISE_MPI_THREADS=multiple, or mpi4py.rc.thread_level) to call from several"
            )

    def who_died(self, comm: MPI.Intracomm, context: Context) -> tuple[int, str] | None:
        """Return global rank and host of a member of a group that has died, if that is known of one."""
        if not self.survives_deaths:
            return None
        gone, ranks = ulfm.failed_ranks(comm), ranks_in_mpi(context)
        if not gone:
            gone = [ranks.index(rank) for rank in self._known_dead() if rank in ranks]
        return (context.global_ranks[gone[0]], self.host_of(ranks[gone[0]])) if gone else None

    def host_of(self, rank: int) -> str:
        """Return the host of a rank of MPI."""
        return self._hosts[rank] if rank < len(self._hosts) else "an unknown host"

    def finalise(self) -> None:
        """Finalise MPI if it was initialised here; if not, leave that to the code that did."""
        if self._mpi.Is_finalized():
            return
        self.let_go()
        if self.initialised_here:
            self._mpi.Finalize()


def life_of(store: Store | None) -> str:
    """Return what tells the life of a world from others whose groups have the same names: where its store is."""
    place = []
    while isinstance(store, PrefixStore):
        place.append(store.prefix)
        store = store.underlying_store
    served: bytes = getattr(store, "identity", b"")
    return "/".join((served.hex(), *reversed(place)))


def ranks_in_mpi(context: Context) -> tuple[int, ...]:
    """Return the ranks of a group's members in `MPI_COMM_WORLD`; in a reconfigured group they have other names."""
    return context.runtime_ranks or context.global_ranks


def _duplicate_mpi4pys(world: MPI.Intracomm) -> None:
    """Have mpi4py make, now that all ranks are here, the duplicate that its lower-case collectives travel on.

    In the first of them it holds the interpreter until all ranks have come, so that on rank 0 no thread would serve the
    store, which other ranks may need before they come.
    """
    world.allreduce(0)


_process: list[Process] = []
_making = threading.Lock()


def process(timeout_s: float = _INIT_S) -> Process:
    """Return MPI in this process, initialising it if nobody has.

    Args:
        timeout_s: How long the other ranks may take to initialise MPI; the process is ended after that.

    Raises:
        DistBackendError: It cannot be used: finalised already, or started by another library's launcher.
    """
    with _making:
        if not _process:
            _process.append(Process(timeout_s))
        return _process[0]
