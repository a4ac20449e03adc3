"""The protocol of epochs in every order of steps, with deaths, pauses and joins between any two; and mistakes in it."""

from __future__ import annotations

import os
import random
from pathlib import Path
from typing import Any

import pytest
import rounds_model
from rounds_model import Budget, Job, began, settled, successors, violations

from rankwise_elastic import rounds
from rankwise_elastic.rounds import Wishes


def explore(job: Job, wishes: Wishes, most: int = 10**6, epochs: int = 3, every: int = 1) -> int:
    """Visit every state within reach, up to some epoch; of each so many see that it comes to rest well."""
    seen, ahead = {job}, [job]
    for visited in range(most):
        if not ahead:
            return visited
        state = ahead.pop()
        found = [*violations(state, wishes)]
        assert not found, (found, state)
        if visited % every == 0:
            assert_well(settled(state, wishes), wishes)
        if len(state.decided) >= epochs:
            continue
        for _, after in successors(state, wishes):
            if after not in seen:
                seen.add(after)
                ahead.append(after)
    raise AssertionError(f"more than {most} states")


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
    assert explore(began(names, unborn, budget), wishes, every=5) > 100_000


@pytest.mark.parametrize("seed", range(8))
def test_so_do_random_orders_of_more_processes(seed: int) -> None:
    walk(seed, 60)


def walk(seed: int, times: int) -> None:
    """Have up to eight processes step in random orders."""
    draw = random.Random(seed)
    for _ in range(times):
        born = draw.randint(2, 5)
        wishes = Wishes(least=draw.choice([1, 1, 2]), most=draw.choice([None, None, 3]), first=born)
        budget = Budget(draw.randint(0, 3), draw.randint(0, 2), draw.randint(0, 2))
        job = began("abcde"[:born], "vwx"[: draw.randint(0, 3)], budget)
        for _ in range(draw.randint(5, 120)):
            after = [*successors(job, wishes)]
            if not after:
                break
            job = draw.choice(after)[1]
            found = [*violations(job, wishes)]
            assert not found, (found, job)
        assert_well(settled(job, wishes), wishes)


def test_a_newcomer_never_decides_while_members_live(monkeypatch: pytest.MonkeyPatch) -> None:
    """As they may be at work, and would find themselves in a world of their own."""
    store = Wishes(first=2)
    job = settled(began("ab", "c"), store)
    (newcomer,) = [after for what, after in successors(job, store) if what == "c is born"]
    for _ in range(50):
        (newcomer,) = [after for what, after in successors(newcomer, store) if what == "c steps in haste"]
    assert dict(newcomer.processes)["c"].mode == "seeking"
    assert newcomer.decided == (("a", "b"), None)


#: Mistakes that might be made, each as words of the protocol and what stands there instead.
MISTAKES = {
    "newcomers decide": ("awaited and (is_patient or self.process not in seen.before)", "awaited and is_patient"),
    "nobody is waited for": ("if awaited and (is_patient", "if False and (is_patient"),
    "newcomers stand first": (
        "members = (*survivors, *(process",
        "members = (*survivors[1:], *survivors[:1], *(process",
    ),
    "the next epoch is not tried": (
        "self._try(self.epoch + 1)\n            elif",
        "self._try(self.epoch)\n            elif",
    ),
    "too few are enough": ("if len(members) >= self.wishes.least and", "if"),
    "too many are let in": ("[: self.wishes.most]", ""),
}


@pytest.mark.parametrize("mistake", MISTAKES)
def test_mistakes_are_noticed(mistake: str, monkeypatch: pytest.MonkeyPatch) -> None:
    right, wrong = MISTAKES[mistake]
    source = Path(rounds.__file__).read_text()
    assert source.count(right) == 1
    mistaken: dict[str, Any] = {"__name__": "mistaken"}
    exec(compile(source.replace(right, wrong), "mistaken.py", "exec"), mistaken)
    monkeypatch.setattr(rounds_model, "Seeker", mistaken["Seeker"])
    with pytest.raises(AssertionError):
        everything_small()


def everything_small() -> None:
    for seed in range(8):
        walk(seed, 60)
    for names, unborn, budget, wishes in SMALL:
        explore(began(names, unborn, budget), wishes, every=5)
