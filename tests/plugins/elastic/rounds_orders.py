"""All orders of steps of a job, without those that differ in nothing that matters.

Of the orders that `rounds_model.successors` has, these are left out:

- A step that commutes with all that others may do is taken at once: to look at an epoch that is decided, to begin one
  whose group is made, to go on after an attempt that failed, to leave an epoch that another has left. Others see of it
  only that the process may arrive at the next epoch, which is a step of its own.
- To look and to decide is one step. Whatever others do between the two they could do after it: where somebody else has
  decided meanwhile, that stays as it is.
- The members of an epoch come to make its group in one step; they need not try the network where it never parts.

States that differ only in the names of processes are one, and so are those that differ in what nobody will ask for.
`test_orders.py` compares what is left with all orders.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import cache

from rounds_model import NOBODY, Job, Process, accidents, born, gone, has_reason, meeting, regrouped, step

from rankwise_elastic.rounds import Arrival, Wishes

#: How many steps that commute may follow each other; all processes of a job together take some twenty.
_QUIET = 1000
#: An epoch's members.
Members = tuple[str, ...]


def explore(
    job: Job,
    wishes: Wishes,
    epochs: int,
    check: Callable[[Job], None],
    may_hurry: bool = True,
    most: int = 10**9,
) -> int:
    """Visit every state within reach, up to so many epochs that are decided; return how many there are.

    Args:
        job: The first state.
        wishes: What world the processes want.
        epochs: Nothing follows a state in which so many are decided.
        check: Raises if a state is wrong.
        may_hurry: Whether a process may lose patience.
        most: How many states there may be.
    """
    first = rested(job, wishes)
    seen, ahead = {hash(first)}, [first]  # states would not fit in memory; among a million, two hashes hardly ever meet
    while ahead:
        assert len(seen) <= most, f"more than {most} states"
        state = ahead.pop()
        check(state)
        if len(state.decided) >= epochs and state.decided[epochs - 1] is not None:
            continue
        for after in _successors(state, wishes, may_hurry):
            after = rested(after, wishes)
            if (key := hash(after)) not in seen:
                seen.add(key)
                ahead.append(after)
    return len(seen)


def rested(job: Job, wishes: Wishes) -> Job:
    """Return a job once every step is taken that commutes with all others, without names and what is over."""
    for _ in range(_QUIET):
        after = _one_quiet_step(job, wishes)
        if after is None:
            return _renamed(_without_what_is_over(job))
        job = after
    raise AssertionError(f"there is no end of steps that commute: {job}")


# ---------------------------------------------------------------------- which steps are taken when


def _successors(job: Job, wishes: Wishes, may_hurry: bool) -> Iterator[Job]:
    """Yield what comes of all steps that commute with some others only."""
    yield from (after for _, after in accidents(job))
    for name, process in job.processes:
        if process.mode == "unborn":
            yield born(job, name, process)
        elif process.mode == "seeking":
            yield from _sought(job, name, process, wishes, may_hurry)
        elif process.mode == "meeting":
            yield from _met(job, name, process)
        elif process.mode == "in" and has_reason(job, process, wishes):
            yield regrouped(job, name, process)


def _met(job: Job, name: str, process: Process) -> Iterator[Job]:
    """Yield what a process may do that makes a group with others."""
    members = job.decided[process.last - 1] or ()
    if job.trouble or job.outcome[process.last - 1]:
        yield from (after for _, after in meeting(job, name, process))
        return
    if _all_meet(job, process.last, members) and name == members[0]:
        yield _made(job, members)
    if any(gone(job)(each) for each in members if each != name):
        yield _failed(job, name, process)


def _sought(job: Job, name: str, process: Process, wishes: Wishes, may_hurry: bool) -> Iterator[Job]:
    """Yield what a process may do that seeks an epoch."""
    found: list[Job] = []
    for is_patient in (True, False)[: 1 + may_hurry]:
        after = step(job, name, process, wishes, is_patient)
        now = dict(after.processes)[name]
        if now.seeker.choice:  # which it writes at once
            after = step(after, name, now, wishes, is_patient)
        if after != job and after not in found:
            found.append(after)
    if job.budget.retries and job.down and process.seeker.apart_from:
        spent = job._replace(budget=job.budget._replace(retries=job.budget.retries - 1))
        found.append(step(spent, name, process, wishes, True, is_bold=True))
    yield from found


def _one_quiet_step(job: Job, wishes: Wishes) -> Job | None:
    """Return the job after a step that commutes with all that others may do; None if there is none."""
    is_settled = not (job.budget.parts or job.budget.heals)
    for name, process in job.processes:
        if process.mode == "seeking":
            decided, stand = _decided(job, process.seeker.epoch), process.seeker
            is_member = decided is not None and name in decided
            if is_member or (
                not job.trouble and (decided is not None or not (stand.has_arrived or stand.is_to_arrive))
            ):
                return step(job, name, process, wishes, True)
        elif process.mode == "meeting":
            outcome = job.outcome[process.last - 1]
            if outcome == "failed" or (outcome == "made" and not job.budget.hiccups):
                return next(after for _, after in meeting(job, name, process))
        elif process.mode == "in" and (is_settled or not job.trouble) and has_reason(job, process, wishes):
            return regrouped(job, name, process)
    return None


def _all_meet(job: Job, epoch: int, members: Members) -> bool:
    return all(
        process.mode == "meeting" and process.last == epoch for name, process in job.processes if name in members
    )


def _made(job: Job, members: Members) -> Job:
    """Have all members come to make their group."""
    for name in members:
        if not job.outcome[dict(job.processes)[name].last - 1]:
            job = next(after for _, after in meeting(job, name, dict(job.processes)[name]))
    return job


def _failed(job: Job, name: str, process: Process) -> Job:
    """Have one come that finds another gone."""
    for _ in ("come", "miss"):
        if not job.outcome[process.last - 1]:
            job = next(after for _, after in meeting(job, name, process))
    return job


def _decided(job: Job, epoch: int) -> Members | None:
    return job.decided[epoch - 1] if epoch <= len(job.decided) else None


# ---------------------------------------------------------------------- which states are one


def _without_what_is_over(job: Job) -> Job:
    """Return a job without what nobody will ask for: of the dead, of epochs that are decided, and of doubts."""
    processes = [(name, Process("dead") if each.mode == "dead" else each) for name, each in job.processes]
    arrived = job.arrived
    if not job.trouble:  # then nobody is missed, and who doubts has no need to
        arrived = tuple(tuple(each._replace(doubts=False, missed=NOBODY) for each in there) for there in arrived)
        processes = [(name, _without_doubts(each)) for name, each in processes]
    arrived = tuple(
        there if now is None else tuple(sorted(there, key=lambda each: each.process))
        for there, now in zip(arrived, job.decided, strict=True)
    )
    came, heard = job.came, job.heard
    is_over = [bool(outcome) for outcome in job.outcome]
    came = tuple(NOBODY if over else there for over, there in zip(is_over, came, strict=True))
    awaiting = {each.last for _, each in processes if each.mode == "meeting"}
    heard = tuple(there if epoch in awaiting else frozenset() for epoch, there in enumerate(heard, 1))
    return job._replace(processes=tuple(processes), arrived=arrived, came=came, heard=heard)


def _without_doubts(process: Process) -> Process:
    stand = process.seeker._replace(doubts=False, missed=NOBODY, apart_from=NOBODY)
    return process._replace(seeker=stand, doubters=NOBODY)


def _renamed(job: Job) -> Job:
    """Return a job whose processes that are alike are called in the order of what they have done."""
    names: dict[str, str] = {}
    traces = {name: _trace(job, name, process) for name, process in job.processes}
    for alike in _alike("".join(traces), job.trouble):
        names |= zip(sorted(alike, key=lambda name: (traces[name], name)), alike, strict=True)
    if all(old == new for old, new in names.items()):
        return job

    def some(those: frozenset[str]) -> frozenset[str]:
        return frozenset(names[each] for each in those) if those else those

    def of_one(process: Process) -> Process:
        stand = process.seeker
        stand = stand._replace(missed=some(stand.missed), apart_from=some(stand.apart_from))
        stand = stand._replace(choice=tuple(names[each] for each in stand.choice))
        return process._replace(seeker=stand, doubters=some(process.doubters))

    def of_there(there: tuple[Arrival, ...], is_decided: bool) -> tuple[Arrival, ...]:
        renamed = [each._replace(process=names[each.process], missed=some(each.missed)) for each in there]
        return tuple(sorted(renamed, key=lambda each: each.process) if is_decided else renamed)

    processes = dict(sorted((names[name], of_one(process)) for name, process in job.processes))
    return job._replace(
        processes=tuple((name, processes[name]) for name, _ in job.processes),
        arrived=tuple(of_there(*each) for each in zip(job.arrived, map(bool, job.decided), strict=True)),
        decided=tuple(now and tuple(names[each] for each in now) for now in job.decided),
        came=tuple(map(some, job.came)),
        heard=tuple(frozenset((names[name], some(missed)) for name, missed in there) for there in job.heard),
    )


def _trace(job: Job, name: str, process: Process) -> tuple[object, ...]:
    """Return what a process has done that tells it from others, whatever they are called."""
    stand = process.seeker
    lists = [
        [each.process for each in there] if now is None else now
        for there, now in zip(job.arrived, job.decided, strict=True)
    ]
    places = [each.index(name) if name in each else -1 for each in lists]
    said = [
        [(each.stood, each.doubts, len(each.missed)) for each in there if each.process == name] for there in job.arrived
    ]
    came = [name in there for there in job.came]
    ends = (process.mode, process.last, process.stood, process.is_suspected)
    return (*ends, stand.epoch, stand.is_to_arrive, stand.has_arrived, stand.doubts, *places, said, came)


@cache
def _alike(names: str, trouble: frozenset[str]) -> list[str]:
    """Return the names in parts, within which they may change places without another network."""
    parts: list[str] = []
    for name in names:
        for index, part in enumerate(parts):
            swap = str.maketrans({part[0]: name, name: part[0]})
            if {link.translate(swap) for link in trouble} == trouble:
                parts[index] += name
                break
        else:
            parts.append(name)
    return parts
