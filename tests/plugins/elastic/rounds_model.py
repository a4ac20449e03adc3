"""A job whose processes step through the protocol of `rankwise_elastic.rounds` in any order, die, pause and join.

A state is a value, so that all states within reach may be visited. Making a group is one attempt for each epoch: it is
made once all members have come, or has failed as somebody has noticed that one is gone. If a member doubts the network,
each then says whom it does not hear, and the attempt has failed if that is anybody.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import NamedTuple

from rankwise_elastic.rounds import Arrival, Seeker, Seen, Wishes

NOBODY: frozenset[str] = frozenset()


class Stand(NamedTuple):
    """Where a seeker stands: its attributes."""

    epoch: int = 1
    is_to_arrive: bool = False
    has_arrived: bool = False
    choice: tuple[str, ...] = ()
    doubts: bool = False
    missed: frozenset[str] = NOBODY
    apart_from: frozenset[str] = NOBODY


class Process(NamedTuple):
    """One process.

    Attributes:
        mode: "unborn", "seeking", "meeting", "in", or "dead".
        last: The epoch that it was in last or tried to make, or that it is in.
        seeker: Where its seeker stands.
        stood: The last epoch that began with it.
        doubters: Who doubts the network among those with whom it makes a group.
        is_suspected: Whether the others take it for gone, as it has been silent for long.
    """

    mode: str = "unborn"
    last: int = 0
    seeker: Stand = Stand()
    stood: int = 0
    doubters: frozenset[str] = NOBODY
    is_suspected: bool = False


class Budget(NamedTuple):
    """How often what may still happen.

    Attributes:
        deaths: A process dies.
        suspicions: One is falsely taken for gone.
        hiccups: An attempt ends well for some only.
        parts: The network parts, as the job says.
        heals: It becomes whole.
        retries: One that held back arrives although it is not heard yet.
    """

    deaths: int = 0
    suspicions: int = 0
    hiccups: int = 0
    parts: int = 0
    heals: int = 0
    retries: int = 0


#: Nothing more goes wrong.
NOTHING = Budget()


class Job(NamedTuple):
    """All there is: processes by name, what the store says of each epoch, and the attempts to make its group.

    Attributes:
        heard: Who has tried the network in each attempt, with whom it has missed.
        down: Between whom nothing goes now: from the first to the second of each pair.
        trouble: What `down` is when the network parts.
        done: The last epoch that all its members have begun, so that something may have been committed in it.
        wrong: A step that must never be, in words.
    """

    processes: tuple[tuple[str, Process], ...]
    arrived: tuple[tuple[Arrival, ...], ...] = ()
    decided: tuple[tuple[str, ...] | None, ...] = ()
    came: tuple[frozenset[str], ...] = ()
    outcome: tuple[str, ...] = ()
    heard: tuple[frozenset[tuple[str, frozenset[str]]], ...] = ()
    budget: Budget = NOTHING
    down: frozenset[str] = NOBODY
    trouble: frozenset[str] = NOBODY
    done: int = 0
    wrong: str = ""


class Board:
    """The store of a job; see `rankwise_elastic.rounds.Board`."""

    def __init__(self, job: Job) -> None:
        self._arrived, self._decided = dict(enumerate(job.arrived, 1)), dict(enumerate(job.decided, 1))

    def look(self, epoch: int) -> Seen:
        return Seen(self._decided.get(epoch), self._arrived.get(epoch, ()), self._decided.get(epoch - 1) or ())

    def arrive(self, epoch: int, arrival: Arrival) -> None:
        self._arrived[epoch] = (*self._arrived.get(epoch, ()), arrival)

    def decide(self, epoch: int, members: tuple[str, ...]) -> None:
        if self._decided.get(epoch) is None:
            self._decided[epoch] = members

    def onto(self, job: Job) -> Job:
        """Return the job with this store."""
        count = max([0, *self._arrived, *self._decided])
        epochs = range(1, count + 1)
        return job._replace(
            arrived=tuple(self._arrived.get(epoch, ()) for epoch in epochs),
            decided=tuple(self._decided.get(epoch) for epoch in epochs),
            came=job.came + (frozenset(),) * (count - len(job.came)),
            outcome=job.outcome + ("",) * (count - len(job.outcome)),
            heard=job.heard + (frozenset(),) * (count - len(job.heard)),
        )


def began(names: str, unborn: str = "", budget: Budget = NOTHING, trouble: str = "") -> Job:
    """Return a job at its beginning: each letter is a process, and each word of `trouble` a link that may go down."""
    born = [(name, Process("seeking")) for name in names]
    links = frozenset(trouble.split())
    return Job(tuple(born + [(name, Process()) for name in unborn]), budget=budget, trouble=links)


def successors(job: Job, wishes: Wishes, may_hurry: bool = True) -> Iterator[tuple[str, Job]]:
    """Yield all that may happen next, with a word for it."""
    yield from accidents(job)
    for name, process in job.processes:
        yield from _of_one(job, name, process, wishes, may_hurry)


def accidents(job: Job) -> Iterator[tuple[str, Job]]:
    """Yield what may befall the processes and their network."""
    if job.budget.parts and job.down != job.trouble:
        yield "the network parts", _spend(job, "parts")._replace(down=job.trouble)
    if job.budget.heals and job.down:
        yield "the network is whole", _spend(job, "heals")._replace(down=NOBODY)
    for name, process in job.processes:
        if process.mode not in ("unborn", "dead"):
            if job.budget.deaths:
                yield f"{name} dies", _with(_spend(job, "deaths"), name, process._replace(mode="dead"))
            if job.budget.suspicions and not process.is_suspected:
                silent = process._replace(is_suspected=True)
                yield f"{name} falls silent", _with(_spend(job, "suspicions"), name, silent)
            if process.is_suspected:
                yield f"{name} is heard again", _with(job, name, process._replace(is_suspected=False))


def _of_one(job: Job, name: str, process: Process, wishes: Wishes, may_hurry: bool) -> Iterator[tuple[str, Job]]:
    if process.mode == "unborn":
        yield f"{name} is born", born(job, name, process)
    elif process.mode == "seeking":
        for is_patient in (True, False)[: 1 + may_hurry]:
            yield f"{name} steps{'' if is_patient else ' in haste'}", step(job, name, process, wishes, is_patient)
        if job.budget.retries and _holds_back(job, name, process):
            yield f"{name} tries again", step(_spend(job, "retries"), name, process, wishes, True, is_bold=True)
    elif process.mode == "meeting":
        yield from meeting(job, name, process)
    elif process.mode == "in" and has_reason(job, process, wishes):
        yield f"{name} regroups", regrouped(job, name, process)


def violations(job: Job, wishes: Wishes) -> Iterator[str]:
    """Yield what must never be."""
    for epoch, members in enumerate(job.decided, 1):
        if members is None:
            continue
        if len(set(members)) != len(members) or not wishes.least <= len(members) <= (wishes.most or len(members)):
            yield f"epoch {epoch} has the members {members}"
        if not set(members) <= {each.process for each in job.arrived[epoch - 1]}:
            yield f"epoch {epoch} has members that never came: {members}"
        before = (job.decided[epoch - 2] if epoch > 1 else None) or ()
        kept = [name for name in before if name in members]
        if list(members[: len(kept)]) != kept:
            yield f"the survivors of {before} stand in another order in {members}"
    if job.wrong:
        yield job.wrong
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


def healed(job: Job) -> Job:
    """Return the job once its network is whole."""
    return job._replace(down=NOBODY)


# ---------------------------------------------------------------------- what one process does


def _turn(job: Job, name: str, wishes: Wishes, is_patient: bool) -> Job:
    process = dict(job.processes)[name]
    if process.mode == "seeking":
        return step(job, name, process, wishes, is_patient)
    if process.mode == "meeting":
        return next((after for _, after in meeting(job, name, process)), job)
    if process.mode == "in" and has_reason(job, process, wishes):
        return regrouped(job, name, process)
    return job


def born(job: Job, name: str, process: Process) -> Job:
    """Have a process come to the job."""
    latest = max((epoch for epoch, how in enumerate(job.outcome, 1) if how == "made"), default=0)
    return _with(job, name, _seeking(process, latest, doubts=latest > 0))


def regrouped(job: Job, name: str, process: Process) -> Job:
    """Have a process leave the epoch that it is in."""
    return _with(job, name, _seeking(process, process.last, _is_parted(job, process)))


def step(job: Job, name: str, process: Process, wishes: Wishes, is_patient: bool, is_bold: bool = False) -> Job:
    """Have a process take a step of the protocol."""
    seeker = Seeker(name, 0, wishes, process.stood)
    for attribute, value in process.seeker._asdict().items():
        setattr(seeker, attribute, value)
    board = Board(job)
    holds_back = _holds_back(job, name, process) and not is_bold
    agreed = seeker.step(board, gone(job), _lost(job), is_patient, holds_back)
    stand = Stand(*(getattr(seeker, attribute) for attribute in Stand._fields))
    after = board.onto(job)
    if stand.choice and not process.seeker.choice and (left := _left_by_newcomer(job, name, stand)):
        after = after._replace(wrong=f"{name}, which is new, does not wait for {left}")
    if agreed is None:
        return _with(after, name, process._replace(seeker=stand))
    assert agreed[:2] == (seeker.epoch, after.decided[seeker.epoch - 1] or ())
    meeting = Process("meeting", agreed.epoch, Stand(), process.stood, agreed.doubters, process.is_suspected)
    return _with(after, name, meeting)


def _left_by_newcomer(job: Job, name: str, stand: Stand) -> list[str]:
    """Return which living members of the epoch before a process leaves out that was none of them."""
    before = (job.decided[stand.epoch - 2] if stand.epoch > 1 else None) or ()
    here = {each.process for each in job.arrived[stand.epoch - 1]}
    return [each for each in before if each not in here and name not in before and not gone(job)(each)]


def _holds_back(job: Job, name: str, process: Process) -> bool:
    processes = dict(job.processes)
    living = [each for each in process.seeker.apart_from if processes[each].mode != "dead"]
    return any(f"{name}{each}" in job.down or f"{each}{name}" in job.down for each in living)


def meeting(job: Job, name: str, process: Process) -> Iterator[tuple[str, Job]]:
    """Yield what a process may do that makes the group of an epoch with the others."""
    epoch, members = process.last, job.decided[process.last - 1] or ()
    heard = dict(job.heard[epoch - 1])
    missed = heard.get(name, NOBODY)
    if job.outcome[epoch - 1] == "made":
        yield f"{name} begins epoch {epoch}", _begun(job, name, process)
        if job.budget.hiccups:
            yield f"{name} fails alone", _with(_spend(job, "hiccups"), name, _seeking(process, epoch, missed=missed))
    elif job.outcome[epoch - 1] == "failed":
        yield f"{name} fails", _with(job, name, _seeking(process, epoch, bool(process.doubters), missed))
    elif name not in job.came[epoch - 1]:
        came = job.came[epoch - 1] | {name}
        after = job._replace(came=_put(job.came, epoch, came))
        if came == set(members) and not process.doubters:
            after = _made(after, epoch)
        yield f"{name} comes to make epoch {epoch}", after
    elif any(gone(job)(member) for member in members if member != name):
        yield f"{name} misses one", job._replace(outcome=_put(job.outcome, epoch, "failed"))
    elif process.doubters and name not in heard and job.came[epoch - 1] == set(members):
        yield f"{name} tries the network", _tried(job, name, process, members)


def _tried(job: Job, name: str, process: Process, members: tuple[str, ...]) -> Job:
    """Have a process say whom it does not hear; the last that does so has the verdict."""
    epoch = process.last
    tried = [each for each in members if each != name and process.doubters & {name, each}]
    missed = frozenset(each for each in tried if f"{each}{name}" in job.down)
    heard = job.heard[epoch - 1] | {(name, missed)}
    after = job._replace(heard=_put(job.heard, epoch, heard))
    if len(heard) < len(members):
        return after
    if any(missed for _, missed in heard):
        return after._replace(outcome=_put(after.outcome, epoch, "failed"))
    return _made(after, epoch)


def _made(job: Job, epoch: int) -> Job:
    """Have the group of an epoch made; note if its members lack something that was done, and that somebody has."""
    members = job.decided[epoch - 1] or ()
    has_it = [name for name, process in job.processes if process.mode != "dead" and process.stood >= job.done]
    job = job._replace(outcome=_put(job.outcome, epoch, "made"))
    if has_it and {*has_it}.isdisjoint(members):
        return job._replace(wrong=f"epoch {epoch} of {members} has lost what {has_it} have")
    return job


def _begun(job: Job, name: str, process: Process) -> Job:
    """Have a process begin an epoch whose group is made."""
    epoch = process.last
    job = _with(job, name, Process("in", epoch, Stand(), epoch, is_suspected=process.is_suspected))
    members = job.decided[epoch - 1] or ()
    have_all_begun = all(each.stood == epoch for other, each in job.processes if other in members)
    return job._replace(done=max(job.done, epoch)) if have_all_begun else job


def has_reason(job: Job, process: Process, wishes: Wishes) -> bool:
    """Tell whether a process that is at work has a reason to regroup: a member is not with it, or somebody waits."""
    members, processes = job.decided[process.last - 1] or (), dict(job.processes)
    left = any(processes[member].mode == "dead" or _beyond(processes[member], process.last) for member in members)
    has_room = wishes.most is None or len(members) < wishes.most
    is_awaited = has_room and len(job.arrived) > process.last and bool(job.arrived[process.last])
    return left or is_awaited or _is_parted(job, process)


def _is_parted(job: Job, process: Process) -> bool:
    """Tell whether members of a world do not reach each other."""
    members = job.decided[process.last - 1] or ()
    return any(link[0] in members and link[1] in members for link in job.down)


def _beyond(process: Process, epoch: int) -> bool:
    return process.last > epoch or (process.mode == "seeking" and process.last >= epoch)


def gone(job: Job) -> Callable[[str], bool]:
    """Return what tells whether a process is taken for gone."""
    processes = dict(job.processes)
    return lambda name: processes[name].mode == "dead" or processes[name].is_suspected


def _lost(job: Job) -> Callable[[str], bool]:
    processes = dict(job.processes)
    return lambda name: processes[name].mode == "dead"


def _seeking(process: Process, last: int, doubts: bool = False, missed: frozenset[str] = NOBODY) -> Process:
    stand = Stand(last + 1, doubts=doubts, missed=missed)
    return Process("seeking", last, stand, process.stood, is_suspected=process.is_suspected)


def _spend(job: Job, what: str) -> Job:
    return job._replace(budget=job.budget._replace(**{what: getattr(job.budget, what) - 1}))


def _put(values: tuple, epoch: int, value: object) -> tuple:
    return (*values[: epoch - 1], value, *values[epoch:])


def _with(job: Job, name: str, process: Process) -> Job:
    return job._replace(processes=tuple((each, process if each == name else old) for each, old in job.processes))
