"""`regroup`: the next epoch of a job, with a default group that its members can use."""

from __future__ import annotations

import time
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, NamedTuple
from weakref import WeakKeyDictionary

import rankwise as dist
from rankwise.errors import DistError, DistStoreError, PeerDiedError
from rankwise_elastic.agreeing import Finished, Search
from rankwise_elastic.board import Pulse, StoreBoard, where
from rankwise_elastic.rounds import Agreed, Seeker, Wishes
from rankwise_elastic.trial import NotHeardError, tried

__all__ = ["Epoch", "Finished", "Gone", "Newcomer", "finish", "is_awaited", "job_of", "leave", "regroup", "remake"]

#: How long one attempt to make the group may take; another follows.
_ATTEMPT_S = 10.0


class Gone(NamedTuple):
    """A member of the epoch before that is not in this one.

    Attributes:
        rank: Its rank in the epoch before.
        where: Its host and process.
        why: How it ended, as far as it is known.
    """

    rank: int
    where: str
    why: str


class Newcomer(NamedTuple):
    """A member that was not in the epoch before.

    Attributes:
        rank: Its rank.
        where: Its host and process.
    """

    rank: int
    where: str


@dataclass(frozen=True)
class Epoch:
    """One membership of a job.

    Attributes:
        number: It counts up; no two worlds of a job have the same. Some are skipped where an attempt fails.
        rank: This process's rank.
        size: How many members there are.
        left: Who of the members before is gone.
        joined: Who has come.
    """

    number: int
    rank: int
    size: int
    left: tuple[Gone, ...]
    joined: tuple[Newcomer, ...]

    def __str__(self) -> str:
        gone = "".join(f"; rank {each.rank} ({each.where}) left: {each.why}" for each in self.left)
        came = "".join(f"; rank {each.rank} ({each.where}) joined" for each in self.joined)
        return f"epoch {self.number}: rank {self.rank} of {self.size}{gone}{came}"


#: Before the first epoch.
_NONE = Agreed(0, ())


@dataclass(eq=False)
class Job:
    """What a process knows of the job that it is in."""

    store: dist.Store
    process: str
    pulse: Pulse
    #: The epoch that it was in last.
    last: Agreed = _NONE
    #: The last epoch in which it had what the job has done: with a `State` it has that once it has synchronised.
    stood: int = 0
    has_state: bool = False
    #: Who stood where in the epochs that this process was in, by the names of these configurations.
    history: dict[str, tuple[str, ...]] = field(default_factory=dict)


_jobs: WeakKeyDictionary[dist.ProcessGroup, Job] = WeakKeyDictionary()


def job_of(group: dist.ProcessGroup | None = None) -> Job:
    """Return the job of a default group that can be reconfigured.

    Raises:
        ValueError: It cannot, or there is none.
    """
    found = dist.group.WORLD if group is None else group
    handle = dist.get_reconfigure_handle(found)
    assert found is not None
    job = _jobs.get(found)
    if job is None:
        store = dist.PrefixStore("elastic", found.world.place.store)
        job = _jobs[found] = Job(store, handle, Pulse(store, handle))
        found.world.place.on_end.append(job.pulse.stop)
    return job


def regroup(
    min_size: int = 1, max_size: int | None = None, wait_s: float = 30.0, timeout: float | None = None
) -> Epoch:
    """Enter the next epoch of the job, and return once the default group is that of its members.

    Survivors call this after a call has failed, or when they learn that somebody wants to join; newcomers call it once
    they have begun. Survivors keep their order, newcomers follow in the order in which they came. A member that dies
    meanwhile, or before the group is made, only starts the next attempt. If the network has parted, the larger part of
    the last epoch goes on, and the others wait until they are heard again.

    Args:
        min_size: How many members there must be.
        max_size: How many there may be; who is beyond that waits for a later epoch.
        wait_s: How long members of the epoch before that live are waited for, where they do not come; they may
            join later. Ranks that alone have what the job has done are waited for longer, until they are dead or silent
            for this long and 6 s. In the first epoch this is how long the ranks that the launcher started are awaited.
        timeout: How long all of this may take, in seconds; None for the group's time-out.

    Returns:
        What the epoch is.

    Raises:
        ValueError: The default group was not made with `enable_reconfigure=True`, or the sizes contradict each other.
        Finished: This process is a newcomer, and the ranks have come to the end of the job and are gone.
        DistTimeoutError: No such world came together in time, or one began without this process, as they do not hear
            each other.
        DistStoreError, DistNetworkError: The job's store is gone or out of reach, so that nobody can agree.

    Examples:
        >>> dist.init_process_group("gloo", enable_reconfigure=True)
        >>> print(dist.elastic.regroup())
        epoch 1: rank 0 of 1; rank 0 (...) joined
        >>> dist.destroy_process_group()
    """
    if min_size < 1 or (max_size is not None and max_size < min_size):
        raise ValueError(f"regroup: there is no size from {min_size} to {max_size}")
    job, group = job_of(), dist.group.WORLD
    assert group is not None
    doubts = _note_failures(job, group)
    wishes = Wishes(min_size, max_size, group.world.place.size)
    until = time.monotonic() + (group.timeout_s if timeout is None else timeout)
    latest = StoreBoard(job.store).latest()
    search = Search(job.store, job.pulse, not job.last.epoch, wait_s, until)
    seeker = Seeker(job.process, max(job.last.epoch, latest), wishes, job.stood, doubts or latest > job.last.epoch)
    failure: DistError | None = None
    while True:
        agreed = search.agree(seeker, failure)
        failure = _make(job, agreed, max(wait_s, _ATTEMPT_S), until)
        if failure is None:
            return _entered(job, agreed, max_size)
        doubts = doubts or not isinstance(failure, PeerDiedError)
        missed = failure.missed if isinstance(failure, NotHeardError) else frozenset()
        seeker = Seeker(job.process, agreed.epoch, wishes, job.stood, doubts, missed)


