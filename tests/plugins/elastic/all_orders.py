"""Visit all orders of steps of elastic jobs of four and five processes, in half an hour; print how many.

    python tests/plugins/elastic/all_orders.py
    python tests/plugins/elastic/all_orders.py 3 8  # the fourth to the eighth

Each line is a job: which processes begin it and which come to it, what may go wrong at any moment, how many epochs are
decided, and in how many states, apart from those that differ in nothing that matters, all was well.
"""

from __future__ import annotations

import sys
import time
from typing import NamedTuple

from rounds_model import Budget, Job, began, settled, violations
from rounds_orders import explore
from test_rounds import assert_comes_to_rest

from rankwise_elastic.rounds import Wishes

#: Of how many states one is followed until all has come to rest.
_EVERY = 25


class Bound(NamedTuple):
    """A job, and what may happen to it.

    Attributes:
        names: The processes that begin it.
        budget: What may go wrong.
        unborn: The processes that come later.
        trouble: The links that go down when the network parts, as `rounds_model.began` has it.
        least: As `Wishes` has it.
        most: As `Wishes` has it.
        epochs: How many epochs are decided.
        has_begun: Whether those that begin it are in the first epoch already.
        may_hurry: Whether a process may lose patience at any moment.
    """

    names: str
    budget: Budget
    unborn: str = ""
    trouble: str = ""
    least: int = 1
    most: int | None = None
    epochs: int = 3
    has_begun: bool = False
    may_hurry: bool = True

    def __str__(self) -> str:
        wrong = ", ".join(f"{what}: {count}" for what, count in self.budget._asdict().items() if count)
        parts = [f"{self.names}+{self.unborn}" if self.unborn else self.names, wrong or "nothing goes wrong"]
        parts += [f"links {self.trouble}"] * bool(self.trouble)
        parts += [f"at least {self.least}"] * (self.least > 1) + [f"at most {self.most}"] * bool(self.most)
        parts += ["in the first epoch"] * self.has_begun + ["nobody loses patience"] * (not self.may_hurry)
        return "; ".join([*parts, f"{self.epochs} epochs"])


FOUR = [
    Bound("abcd", Budget(deaths=3)),
    Bound("abcd", Budget(deaths=2), least=2),
    Bound("abcd", Budget(suspicions=1)),
    Bound("abcd", Budget(hiccups=1)),
    Bound("abc", Budget(deaths=2), unborn="d"),
    Bound("ab", Budget(deaths=1), unborn="cd"),
    Bound("ab", Budget(deaths=1, hiccups=1), unborn="cd", most=2),
    Bound("abcd", Budget(deaths=2, suspicions=1), has_begun=True),
    Bound("abc", Budget(deaths=1, suspicions=1), unborn="d", has_begun=True),
    Bound("abcd", Budget(parts=1), trouble="ab", has_begun=True),
    Bound("abcd", Budget(parts=1), trouble="ad bd cd", has_begun=True),
    Bound("abcd", Budget(parts=1), trouble="ac ad bc bd", has_begun=True),
    Bound("abc", Budget(parts=1), unborn="d", trouble="ad", has_begun=True),
    Bound("abcd", Budget(deaths=1, parts=1, heals=1), trouble="ab", has_begun=True, may_hurry=False),
]
FIVE = [
    Bound("abcde", Budget(deaths=2), has_begun=True),
    Bound("abcde", Budget(deaths=1, suspicions=1), epochs=2, has_begun=True),
    Bound("abcd", Budget(deaths=1), unborn="e", has_begun=True),
    Bound("abcde", Budget(parts=1), trouble="ae be ce de", has_begun=True, may_hurry=False),
]


def visit(bound: Bound, every: int = _EVERY, most: int = 10**9) -> int:
    """Visit all states of a job; return how many there are.

    Args:
        bound: The job.
        every: Of how many states one is followed until all has come to rest.
        most: How many states there may be.
    """
    wishes = Wishes(bound.least, bound.most, len(bound.names))
    visited = 0

    def check(job: Job) -> None:
        nonlocal visited
        found = [*violations(job, wishes)]
        assert not found, (found, job)
        visited += 1
        if visited % every == 0:
            assert_comes_to_rest(job, wishes)

    job = began(bound.names, bound.unborn)
    if bound.has_begun:
        job = settled(job, wishes)
    job = job._replace(budget=bound.budget, trouble=frozenset(bound.trouble.split()))
    return explore(job, wishes, bound.epochs, check, bound.may_hurry, most)


def main() -> None:
    """Visit all, or those whose places are given."""
    here, there = (int(word) for word in sys.argv[1:3]) if len(sys.argv) > 2 else (0, len(FOUR) + len(FIVE))
    for bound in (FOUR + FIVE)[here:there]:
        began_at = time.monotonic()
        count = visit(bound)
        print(f"{bound}: {count:,} states, {time.monotonic() - began_at:.0f} s", flush=True)


if __name__ == "__main__":
    main()
