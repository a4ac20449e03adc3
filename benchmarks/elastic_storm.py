"""Shoot, stop and start the processes of elastic jobs at random moments, and see that no job notices but by its size.

    python benchmarks/elastic_storm.py --events 1000
    python benchmarks/elastic_storm.py --hosts 3 --events 200   # and part the network between them; needs root
    python benchmarks/elastic_storm.py --seed 17 --events 20    # one job again

Each job begins with 2 to 6 processes and meets with 20 events: one to three processes are killed at once, one is
stopped for up to 3 s, or one joins; often while the job has yet to get over the last event. With several hosts, which
are namespaces of this machine, one is cut off from all others and the store, or two from each other that both reach the
store, in one direction or both, for up to 12 s. Then all that live must be in one world within a minute; only who was
cut off from the store may have ended. With three hosts or more the last two are cut from each other once more, until
the larger part goes on alone, and again all must come together. All end at the same step.

What each process has said is looked through: no epoch has two worlds, and no step is lost that any process saw
committed. Sums are checked by the processes themselves. A seed stands for what happens and when; to whom, depends on
who is there by then.
"""

from __future__ import annotations

import argparse
import os
import random
import signal
import time
from collections import Counter
from collections.abc import Callable, Iterable
from contextlib import ExitStack
from typing import Any

from elastic_company import PATIENCE_S, Company, Member
from elastic_network import Network, Weather

#: Events of one job; how long after the one before each comes, in the mean; and how many processes there may be.
EVENTS, PAUSE_S, PAUSE_OF_HOSTS_S, MOST = 20, 0.3, 1.0, 9
#: Which part of the events is followed by the next one within a moment, so that one phase meets with several.
AT_ONCE, MOMENT_S = 0.4, 0.05
#: How long a process is stopped, and how long the network is parted, at the most.
STOP_S, CUT_S = 3.0, 12.0
#: What happens, and how often; besides, by the number of hosts, where two that both reach the store are three at least.
KINDS = {"kill": 4, "stop": 2, "join": 4}
KINDS_OF_HOSTS = {2: {"cut off": 3}, 3: {"cut off": 1, "cut between": 3}}


