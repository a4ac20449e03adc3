"""The protocol of epochs in every order of steps, with deaths, pauses and joins between any two; and mistakes in it."""

from __future__ import annotations

import os
import random
from pathlib import Path
from typing import Any

import pytest
import rounds_model
from rounds_model import Board, Budget, Job, Process, began, healed, settled, successors, violations

from rankwise_elastic import rounds
from rankwise_elastic.rounds import Arrival, Seeker, Wishes, together


def explore(
    job: Job, wishes: Wishes, most: int = 10**6, epochs: int = 3, every: int = 1, may_hurry: bool = True
) -> int:
    """Visit every state within reach, up to some epoch; of each so many see that it comes to rest well."""
    seen, ahead = {job}, [job]
    for visited in range(most):
        if not ahead:
            return visited
        state = ahead.pop()
        found = [*violations(state, wishes)]
        assert not found, (found, state)
        if visited % every == 0:
            assert_comes_to_rest(state, wishes)
        if len(state.decided) >= epochs:
            continue
        for _, after in successors(state, wishes, may_hurry):
            if after not in seen:
                seen.add(after)
                ahead.append(after)
    raise AssertionError(f"more than {most} states")


def assert_comes_to_rest(job: Job, wishes: Wishes) -> None:
    """See that all comes out well as the network is now, and once it is whole."""
    if job.down and wishes == wishes._replace(least=1, most=None):  # else they try again until it is whole
        job = settled(job, wishes)
        assert_parted_well(job)
    assert_well(settled(healed(job), wishes), wishes)


def assert_parted_well(job: Job) -> None:
    """See that there is one world, whose members reach each other, and that nobody else could be in it."""
    alive = {name: process for name, process in job.processes if process.mode not in ("unborn", "dead")}
    at_work = {name for name, process in alive.items() if process.mode == "in"}
    assert len({alive[name].last for name in at_work}) == (1 if alive else 0), f"they are apart: {job}"
    for name in alive:
        parted = {each for each in at_work if {f"{name}{each}", f"{each}{name}"} & job.down}
        assert bool(parted) == (name not in at_work), f"{name} is parted from {parted}: {job}"


def assert_well(job: Job, wishes: Wishes) -> None:
    """See that all who live are in one world, or wait for more if they are too few."""
    alive = {name: process for name, process in job.processes if process.mode not in ("unborn", "dead")}
    if len(alive) < wishes.least:
        assert not any(
            process.mode == "in" and len(job.decided[process.last - 1] or ()) < wishes.least
            for process in alive.values()
        )
        return
    at_work = {process.last for process in alive.values() if process.mode == "in"}
    assert len(at_work) == 1, f"they are apart: {job}"
    (epoch,) = at_work
    members = job.decided[epoch - 1] or ()
    assert job.outcome[epoch - 1] == "made"
    if wishes.most is None:
        assert set(members) == set(alive), f"epoch {epoch} of {members}: {job}"
    else:
        assert len(members) == min(len(alive), wishes.most)


SMALL = [
    ("ab", "", Budget(deaths=1, suspicions=1), Wishes(first=2)),
    ("a", "b", Budget(deaths=1, suspicions=1, hiccups=1), Wishes()),
    ("ab", "c", Budget(), Wishes(first=2)),
    ("ab", "c", Budget(), Wishes(first=2, most=2)),
    ("a", "bc", Budget(), Wishes()),
]
#: Likewise, with links that go down: from the first to the second process of each word.
PARTED_SMALL = [
    ("ab", "", "ab ba", Budget(parts=1, heals=1), Wishes(first=2)),
    ("ab", "", "ab", Budget(parts=1, heals=1), Wishes(first=2)),
    ("ab", "", "ba", Budget(parts=1, heals=1), Wishes(first=2, least=2)),
    ("a", "b", "ab ba", Budget(parts=1, heals=1, retries=1), Wishes()),
]
PARTED_LARGE = [
    ("abc", "", "ca cb", Budget(parts=1), Wishes(first=3)),
    ("ab", "", "ab ba", Budget(parts=2, heals=1, deaths=1), Wishes(first=2)),
    ("ab", "", "ab", Budget(parts=1, heals=1, suspicions=1, retries=1), Wishes(first=2)),
    ("abc", "", "ba cb", Budget(parts=1, heals=1), Wishes(first=3)),
    ("ab", "c", "ac bc", Budget(parts=1, heals=1), Wishes(first=2)),
    ("ab", "c", "ab", Budget(parts=1), Wishes(first=2, least=2)),
]
LARGE = [
    ("ab", "c", Budget(deaths=1), Wishes(first=2)),
    ("ab", "c", Budget(suspicions=1), Wishes(first=2)),
    ("ab", "c", Budget(hiccups=1), Wishes(first=2)),
    ("abc", "", Budget(deaths=1), Wishes(first=3)),
    ("abc", "", Budget(deaths=2), Wishes(first=3, least=2)),
]


