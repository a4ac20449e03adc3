"""A job whose launchers come, speak, die, pause and leave in any order, with a log, and time that a test lets pass."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

from rankwise_launch.config import UNNUMBERED
from rankwise_launch.registrar import Card, Patience, Registrar
from rankwise_launch.roster import Entry, Roster, Terms
from rankwise_launch.words import GONE, KILLED, LEFT

FIRST = "node 0"
PATIENCE = Patience(silence_s=5.0, join_s=60.0, last_call_s=10.0)


@dataclass
class Launcher:
    """One launcher: its own roster, which is behind the log, and what it says."""

    name: str
    size: int
    roster: Roster
    word: bytes = b"1"
    is_there: bool = True
    #: How often it has spoken.
    count: int = 1
    #: How much of the log it has read.
    read: int = 0
    #: The round whose ranks it has; -1 if it has none.
    running: int = -1


class Model:
    """All launchers of a job, its log, and what node 0 decides.

    Args:
        terms: What all launchers were told.
        size: How many ranks node 0 has.
        make: Makes a launcher's roster.
    """

    def __init__(self, terms: Terms, size: int = 2, make: Callable[[Terms], Roster] | None = None) -> None:
        self.terms, self._roster_of = terms, make or Roster
        self.log: list[Entry] = []
        self.launchers: dict[str, Launcher] = {}
        self.first = self._make(FIRST, size)
        self.write(self.first, "enrol", 0, FIRST, "host", size)
        self.registrar = Registrar(self.first.roster, FIRST, PATIENCE, "here")
        #: What others write between a decision of node 0 and its entry.
        self.meanwhile: Callable[[], object] = lambda: None

    @property
    def roster(self) -> Roster:
        """The opinion of node 0, once it has read the whole log."""
        self.catch_up(self.first)
        return self.first.roster

    def come(self, name: str, size: int = 2, wanted: int = UNNUMBERED) -> Launcher:
        """Have a launcher come."""
        self.registrar.come(Card(name, "host", size, wanted))
        return self._make(name, size)

    def write(self, launcher: Launcher, kind: str, *rest: object) -> bool:
        """Have a launcher write an entry, once it has read what was written before."""
        self.catch_up(launcher)
        self.log.append((kind, launcher.name, *rest))
        launcher.read += 1
        return launcher.roster.apply(self.log[-1])

    def catch_up(self, launcher: Launcher) -> None:
        """Have a launcher read the log."""
        for entry in self.log[launcher.read :]:
            launcher.roster.apply(entry)
        launcher.read = len(self.log)

    def look(self, passed_s: float = 0.5, has_heard: bool = True) -> None:
        """Have node 0 look, after some time in which all launchers that are there have spoken."""
        for launcher in self.launchers.values():
            if launcher.is_there and launcher.word not in (LEFT, KILLED):
                launcher.count += 1
                launcher.word = str(launcher.count).encode()
        self.catch_up(self.first)
        words = {name: self.launchers[name].word for name in self.registrar.watched()}
        for kind, _, *rest in self.registrar.look(words, passed_s, has_heard):
            self.meanwhile()
            self.write(self.first, kind, *rest)

    def look_for(self, seconds: float) -> None:
        for _ in range(int(seconds)):
            self.look(1.0)

    def living(self) -> Iterable[Launcher]:
        """Return the launchers that are there, without node 0."""
        return [each for each in self.launchers.values() if each.is_there and each is not self.first]

    def step(self, draw: random.Random) -> None:
        """Have anything happen."""
        self.meanwhile = lambda: self._a_rank_ends(draw)
        kinds = [self._a_launcher_comes, self._a_launcher_goes, self._a_rank_ends, self._somebody_reads]
        draw.choice([*kinds, lambda draw: self.look(draw.choice([0.0, 0.5, 3.0]), draw.random() < 0.9)])(draw)

    def _make(self, name: str, size: int) -> Launcher:
        self.launchers[name] = Launcher(name, size, self._roster_of(self.terms))
        return self.launchers[name]

    def _a_launcher_comes(self, draw: random.Random) -> None:
        name = f"launcher {len(self.launchers)}"
        wanted = draw.choice([UNNUMBERED, UNNUMBERED, draw.randrange(1, max(self.terms.most, 2))])
        self.come(name, draw.choice([1, 2, 2]), wanted)

    def _a_launcher_goes(self, draw: random.Random) -> None:
        there = list(self.living())
        if not there or draw.random() < 0.5:
            return
        launcher = draw.choice(there)
        how = draw.choice(["killed", "left", "stopped", "gone", "silent", "wakes"])
        if how == "wakes":
            for each in self.launchers.values():
                each.is_there = each.is_there or each.word not in (LEFT, KILLED)
            return
        launcher.is_there = False
        launcher.word = {"killed": KILLED, "left": LEFT, "gone": GONE}.get(how, launcher.word)
        if how == "stopped":
            self.write(launcher, "lost", launcher.name, "it was stopped")
            launcher.word = LEFT

    def _a_rank_ends(self, draw: random.Random) -> None:
        launcher = draw.choice([self.first, *self.living()])
        self.catch_up(launcher)
        member = launcher.roster.of(launcher.name)
        if member is None or not launcher.roster.has_begun or draw.random() < 0.5:
            return
        ended = member.finished | member.given_up
        rest = [rank for rank in member.ranks if rank not in ended]
        if not rest:
            self.write(launcher, "done")
            return
        rank, kind = draw.choice(rest), draw.choice(["restart", "restart", "give_up", "finish"])
        self.write(launcher, kind, rank)
        if kind == "give_up" and launcher.roster.verdict is None and not launcher.roster.is_enough():
            verdict = {
                "success": False,
                "node_rank": member.number,
                "host": "host",
                "exit_code": 3,
                "text": "it failed",
            }
            self.write(launcher, "give", verdict)

    def _somebody_reads(self, draw: random.Random) -> None:
        self.catch_up(draw.choice(list(self.launchers.values())))


def with_mistake(module: ModuleType, right: str, wrong: str) -> dict[str, Any]:
    """Return what a module of the protocol defines with other words in one place."""
    assert module.__file__ is not None
    source = Path(module.__file__).read_text()
    assert source.count(right) == 1
    mistaken: dict[str, Any] = {"__name__": module.__name__}
    exec(compile(source.replace(right, wrong), "mistaken.py", "exec"), mistaken)
    return mistaken