def is_awaited() -> bool:
    """Return whether a newcomer waits to be in the next epoch, as far as this rank has heard.

    Ranks learn that within a second or so, and at different moments: a program that regroups for it by itself has all
    ranks agree first, as `State.commit` does.

    Raises:
        ValueError: The default group was not made with `enable_reconfigure=True`.

    Examples:
        >>> dist.init_process_group("gloo", enable_reconfigure=True)
        >>> _ = dist.elastic.regroup()
        >>> dist.elastic.is_awaited()
        False
        >>> dist.destroy_process_group()
    """
    return job_of().pulse.is_awaited


def finish() -> None:
    """Tell processes that come later that this job has come to its end, if the store is still there."""
    with suppress(DistError):
        StoreBoard(job_of().store).note_finished()


def leave() -> None:
    """Leave the job in good order: the others need not wait for this process any more."""
    job_of().pulse.leave()


def remake(group: dist.ProcessGroup) -> dist.ProcessGroup:
    """Make a subgroup of an earlier epoch again, of those of its members that are in this one.

    All of these call this; they keep their order.

    Args:
        group: The subgroup as it was, whose calls raise now.

    Returns:
        A group of the same backend, with the same time-out and description.

    Raises:
        ValueError: The group is of this epoch, or of none in which this process was.

    Examples:
        >>> dist.init_process_group("gloo", enable_reconfigure=True)
        >>> _ = dist.elastic.regroup()
        >>> pair = dist.new_group([0])
        >>> _ = dist.elastic.regroup()
        >>> dist.get_world_size(dist.elastic.remake(pair))
        1
        >>> dist.destroy_process_group()
    """
    job = job_of()
    then = job.history.get(group.configuration)
    if then is None:
        raise ValueError(f"remake: {group!r} is no group of an earlier epoch of this job")
    there = [job.last.members.index(then[rank]) for rank in group.ranks if then[rank] in job.last.members]
    made = dist.new_group(
        there,
        timeout=group.timeout_s,
        backend=group.backend,
        use_local_synchronization=True,
        group_desc=group.group_desc,
        sort_ranks=False,
    )
    assert isinstance(made, dist.ProcessGroup)
    return made


def _uuid(epoch: int) -> str:
    """Return what the configuration of an epoch is called."""
    return f"epoch-{epoch}"


def _make(job: Job, agreed: Agreed, attempt_s: float, until: float) -> DistError | None:
    """Make the group of an epoch; return why that was not possible.

    Raises:
        DistStoreError: The store is gone.
    """
    limit_s = max(0.1, min(attempt_s, until - time.monotonic()))
    others = [process for process in agreed.members if process != job.process]
    work = dist.reconfigure(
        _uuid(agreed.epoch), agreed.members, timeout=limit_s, lost=lambda: job.pulse.gone_among(others)
    )
    try:
        work.wait()
        if agreed.doubters:
            _try_network(job, agreed)
    except DistStoreError:
        raise
    except DistError as error:
        if isinstance(error, PeerDiedError):
            job.pulse.learn(agreed.members[error.rank], error.cause)
        return error
    return None


def _try_network(job: Job, agreed: Agreed) -> None:
    """See that the members hear each other; if not, leave their group without waiting for what was sent."""
    group = dist.group.WORLD
    assert group is not None
    try:
        tried(StoreBoard(job.store), agreed, job.process, lambda process: bool(job.pulse.why_gone(process)))
    except NotHeardError as error:
        group.abort(f"as {error}")
        raise


def _entered(job: Job, agreed: Agreed, max_size: int | None) -> Epoch:
    before = job.last.members or StoreBoard(job.store).decided(agreed.epoch - 1) or ()
    rank = agreed.members.index(job.process)
    record = Epoch(
        agreed.epoch,
        rank,
        len(agreed.members),
        tuple(
            Gone(at, where(process), job.pulse.why_gone(process, fresh=True) or "it did not come in time")
            for at, process in enumerate(before)
            if process not in agreed.members
        ),
        tuple(Newcomer(at, where(process)) for at, process in enumerate(agreed.members) if process not in before),
    )
    job.last = agreed
    if not job.has_state:
        job.stood = agreed.epoch
    job.history[_uuid(agreed.epoch)] = agreed.members
    has_room = max_size is None or len(agreed.members) < max_size
    job.pulse.expect(agreed.epoch + 1 if has_room else 0)
    if rank == 0:
        StoreBoard(job.store).note_made(agreed.epoch)
    return record


def _note_failures(job: Job, group: dist.ProcessGroup) -> bool:
    """Learn which member has ended the group before; return whether something else has, so that the network may have.

    A death says nothing of the network.
    """
    for communicator in group.communicators():
        error: Any = communicator.failure
        if isinstance(error, PeerDiedError) and error.rank < len(job.last.members):
            job.pulse.learn(job.last.members[error.rank], error.cause)
    failures = [each.failure for made in group.world.groups.values() for each in made.communicators()]
    return any(failure is not None and not isinstance(failure, PeerDiedError) for failure in failures)