@pytest.mark.parametrize(("names", "unborn", "budget", "wishes"), SMALL, ids=str)
def test_every_order_of_steps_ends_in_one_world(names: str, unborn: str, budget: Budget, wishes: Wishes) -> None:
    assert explore(began(names, unborn, budget), wishes, every=5) > 1000


@pytest.mark.skipif(not os.environ.get("RANKWISE_TEST_LARGE"), reason="takes minutes; set RANKWISE_TEST_LARGE=1")
@pytest.mark.parametrize(("names", "unborn", "budget", "wishes"), LARGE, ids=str)
def test_so_does_every_order_of_more(names: str, unborn: str, budget: Budget, wishes: Wishes) -> None:
    assert explore(began(names, unborn, budget), wishes, every=5, most=10**7) > 100_000


@pytest.mark.parametrize(("names", "unborn", "trouble", "budget", "wishes"), PARTED_SMALL, ids=str)
def test_a_network_that_parts_leaves_one_world(
    names: str, unborn: str, trouble: str, budget: Budget, wishes: Wishes
) -> None:
    assert explore(began(names, unborn, budget, trouble), wishes, epochs=4, every=5) > 1000


@pytest.mark.skipif(not os.environ.get("RANKWISE_TEST_LARGE"), reason="takes minutes; set RANKWISE_TEST_LARGE=1")
@pytest.mark.parametrize(("names", "unborn", "trouble", "budget", "wishes"), PARTED_LARGE, ids=str)
def test_so_does_one_of_more(names: str, unborn: str, trouble: str, budget: Budget, wishes: Wishes) -> None:
    assert explore(began(names, unborn, budget, trouble), wishes, every=25, most=10**7) > 10_000


@pytest.mark.parametrize("seed", range(8))
def test_so_do_random_orders_of_more_processes(seed: int) -> None:
    walk(seed, 60)


@pytest.mark.parametrize("seed", range(8))
def test_so_do_random_orders_in_a_network_that_parts(seed: int) -> None:
    walk(seed, 60, is_parted=True)


def walk(seed: int, times: int, is_parted: bool = False) -> None:
    """Have up to eight processes step in random orders."""
    draw = random.Random(seed)
    for _ in range(times):
        born = draw.randint(2, 5)
        names, unborn = "abcde"[:born], "vwx"[: draw.randint(0, 3)]
        wishes = Wishes(least=draw.choice([1, 1, 2]), most=draw.choice([None, None, 3]), first=born)
        is_certain = is_parted and draw.random() < 0.5  # nobody is taken for gone that lives, and none is hasty
        budget = Budget(draw.randint(0, 3), 0 if is_certain else draw.randint(0, 2), draw.randint(0, 2))
        if is_parted:
            budget = budget._replace(parts=draw.randint(1, 2), heals=draw.randint(0, 2), retries=draw.randint(0, 2))
        job = began(names, unborn, budget, links(draw, names + unborn) if is_parted else "")
        for _ in range(draw.randint(5, 120)):
            after = [*successors(job, wishes, may_hurry=not is_certain)]
            if not after:
                break
            before, job = job, draw.choice(after)[1]
            found = [*violations(job, wishes)]
            assert not found, (found, job)
            assert not is_certain or keeps_what_was_done(before, job), job
        assert_comes_to_rest(job, wishes)


