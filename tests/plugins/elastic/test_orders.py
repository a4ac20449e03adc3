"""Every order of steps of four and five processes, within bounds; what is left out of them; and mistakes."""

from __future__ import annotations

import pytest
import rounds_model
from all_orders import Bound, visit
from rounds_model import Budget, Job, began, successors
from rounds_orders import explore
from test_rounds import mistaken

from rankwise_elastic.rounds import Wishes

#: What takes 20 s in all; `all_orders.py` has more.
SOON = [
    Bound("abcd", Budget(deaths=1)),
    Bound("abcd", Budget(deaths=3), epochs=2),
    Bound("abcd", Budget(suspicions=1), epochs=2),
    Bound("abcd", Budget(hiccups=1), epochs=2),
    Bound("ab", Budget(), unborn="cd", epochs=2),
    Bound("abcd", Budget(deaths=1, suspicions=1), has_begun=True),
    Bound("ab", Budget(deaths=1, hiccups=1), unborn="cd", most=2, has_begun=True),
    Bound("abcd", Budget(parts=1), trouble="ad bd cd", has_begun=True, may_hurry=False),
    Bound("abcd", Budget(parts=1), trouble="ac ad bc bd", has_begun=True, may_hurry=False),
    Bound("abc", Budget(parts=1), unborn="d", trouble="ad", has_begun=True, may_hurry=False),
    Bound("abcde", Budget(deaths=1), has_begun=True),
    Bound("abc", Budget(deaths=1), unborn="de", epochs=2, has_begun=True),
]
#: Jobs whose orders are all visited for comparison.
COMPARED = [
    ("ab", "", "", Budget(deaths=1), Wishes(first=2), 3),
    ("ab", "", "", Budget(deaths=1, suspicions=1), Wishes(first=2), 2),
    ("a", "b", "", Budget(deaths=1, hiccups=1), Wishes(), 3),
    ("a", "b", "", Budget(suspicions=1, hiccups=1), Wishes(), 2),
    ("ab", "c", "", Budget(), Wishes(first=2), 2),
    ("ab", "c", "", Budget(), Wishes(first=2, most=2), 2),
    ("ab", "", "ab ba", Budget(parts=1, heals=1), Wishes(first=2), 3),
    ("a", "b", "ab", Budget(parts=1, heals=1, retries=1), Wishes(), 3),
]


@pytest.mark.parametrize("bound", SOON, ids=str)
def test_every_order_of_four_processes_and_more_ends_in_one_world(bound: Bound) -> None:
    assert visit(bound) > 300


@pytest.mark.parametrize(("names", "unborn", "trouble", "budget", "wishes", "epochs"), COMPARED, ids=str)
def test_orders_that_are_left_out_decide_nothing_else(
    names: str, unborn: str, trouble: str, budget: Budget, wishes: Wishes, epochs: int
) -> None:
    job = began(names, unborn, budget, trouble)
    some: set[object] = set()
    count = explore(job, wishes, epochs, lambda state: some.add(what_was_decided(state)))
    everything, states = all_orders(job, wishes, epochs)
    assert some == everything
    assert count < states / 2


def all_orders(job: Job, wishes: Wishes, epochs: int) -> tuple[set[object], int]:
    """Return what may be decided if all orders are visited, and how many states these have."""
    seen, ahead = {job}, [job]
    found: set[object] = set()
    while ahead:
        state = ahead.pop()
        found.add(what_was_decided(state))
        if len(state.decided) >= epochs and state.decided[epochs - 1] is not None:
            continue
        for _, after in successors(state, wishes):
            if after not in seen:
                seen.add(after)
                ahead.append(after)
    return found, len(seen)


def what_was_decided(job: Job) -> object:
    """Return the members of all epochs, who are called in the order in which they appear there."""
    names: dict[str, int] = {}
    return tuple(now and tuple(names.setdefault(name, len(names)) for name in now) for now in job.decided)


_WORKING = Bound("ab", Budget(), unborn="c", has_begun=True)
_PARTED = Bound("abc", Budget(parts=1), trouble="ac", has_begun=True, may_hurry=False)
#: Which job shows a mistake of `test_rounds.MISTAKES`; the others need longer orders, such as that test draws.
SHOWN = {
    "newcomers decide": _WORKING,
    "nobody is waited for": _WORKING,
    "newcomers stand first": _WORKING,
    "the next epoch is not tried": _WORKING,
    "an epoch without work is waited for": Bound("ab", Budget(deaths=1, hiccups=1)),
    "too few are enough": Bound("abc", Budget(deaths=2), least=2, has_begun=True),
    "too many are let in": Bound("ab", Budget(), unborn="c", most=2, epochs=2),
    "one without the work begins it from nothing": Bound("a", Budget(suspicions=1), unborn="bcd", has_begun=True),
    "the silent are given up": Bound("a", Budget(suspicions=1), unborn="bcd", has_begun=True),
    "nobody heeds who misses whom": _PARTED,
    "to be heard in one direction is enough": _PARTED,
    "the network is not tried": _PARTED,
    "who is left out does not hold back": _PARTED,
    "the work done counts for nothing": Bound("a", Budget(parts=1), "bc", "ab ac", has_begun=True, may_hurry=False),
    "too few wait for ever": Bound("ab", Budget(parts=1, heals=1), trouble="ab ba", least=2, has_begun=True),
}


@pytest.mark.parametrize("mistake", SHOWN)
def test_mistakes_are_noticed_in_every_order(mistake: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rounds_model, "Seeker", mistaken(mistake))
    with pytest.raises(AssertionError):
        visit(SHOWN[mistake], every=1)
