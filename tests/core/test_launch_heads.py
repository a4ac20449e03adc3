"""Who decides in a job whose launchers meet where none of them is needed: any may be lost, also who decides."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest
from tests.core.roster_model import PATIENCE

from rankwise_launch import registrar, roster, rounds
from rankwise_launch.config import ExitCode
from rankwise_launch.registrar import Card
from rankwise_launch.roster import Entry, Member, Roster, Terms
from rankwise_launch.rounds import Rounds
from rankwise_launch.words import KILLED, LEFT

TERMS = Terms(2, 4, 9, None)


class Launcher:
    """One launcher: its own roster, which is behind the log, what it decides, and what it says."""

    def __init__(self, name: str, terms: Terms, restarts_all: bool) -> None:
        self.name = name
        self.roster: Roster = Rounds(terms) if restarts_all else roster.Roster(terms)
        self.registrar = registrar.Registrar(self.roster, name, PATIENCE, "here")
        self.word, self.count, self.is_there, self.is_awake = b"1", 1, True, True
        self.read = self.came = 0

    @property
    def member(self) -> Member | None:
        return self.roster.of(self.name)


class Company:
    """All launchers of a job, where they meet, and what stands there: the log and the cards."""

    def __init__(self, terms: Terms = TERMS, restarts_all: bool = False) -> None:
        self.terms, self.restarts_all = terms, restarts_all
        self.log: list[Entry] = []
        self.cards: list[Card] = []
        self.launchers: dict[str, Launcher] = {}

    def come(self, name: str, size: int = 1) -> Launcher:
        self.cards.append(Card(name, "host", size))
        self.launchers[name] = Launcher(name, self.terms, self.restarts_all)
        return self.launchers[name]

    def catch_up(self, launcher: Launcher) -> Roster:
        for entry in self.log[launcher.read :]:
            launcher.roster.apply(entry)
        launcher.read = len(self.log)
        return launcher.roster

    def write(self, launcher: Launcher, kind: str, *rest: object) -> bool:
        self.catch_up(launcher)
        self.log.append((kind, launcher.name, *rest))
        launcher.read += 1
        return launcher.roster.apply(self.log[-1])

    def look(self, launcher: Launcher, passed_s: float) -> None:
        """Have a launcher look, which has read as much of the log as it has."""
        for card in self.cards[launcher.came :]:
            launcher.registrar.come(card)
        launcher.came = len(self.cards)
        words = {name: self.launchers[name].word for name in launcher.registrar.watched()}
        for kind, _, *rest in launcher.registrar.look(words, passed_s):
            self.write(launcher, kind, *rest)

    def pass_time(self, seconds: float, step_s: float = 0.5) -> None:
        """Have all that are there speak, read and look for so long."""
        for _ in range(int(seconds / step_s)):
            for launcher in list(self.launchers.values()):
                if launcher.is_there and launcher.is_awake:
                    launcher.count += 1
                    launcher.word = str(launcher.count).encode()
            for launcher in list(self.launchers.values()):
                if launcher.is_there and launcher.is_awake:
                    self.catch_up(launcher)
                    self.look(launcher, step_s)
                    if launcher.roster.awaits(launcher.name):
                        self.write(launcher, "ready_again")

    def kill(self, launcher: Launcher, word: bytes | None = KILLED) -> None:
        launcher.is_there, launcher.word = False, launcher.word if word is None else word

    @property
    def roster(self) -> Roster:
        """What all agree on who have read the whole log."""
        one = Launcher("", self.terms, self.restarts_all)
        return self.catch_up(one)


def begun(count: int, restarts_all: bool = False, terms: Terms = TERMS) -> tuple[Company, list[Launcher]]:
    company = Company(terms, restarts_all)
    launchers = [company.come(f"launcher {number}") for number in range(count)]
    company.pass_time(PATIENCE.last_call_s + 2)
    assert company.roster.has_begun
    assert [member.launcher for member in company.roster.living()] == list(company.launchers)
    return company, launchers


def head_of(company: Company) -> str | None:
    head = company.roster.head
    return None if head is None else head.launcher


# ---------------------------------------------------------------------- one after the other


@pytest.mark.parametrize("restarts_all", [False, True])
@pytest.mark.parametrize("word", [KILLED, LEFT, None])
def test_the_next_decides_once_the_head_is_lost(restarts_all: bool, word: bytes | None) -> None:
    company, (first, second, third) = begun(3, restarts_all)
    company.kill(first, word)
    company.pass_time(PATIENCE.silence_s + 2)
    assert head_of(company) == second.name
    company.kill(second, word)
    late = company.come("late")
    company.pass_time(PATIENCE.silence_s + PATIENCE.last_call_s + 2)
    assert {member.launcher for member in company.roster.living()} == {third.name, late.name}
    assert company.roster.verdict is None
    assert company.roster.has_begun


@pytest.mark.parametrize("restarts_all", [False, True])
def test_the_head_may_be_lost_before_the_job_begins_and_alone(restarts_all: bool) -> None:
    company = Company(TERMS, restarts_all)
    first = company.come("first")
    company.pass_time(1)
    assert head_of(company) == first.name
    company.kill(first)
    company.come("second")
    company.come("third")
    company.pass_time(PATIENCE.last_call_s + 3)
    assert [member.launcher for member in company.roster.living()] == ["second", "third"]
    assert company.roster.has_begun


@pytest.mark.parametrize("word", [KILLED, None])
@pytest.mark.parametrize("count", [3, 9])
def test_all_that_would_be_the_head_may_be_lost_at_once(count: int, word: bytes | None) -> None:
    """Those that have said nothing of it are missed at the same time, if they are few."""
    company, launchers = begun(count, restarts_all=True, terms=Terms(1, count, 9, None))
    company.kill(launchers[0], word)
    for launcher in launchers[1:-1]:
        company.kill(launcher, None)
    company.pass_time(PATIENCE.silence_s * -(-(count - 1) // registrar._NEXT) + 3)
    assert head_of(company) == launchers[-1].name


@pytest.mark.parametrize("restarts_all", [False, True])
def test_only_those_that_would_be_the_head_say_that_it_is_lost(restarts_all: bool) -> None:
    company, (first, second, third) = begun(3, restarts_all)
    assert not company.write(second, "lost", third.name, "it seems so")
    assert company.write(second, "lost", first.name, "it was killed")
    assert head_of(company) == second.name
    assert not company.write(first, "lost", third.name, "it seems so")  # as it only slept
    assert not company.write(first, "refuse", "late", 2, "no")


def test_a_head_that_slept_decides_nothing_any_more() -> None:
    company, (first, second, _) = begun(3)
    first.is_awake = False
    company.pass_time(PATIENCE.silence_s + 2)
    assert head_of(company) == second.name
    company.come("late")
    first.is_awake = True
    company.look(first, 1.0)  # before it has read what the others have written
    company.pass_time(3)
    late = company.roster.of("late")
    assert late is not None
    assert late in company.roster.living()
    assert first.member is None or first.member.is_lost


def test_spares_take_over_where_all_others_are_lost_between_rounds() -> None:
    company, launchers = begun(2, restarts_all=True, terms=Terms(1, 2, 9, None))
    company.come("spare")
    company.pass_time(2)
    for launcher in launchers:
        company.kill(launcher)
    company.pass_time(PATIENCE.last_call_s + 5)
    assert [member.launcher for member in company.roster.living()] == ["spare"]
    assert company.roster.has_begun


# ---------------------------------------------------------------------- random orders


def walk(seed: int, steps: int = 120) -> Company:
    draw = random.Random(seed)
    least = draw.randint(1, 2)
    company = Company(Terms(least, draw.randint(least + 1, 4), 9, None), draw.random() < 0.5)
    for _ in range(steps):
        there = [launcher for launcher in company.launchers.values() if launcher.is_there]
        kind = draw.choice(["come", "go", "sleep", "read", "look", "look", "time"])
        if kind == "come" or not there:
            company.come(f"launcher {len(company.launchers)}", draw.choice([1, 2]))
        elif kind == "go" and draw.random() < 0.5:
            company.kill(draw.choice(there), draw.choice([KILLED, LEFT, None]))
        elif kind == "sleep":
            launcher = draw.choice(there)
            launcher.is_awake = not launcher.is_awake
        elif kind == "read":
            company.catch_up(draw.choice(there))
        elif kind == "look":
            company.look(draw.choice(there), draw.choice([0.0, 0.5, 3.0]))
        else:
            company.pass_time(1.0)
        assert_sound(company)
    return company


def assert_sound(company: Company) -> None:
    agreed = company.roster
    assert len(agreed.living()) <= agreed.terms.most
    if agreed.has_begun and agreed.verdict is None:
        held = [rank for member in agreed.members.values() for rank in member.ranks]
        assert sorted(held) == list(range(agreed.world_size)), "ranks are held twice, or by nobody"
    for launcher in company.launchers.values():
        before = Launcher("", company.terms, company.restarts_all)
        for entry in company.log[: launcher.read]:
            before.roster.apply(entry)
        assert vars(before.roster) == vars(launcher.roster), "launchers do not agree"


@pytest.mark.parametrize("seed", range(8))
def test_whoever_is_lost_the_others_agree_and_go_on(seed: int) -> None:
    for number in range(12):
        company = walk(1000 * seed + number)
        for launcher in company.launchers.values():
            launcher.is_awake = True
        company.pass_time(PATIENCE.join_s + 2 * PATIENCE.silence_s + PATIENCE.last_call_s)
        agreed = company.roster
        there = {launcher.name for launcher in company.launchers.values() if launcher.is_there}
        if agreed.verdict is None:
            assert {member.launcher for member in agreed.living()} <= there, "somebody who is gone is waited for"
            assert not there or agreed.head is not None, "nobody decides"
            assert agreed.has_begun or not there
        else:
            assert agreed.verdict.exit_code in (ExitCode.NODE_LOST, ExitCode.NODE_MISSING)


#: Mistakes that might be made, each as words of the protocol and what stands there instead.
MISTAKES: dict[str, tuple[Any, str, str]] = {
    "nobody may say that the head is lost": (roster, "or is_one_before else None", "else None"),
    "anybody says that somebody is lost": (roster, "or is_one_before else None", "or True else None"),
    "whom the others have given up says so": (
        roster,
        "(self._alive(author) is not None or author not in self.came)",
        "True",
    ),
    "nobody looks after the head": (registrar, "return before[: gone + _NEXT]", "return []"),
    "nobody looks after those that follow the head": (registrar, "before[: gone + _NEXT]", "before[:1]"),
    "one looks after those that follow the head one after the other": (registrar, "gone + _NEXT", "gone + 1"),
    "a job without a head stays so": (registrar, "if self._roster.head is None:", "if False:"),
}


@pytest.mark.parametrize("mistake", MISTAKES)
def test_mistakes_are_noticed(mistake: str, monkeypatch: pytest.MonkeyPatch) -> None:
    module, right, wrong = MISTAKES[mistake]
    source = Path(module.__file__).read_text()
    assert source.count(right) == 1
    mistaken: dict[str, Any] = {"__name__": module.__name__}
    exec(compile(source.replace(right, wrong), "mistaken.py", "exec"), mistaken)
    name = "Roster" if module is roster else "Registrar"
    monkeypatch.setattr(module, name, mistaken[name])
    anew: dict[str, Any] = {"__name__": rounds.__name__}
    exec(Path(rounds.__file__).read_text(), anew)  # which is made of the mistaken roster
    monkeypatch.setitem(globals(), "Rounds", anew["Rounds"])
    with pytest.raises(AssertionError):
        everything()


def everything() -> None:
    test_the_next_decides_once_the_head_is_lost(False, KILLED)
    test_the_head_may_be_lost_before_the_job_begins_and_alone(False)
    for count in (3, 9):
        test_all_that_would_be_the_head_may_be_lost_at_once(count, None)
    for restarts_all in (False, True):
        test_only_those_that_would_be_the_head_say_that_it_is_lost(restarts_all)
    test_a_head_that_slept_decides_nothing_any_more()
    for seed in range(2):
        test_whoever_is_lost_the_others_agree_and_go_on(seed)