def links(draw: random.Random, names: str) -> str:
    """Return which links go down: between two parts, or a few in one direction each."""
    if draw.random() < 0.6:
        here = set(draw.sample(names, draw.randint(1, len(names) - 1)))
        return " ".join(a + b for a in names for b in names if (a in here) != (b in here))
    return " ".join("".join(draw.sample(names, 2)) for _ in range(draw.randint(1, 4)))


def keeps_what_was_done(before: Job, after: Job) -> bool:
    """Tell whether an epoch that has begun has a member of the last that had begun before, if any of these lives."""
    living = {name: process.stood for name, process in before.processes if process.mode not in ("unborn", "dead")}
    newest = max(living.values(), default=0)
    for epoch in range(1, len(after.outcome) + 1):
        if after.outcome[epoch - 1] == "made" and before.outcome[epoch - 1 : epoch] != ("made",):
            return newest == max(living[name] for name in after.decided[epoch - 1] or () if name in living)
    return True


def arrivals(names: str, apart: str = "", veterans: str = "") -> list[Arrival]:
    """Return what processes say of which each first one of a word misses the second."""
    missed = {name: frozenset(word[1] for word in apart.split() if word[0] == name) for name in names}
    return [Arrival(name, int(name in veterans), missed=missed[name]) for name in names]


@pytest.mark.parametrize(
    ("apart", "veterans", "kept"),
    [
        pytest.param("", "", "abcde", id="all hear each other"),
        pytest.param("ad ae bd be cd ce", "", "abc", id="the larger part"),
        pytest.param("ac ad ae bc bd be", "", "cde", id="the larger part though it stands later"),
        pytest.param("ac ad ae bc bd be", "ab", "ab", id="who has what the job has done"),
        pytest.param("ac ad ae bc bd be", "abcde", "cde", id="the majority of the last epoch"),
        pytest.param("ac ad bc bd ea eb ec ed", "", "ab", id="the lowest of equal parts"),
        pytest.param("cb", "", "abde", id="one direction is enough to part two"),
        pytest.param("ba bc bd be", "", "acde", id="one that hears nobody"),
        pytest.param("ax ay", "", "abcde", id="who is not there is missed by nobody"),
    ],
)
def test_the_rule_keeps(apart: str, veterans: str, kept: str) -> None:
    assert "".join(together("abcde", arrivals("abcde", apart, veterans))) == kept


def test_a_newcomer_never_decides_while_members_live(monkeypatch: pytest.MonkeyPatch) -> None:
    """As they may be at work, and would find themselves in a world of their own."""
    store = Wishes(first=2)
    job = settled(began("ab", "c"), store)
    (newcomer,) = [after for what, after in successors(job, store) if what == "c is born"]
    for _ in range(50):
        (newcomer,) = [after for what, after in successors(newcomer, store) if what == "c steps in haste"]
    assert dict(newcomer.processes)["c"].mode == "seeking"
    assert newcomer.decided == (("a", "b"), None)


def test_a_newcomer_whose_attempt_failed_does_not_begin_the_job_again() -> None:
    """Though it was decided to be in the last epoch, and the older members live, are silent and do not come."""
    wishes = Wishes(first=2)
    job = settled(began("ab"), wishes)._replace(budget=Budget(hiccups=1, suspicions=2))
    job = job._replace(processes=(*job.processes, ("c", Process())))
    job = after(job, wishes, "c is born", *["c steps"] * 2, *(["a regroups", "b regroups"]))
    job = after(job, wishes, *["a steps", "b steps"] * 2, *["a steps"] * 3, "b steps", "c steps")
    come = [f"{name} comes to make epoch 2" for name in "abc"]
    job = after(job, wishes, *come, *[f"{name} tries the network" for name in "abc"])
    job = after(
        job, wishes, "c fails alone", "a begins epoch 2", "b begins epoch 2", "a falls silent", "b falls silent"
    )
    job = after(job, wishes, *["c steps in haste"] * 20)
    assert job.decided == (("a", "b"), ("a", "b", "c"), None)


def after(job: Job, wishes: Wishes, *words: str) -> Job:
    """Return the job once all of this has happened."""
    for word in words:
        job = dict(successors(job, wishes))[word]
    return job