class Storm:
    """One job in a storm.

    Args:
        seed: What happens.
        events: How many events there are.
        count: On how many hosts.
    """

    def __init__(self, seed: int, events: int, count: int = 1) -> None:
        self._seed, self._events, self._count = seed, events, count
        #: Chooses; anew for each event, so that an event does not depend on how far the job had come at the last one.
        self._draw = random.Random(seed)
        self._pause_s = PAUSE_S if count == 1 else PAUSE_OF_HOSTS_S
        #: What is to be done later, and when.
        self._later: dict[Callable[[], None], float] = {}
        self._hosts: dict[Member, int] = {}
        self._may_end: set[Member] = set()
        #: How often what has happened; what found nobody, or no room, has not.
        self.happened: Counter[str] = Counter()

    def run(self) -> None:
        """Carry it out."""
        with ExitStack() as stack:
            place: dict[str, Any] = {}
            if self._count > 1:
                network = stack.enter_context(Network(self._count))
                self._weather = Weather(network.hosts)
                place = {"url": network.url, "command": network.hosts.command, "hosts": range(self._count)}
            size = self._draw.randint(2, 6)
            job = stack.enter_context(Company(size, tells=True, wait_s=20, **place))
            self._living = list(job.members)
            self._hosts = {member: rank % self._count for rank, member in enumerate(job.members)}
            for member in job.members:
                member.hear(lambda word: "summed_in" in word)
            for number in range(self._events):
                self._draw = random.Random(f"event {number} of {self._seed}")
                at_once = self._draw.random() < AT_ONCE
                pause_s = self._draw.uniform(0.0, MOMENT_S) if at_once else self._draw.expovariate(1 / self._pause_s)
                self._happen(job)
                self._wait(pause_s)
            self._wait(float("inf"))
            try:
                self._end(job)
            finally:
                for member in job.all:
                    member.end()
            look_through(job.all)

    def _end(self, job: Company) -> None:
        """See that all that live come to one world and one end."""
        living = self._all_together()
        if self._count >= 3:
            self._part(living)
            living = self._all_together()
        job.finish()
        ends = {member.hear_end()["steps"] for member in living}
        assert len(ends) == 1, f"they ended at the steps {ends}"

    def _all_together(self) -> list[Member]:
        """Wait until all that live are in one world; return them."""
        living = self._those_that_live()
        while (left := self._gathered(living)) != living:
            living = left
        return living

    def _part(self, living: list[Member]) -> None:
        """See that a world goes on, of all but the smaller part, while the last two hosts do not reach each other."""
        here, there = self._count - 2, self._count - 1
        lost = min(sum(self._hosts[member] == host for member in living) for host in (here, there))
        wrong = self._weather.cut(here, there)
        until = time.monotonic() + PATIENCE_S
        while lost and _at_work(living) != len(living) - lost:
            assert time.monotonic() < until, f"{_at_work(living)} of {len(living)} go on, and not all but {lost}"
            time.sleep(0.05)
        for pair in wrong:
            self._weather.heal(pair)

    def _gathered(self, living: list[Member]) -> list[Member]:
        """Return who lives once all have been in one world, or one has ended that may."""
        for member in living:
            try:
                member.hear_last_size(len(living))
            except AssertionError:
                if self._those_that_live() == living:
                    raise
                break
        return self._those_that_live()

    def _those_that_live(self) -> list[Member]:
        ended = [member for member in self._living if member.process.poll() is not None]
        assert self._may_end.issuperset(ended), f"{[member.name for member in ended]} ended"
        return [member for member in self._living if member not in ended]

    def _happen(self, job: Company) -> None:
        kinds = KINDS | KINDS_OF_HOSTS.get(min(self._count, 3), {})
        what = self._draw.choices([*kinds], [*kinds.values()])[0]
        if what == "kill":
            spared = self._spared()
            mortal = [member for member in self._living if member not in spared]
            for member in self._draw.sample(mortal, min(self._draw.choice((1, 1, 1, 2, 3)), len(mortal))):
                member.send(signal.SIGKILL)
                self._living.remove(member)
                self.happened["processes killed"] += 1
            self.happened[what] += bool(mortal)
        elif what == "stop":
            member = self._draw.choice(self._living)
            member.send(signal.SIGSTOP)
            self.happened[what] += 1
            self._in(self._draw.uniform(0.0, STOP_S), lambda: member.send(signal.SIGCONT))
        elif what == "join" and len(self._living) < MOST:
            host = self._draw.randrange(self._count)
            newcomer = job.start(host=host)
            self.happened[what] += 1
            self._living.append(newcomer)
            self._hosts[newcomer] = host
            if self._count > 1 and self._weather.is_cut_off(host):
                self._may_end.add(newcomer)
        elif what.startswith("cut"):
            self._cut(what)

    def _spared(self) -> list[Member]:
        """Return one process of each host that has the job's state and reaches the store, as one of them must live."""
        newest = max(member.last_epoch() for member in self._living)
        at_work = [each for each in self._living if each.last_epoch() == newest and each not in self._may_end]
        self._draw.shuffle(at_work)
        return [*{self._hosts[member]: member for member in at_work}.values()]

    def _cut(self, what: str) -> None:
        there = {self._hosts[member] for member in self._spared()}
        seconds = self._draw.uniform(0.0, CUT_S)
        if what == "cut off":
            wrong = self._weather.cut_off(self._draw, there)
        else:
            wrong = self._weather.cut_between(self._draw)
        self.happened[what] += bool(wrong)
        for each in wrong:
            self._in(seconds, lambda each=each: self._weather.heal(each))  # type: ignore[misc]
            if len(each) == 1:
                self._may_end.update(member for member in self._living if self._hosts[member] == each[0])

    def _in(self, seconds: float, what: Callable[[], None]) -> None:
        self._later[what] = time.monotonic() + seconds

    def _wait(self, seconds: float) -> None:
        """Let the job go on for so long, or until nothing is to be done later."""
        until = time.monotonic() + seconds
        while (now := time.monotonic()) < until:
            for what in [what for what, at in self._later.items() if at <= now]:
                del self._later[what]
                what()
            if not self._later and seconds == float("inf"):
                return
            time.sleep(min(0.01, max(0.0, until - now)))


def _at_work(members: list[Member]) -> int:
    """Return how many processes are in the last epoch that has begun."""
    epochs = [member.last_epoch() for member in members]
    return epochs.count(max(epochs))


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


def carry_out(events: int, first_seed: int, storm_of: Callable[[int, int], Any]) -> None:
    """Carry out jobs until there were so many events; `storm_of` makes one of a seed and a number of events."""
    happened: Counter[str] = Counter()
    for seed, left in enumerate(range(events, 0, -EVENTS), first_seed):
        began = time.monotonic()
        print(f"seed {seed}", end=" ", flush=True)
        storm = storm_of(seed, min(EVENTS, left))
        storm.run()
        happened += storm.happened
        print(f"well, {time.monotonic() - began:.0f} s", flush=True)
    print(", ".join(f"{what}: {count}" for what, count in happened.items()))


def main() -> None:
    """Ask what is to happen, and have it happen."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--events", type=int, default=100, help="how many in all")
    parser.add_argument("--seed", type=int, default=0, help="of the first job; each further one has the next")
    parser.add_argument("--hosts", type=int, default=1, help="on how many hosts; more than one need root")
    options = parser.parse_args()
    if options.hosts > 1:
        os.environ.setdefault("RANKWISE_OUTAGE_LIMIT_S", "3")
    carry_out(options.events, options.seed, lambda seed, events: Storm(seed, events, options.hosts))


if __name__ == "__main__":
    main()
