"""Shoot, stop and start the processes of elastic jobs at random moments, and see that no job notices but by its size.

    python benchmarks/elastic_storm.py --events 1000
    python benchmarks/elastic_storm.py --seed 17 --events 20   # one job again

Each job begins with 2 to 6 processes and meets with 20 events: one to three processes are killed at once, one is
stopped for up to 3 s, or one joins; often while the job has yet to get over the last event. Then all that live must be
in one world within a minute, and end at the same step. What each process has said is looked through: no epoch has two
worlds, and no step is lost that any process saw committed. Sums are checked by the processes themselves.
"""

from __future__ import annotations

import argparse
import random
import signal
import time
from collections.abc import Iterable
from typing import Any

from elastic_company import Company, Member

#: Events of one job; how long after the one before each comes, in the mean; and how many processes there may be.
EVENTS, PAUSE_S, MOST = 20, 0.3, 9


class Storm:
    """One job in a storm.

    Args:
        seed: What happens.
        events: How many events there are.
    """

    def __init__(self, seed: int, events: int) -> None:
        self._draw, self._events = random.Random(seed), events
        self._stopped: dict[Member, float] = {}

    def run(self) -> None:
        """Carry it out."""
        with Company(self._draw.randint(2, 6), tells=True, wait_s=20) as job:
            self._living = list(job.members)
            for member in job.members:
                member.hear(lambda word: "summed_in" in word)
            for _ in range(self._events):
                self._happen(job)
                self._wait(self._draw.expovariate(1 / PAUSE_S))
            self._wait(float("inf"))
            try:
                size = len(self._living)
                for member in self._living:
                    member.hear_last_size(size)
                job.finish()
                ends = {member.hear_end()["steps"] for member in self._living}
                assert len(ends) == 1, f"they ended at the steps {ends}"
            finally:
                for member in job.all:
                    member.end()
            look_through(job.all)

    def _happen(self, job: Company) -> None:
        what = self._draw.choices(("kill", "stop", "join"), (4, 2, 4))[0]
        if what == "kill" and len(self._living) > 1:
            for member in self._draw.sample(
                self._living, min(self._draw.choice((1, 1, 1, 2, 3)), len(self._living) - 1)
            ):
                member.send(signal.SIGKILL)
                self._living.remove(member)
                self._stopped.pop(member, None)
        elif what == "stop":
            member = self._draw.choice(self._living)
            member.send(signal.SIGSTOP)
            self._stopped[member] = time.monotonic() + self._draw.uniform(0.0, 3.0)
        elif what == "join" and len(self._living) < MOST:
            self._living.append(job.start())

    def _wait(self, seconds: float) -> None:
        """Let the job go on for so long, or until nobody is stopped any more; those whose time is up go on."""
        until = time.monotonic() + seconds
        while (now := time.monotonic()) < until:
            for member in [member for member, end in self._stopped.items() if end <= now]:
                del self._stopped[member]
                member.send(signal.SIGCONT)
            if not self._stopped and seconds == float("inf"):
                return
            time.sleep(min(0.01, max(0.0, until - now)))


def look_through(members: Iterable[Member]) -> None:
    """Raise if an epoch has had two worlds, or a step that was committed is lost."""
    began: dict[int, dict[str, Any]] = {}
    committed: dict[int, int] = {}
    ranks: set[tuple[int, int]] = set()
    for member in members:
        epoch = 0
        for word in member.said:
            if "number" in word:
                epoch = word["number"]
                mine = {name: word[name] for name in ("size", "step")}
                assert began.setdefault(epoch, mine) == mine, f"epoch {epoch} has two worlds: {mine}, {began[epoch]}"
                assert (epoch, word["rank"]) not in ranks, f"epoch {epoch} has two ranks {word['rank']}"
                ranks.add((epoch, word["rank"]))
            elif "committed" in word:
                committed[epoch] = max(committed.get(epoch, 0), word["committed"])
    for epoch, step in committed.items():
        for later, word in began.items():
            assert later <= epoch or word["step"] >= step, f"step {step} of epoch {epoch} is lost in epoch {later}"


def main() -> None:
    """Carry out jobs until there were so many events."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--events", type=int, default=100, help="how many in all")
    parser.add_argument("--seed", type=int, default=0, help="of the first job; each further one has the next")
    options = parser.parse_args()
    for number, left in enumerate(range(options.events, 0, -EVENTS)):
        seed = options.seed + number
        print(f"seed {seed}", end=" ", flush=True)
        Storm(seed, min(EVENTS, left)).run()
        print("well", flush=True)


if __name__ == "__main__":
    main()