def test_who_has_the_work_is_let_in_before_members_that_have_not() -> None:
    """The last attempt was to be made of `a`, which is dead, and `c`, which is new; `b` comes late."""
    processes = (("a", Process("dead")), ("b", Process()), ("c", Process()), ("d", Process()))
    arrived = (arrivals("ab"), arrivals("ac", veterans="a"), arrivals("cdb", veterans="b"))
    job = Job(processes, tuple(map(tuple, arrived)), (("a", "b"), ("a", "c"), None))
    seeker = Seeker("c", 2, Wishes(most=2))
    seeker.has_arrived = True
    seeker.step(Board(job), "a".__eq__, "a".__eq__, is_patient=True)
    assert seeker.choice == ("c", "b")


def test_nobody_waits_for_one_that_has_said_that_it_did_nothing() -> None:
    """`a` was alone in the first epoch, but never began it, as it said when it arrived at the second."""
    processes = tuple((name, Process()) for name in "abc")
    arrived = (arrivals("a"), arrivals("abc"), arrivals("bc"), arrivals("bc"))
    job = Job(processes, tuple(map(tuple, arrived)), (("a",), ("a", "b", "c"), ("b", "c"), None))
    seeker = Seeker("b", 3, Wishes())
    seeker.has_arrived = True
    seeker.step(Board(job), lambda _: False, lambda _: False, is_patient=True)
    assert (seeker.choice, seeker.ahead) == (("b", "c"), frozenset())


#: Mistakes that might be made, each as words of the protocol and what stands there instead.
MISTAKES = {
    "newcomers decide": ("awaited and (is_patient or self.process not in seen.before)", "awaited and is_patient"),
    "nobody is waited for": ("if awaited and (is_patient", "if False and (is_patient"),
    "newcomers stand first": (
        "all_here = *survivors, *(process",
        "all_here = *survivors[1:], *survivors[:1], *(process",
    ),
    "the next epoch is not tried": ("self._try(self.epoch + 1)", "self._try(self.epoch)"),
    "too few are enough": ("if len(members) >= self.wishes.least and", "if"),
    "too many are let in": (")[:most]", ")"),
    "one without the work begins it from nothing": ("() if self.ahead else choice", "choice"),
    "an epoch without work is waited for": ("was_idle = any(", "was_idle = False and any("),
    "the silent are given up": ("if not is_lost(each)", "if False"),
    "nobody heeds who misses whom": ("members = together(all_here, arrived)", "members = all_here"),
    "to be heard in one direction is enough": ("apart.setdefault(missed, set()).add(each.process)", "pass"),
    "the work done counts for nothing": ("(len(part & veterans), len(part))", "(0, len(part))"),
    "too few wait for ever": ("if len(members) < self.wishes.least and not is_patient:", "if False:"),
    "who is left out does not hold back": ("self.is_to_arrive = not holds_back", "self.is_to_arrive = True"),
    "who is left out never comes back": ("self.apart_from &= frozenset(seen.decided or ())", "pass"),
    "the network is not tried": ("each.process for each in seen.arrived if each.doubts", ""),
}


@pytest.mark.parametrize("mistake", MISTAKES)
def test_mistakes_are_noticed(mistake: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rounds_model, "Seeker", mistaken(mistake))
    with pytest.raises(AssertionError):
        everything_small()


def mistaken(mistake: str) -> type[Seeker]:
    """Return a `Seeker` that makes a mistake."""
    right, wrong = MISTAKES[mistake]
    source = Path(rounds.__file__).read_text()
    assert source.count(right) == 1
    made: dict[str, Any] = {"__name__": "mistaken"}
    exec(compile(source.replace(right, wrong), "mistaken.py", "exec"), made)
    return made["Seeker"]


def everything_small() -> None:
    for seed in range(8):
        walk(seed, 60)
        walk(seed, 60, is_parted=True)
    for names, unborn, budget, wishes in SMALL:
        explore(began(names, unborn, budget), wishes, every=5)
    for names, unborn, trouble, budget, wishes in PARTED_SMALL:
        explore(began(names, unborn, budget, trouble), wishes, epochs=4, every=5)
