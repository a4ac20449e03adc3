"""A job whose processes step through the protocol of `rankwise_elastic.rounds` in any order, die, pause and join.

A state is a value, so that all states within reach may be visited. Making a group is one attempt for each epoch: it is
made once all members have come, or has failed as somebody has noticed that one is gone.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import NamedTuple

from rankwise_elastic.rounds import Agreed, Seeker, Seen, Wishes

__all__ = ["Board", "Budget", "Job", "Process", "began", "settled", "successors", "violations"]


class Process(NamedTuple):
    """One process.

    Attributes:
        mode: "unborn", "seeking", "meeting", "in", or "dead".
        last: The epoch that it was in last, or that it is in.
        seeker: Where its seeker stands: its epoch, whether it is about to arrive, whether it has, and what it is about
            to decide.
        is_suspected: Whether the others take it for gone, as it has been silent for long.
    """

    mode: str = "unborn"
    last: int = 0
    seeker: tuple[int, bool, bool, tuple[str, ...]] = (1, False, False, ())
    is_suspected: bool = False


class Budget(NamedTuple):
    """How often what may still happen: deaths, false suspicions, and attempts that end well for some only."""

    deaths: int = 0
    suspicions: int = 0
    hiccups: int = 0


#: Nothing more goes wrong.
NOTHING = Budget()


class Job(NamedTuple):
    """All there is: processes by name, what the store says of each epoch, and the attempts to make its group."""

    processes: tuple[tuple[str, Process], ...]
    arrived: tuple[tuple[str, ...], ...] = ()
    decided: tuple[tuple[str, ...] | None, ...] = ()
    came: tuple[frozenset[str], ...] = ()
    outcome: tuple[str, ...] = ()
    budget: Budget = NOTHING


class Board:
    """The store of a job; see `rankwise_elastic.rounds.Board`."""

    def __init__(self, job: Job) -> None:
        self.arrived, self.decided = dict(enumerate(job.arrived, 1)), dict(enumerate(job.decided, 1))

    def look(self, epoch: int) -> Seen:
        return Seen(self.decided.get(epoch), self.arrived.get(epoch, ()), self.decided.get(epoch - 1) or ())

    def arrive(self, epoch: int, process: str) -> None:
        self.arrived[epoch] = (*self.arrived.get(epoch, ()), process)

    def decide(self, epoch: int, members: tuple[str, ...]) -> None:
        if self.decided.get(epoch) is None:
            self.decided[epoch] = members

    def onto(self, job: Job) -> Job:
        """Return the job with this store."""
        count = max([0, *self.arrived, *self.decided])
        epochs = range(1, count + 1)
        return job._replace(
            arrived=tuple(self.arrived.get(epoch, ()) for epoch in epochs),
            decided=tuple(self.decided.get(epoch) for epoch in epochs),
            came=job.came + (frozenset(),) * (count - len(job.came)),
            outcome=job.outcome + ("",) * (count - len(job.outcome)),
        )


def began(names: str, unborn: str = "", budget: Budget = NOTHING) -> Job:
    """Return a job at its beginning: each letter is a process."""
    born = [(name, Process("seeking")) for name in names]
    return Job(tuple(born + [(name, Process()) for name in unborn]), budget=budget)


def successors(job: Job, wishes: Wishes) -> Iterator[tuple[str, Job]]:
    """Yield all that may happen next, with a word for it."""
    for name, process in job.processes:
        if process.mode == "unborn":
            latest = max((epoch for epoch, how in enumerate(job.outcome, 1) if how == "made"), default=0)
            yield f"{name} is born", _with(job, name, _seeking(process, latest))
        elif process.mode == "seeking":
            for is_patient in (True, False):
                yield f"{name} steps{'' if is_patient else ' in haste'}", _step(job, name, process, wishes, is_patient)
        elif process.mode == "meeting":
            yield from _meeting(job, name, process)
        elif process.mode == "in" and _has_reason(job, process, wishes):
            yield f"{name} regroups", _with(job, name, _seeking(process, process.last))
        if process.mode not in ("unborn", "dead"):
            if job.budget.deaths:
                spent = job._replace(budget=job.budget._replace(deaths=job.budget.deaths - 1))
                yield f"{name} dies", _with(spent, name, process._replace(mode="dead"))
            if job.budget.suspicions and not process.is_suspected:
                spent = job._replace(budget=job.budget._replace(suspicions=job.budget.suspicions - 1))
                yield f"{name} falls silent", _with(spent, name, process._replace(is_suspected=True))


def violations(job: Job, wishes: Wishes) -> Iterator[str]:
    """Yield what must never be."""
    for epoch, members in enumerate(job.decided, 1):
        if members is None:
            continue
        if len(set(members)) != len(members) or not wishes.least <= len(members) <= (wishes.most or len(members)):
            yield f"epoch {epoch} has the members {members}"
        if not set(members) <= set(job.arrived[epoch - 1]):
            yield f"epoch {epoch} has members that never came: {members}"
        before = (job.decided[epoch - 2] if epoch > 1 else None) or ()
        kept = [name for name in before if name in members]
        if list(members[: len(kept)]) != kept:
            yield f"the survivors of {before} stand in another order in {members}"
    for name, process in job.processes:
        if process.mode in ("in", "meeting") and name not in (job.decided[process.last - 1] or ()):
            yield f"{name} is in epoch {process.last}, of {job.decided[process.last - 1]}"


def settled(job: Job, wishes: Wishes) -> Job:
    """Return how it comes out if nothing more goes wrong and every process gets its turn.

    A process is in haste only when nobody can do anything else, as its patience is far longer than any step.
    """
    job = job._replace(budget=NOTHING)
    for name, process in job.processes:
        job = _with(job, name, process._replace(is_suspected=False))
    for _ in range(400):
        ahead = job
        for is_patient in (True, False):
            for name, _ in job.processes:
                ahead = _turn(ahead, name, wishes, is_patient)
            if ahead != job:
                break
        if ahead == job:
            return job
        job = ahead
    raise AssertionError(f"it never comes to rest: {job}")


# ---------------------------------------------------------------------- what one process does


def _turn(job: Job, name: str, wishes: Wishes, is_patient: bool) -> Job:
    process = dict(job.processes)[name]
    if process.mode == "seeking":
        return _step(job, name, process, wishes, is_patient)
    if process.mode == "meeting":
        return next((after for _, after in _meeting(job, name, process)), job)
    if process.mode == "in" and _has_reason(job, process, wishes):
        return _with(job, name, _seeking(process, process.last))
    return job


def _step(job: Job, name: str, process: Process, wishes: Wishes, is_patient: bool) -> Job:
    seeker = Seeker(name, 0, wishes)
    seeker.epoch, seeker.is_to_arrive, seeker.has_arrived, seeker.choice = process.seeker
    board = Board(job)
    agreed = seeker.step(board, _gone(job), is_patient)
    stands = seeker.epoch, seeker.is_to_arrive, seeker.has_arrived, seeker.choice
    after = board.onto(job)
    if agreed is None:
        return _with(after, name, Process("seeking", process.last, stands))
    assert agreed == Agreed(seeker.epoch, after.decided[seeker.epoch - 1] or ())
    return _with(after, name, Process("meeting", agreed.epoch))


def _meeting(job: Job, name: str, process: Process) -> Iterator[tuple[str, Job]]:
    """Yield what a process may do that makes the group of an epoch with the others."""
    epoch, members = process.last, job.decided[process.last - 1] or ()
    if job.outcome[epoch - 1] == "made":
        yield f"{name} begins epoch {epoch}", _with(job, name, Process("in", epoch))
        if job.budget.hiccups:
            spent = job._replace(budget=job.budget._replace(hiccups=job.budget.hiccups - 1))
            yield f"{name} fails alone", _with(spent, name, _seeking(process, epoch))
    elif job.outcome[epoch - 1] == "failed":
        yield f"{name} fails", _with(job, name, _seeking(process, epoch))
    elif name not in job.came[epoch - 1]:
        came = job.came[epoch - 1] | {name}
        after = job._replace(came=_put(job.came, epoch, came))
        if came == set(members):
            after = after._replace(outcome=_put(after.outcome, epoch, "made"))
        yield f"{name} comes to make epoch {epoch}", _with(after, name, process._replace(is_suspected=False))
    elif any(_gone(job)(member) for member in members if member != name):
        yield f"{name} misses one", job._replace(outcome=_put(job.outcome, epoch, "failed"))


def _has_reason(job: Job, process: Process, wishes: Wishes) -> bool:
    """Tell whether a process that is at work has a reason to regroup: a member is not with it, or somebody waits."""
    members, processes = job.decided[process.last - 1] or (), dict(job.processes)
    parted = any(processes[member].mode == "dead" or _beyond(processes[member], process.last) for member in members)
    has_room = wishes.most is None or len(members) < wishes.most
    return parted or (has_room and len(job.arrived) > process.last and bool(job.arrived[process.last]))


def _beyond(process: Process, epoch: int) -> bool:
    return process.last > epoch or (process.mode == "seeking" and process.last >= epoch)


def _gone(job: Job) -> Callable[[str], bool]:
    processes = dict(job.processes)
    return lambda name: processes[name].mode == "dead" or processes[name].is_suspected


def _seeking(process: Process, last: int) -> Process:
    return Process("seeking", last, (last + 1, False, False, ()))


def _put(values: tuple, epoch: int, value: object) -> tuple:
    return (*values[: epoch - 1], value, *values[epoch:])


def _with(job: Job, name: str, process: Process) -> Job:
    return job._replace(processes=tuple((each, process if each == name else old) for each, old in job.processes))
