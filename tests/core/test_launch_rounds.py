"""Who is in a job whose ranks all start again, what ends a round, and when the next begins, in random orders too."""

from __future__ import annotations

import random
from typing import Any

import pytest
from tests.core.roster_model import FIRST, PATIENCE, Launcher, Model, with_mistake

from rankwise_launch import registrar, rounds
from rankwise_launch.config import ExitCode
from rankwise_launch.roster import Terms
from rankwise_launch.rounds import Rounds
from rankwise_launch.words import KILLED, LEFT

FIXED = Terms(3, 3, 2, None)
RANGE = Terms(2, 4, 2, None)


class Job(Model):
    """A job whose launchers start ranks once they read that a round has begun, and end them once it has ended."""

    def __init__(self, terms: Terms, size: int = 2) -> None:
        super().__init__(terms, size, lambda terms: rounds.Rounds(terms))

    def read(self, launcher: Launcher) -> None:
        """Have a launcher read the log, and do what it does then."""
        self.catch_up(launcher)
        roster = launcher.roster
        me = roster.of(launcher.name)
        if me is None or roster.verdict is not None:
            launcher.running = -1
        elif roster.has_begun:
            launcher.running = roster.round
        elif roster.awaits(launcher.name):  # also if it has never seen the round
            launcher.running = -1
            self.write(launcher, "ready_again")

    def all_read(self) -> None:
        for launcher in [self.first, *self.living()]:
            self.read(launcher)

    def fail(self, launcher: Launcher) -> bool:
        member = self.roster.of(launcher.name)
        number = member.number if member is not None else -1
        verdict = {"success": False, "node_rank": number, "host": "host", "exit_code": 3, "text": "it failed"}
        return self.write(launcher, "fail", verdict)

    def leave(self, launcher: Launcher) -> None:
        launcher.is_there = False
        self.write(launcher, "lost", launcher.name, "it was stopped")
        launcher.word = LEFT

    def kill(self, launcher: Launcher) -> None:
        launcher.is_there, launcher.word = False, KILLED
        self.look()

    def next_round(self, seconds: float = 0.0) -> Rounds:
        """Have all read that the round is over, and node 0 look."""
        self.all_read()
        self.look()
        self.look_for(seconds)
        self.all_read()
        assert isinstance(self.roster, rounds.Rounds)
        return self.roster


def begun(terms: Terms, *sizes: int) -> tuple[Job, list[Launcher]]:
    """Return a job that has begun with nodes that have so many ranks."""
    job = Job(terms, sizes[0])
    others = [job.come(f"launcher {number}", size) for number, size in enumerate(sizes[1:], 1)]
    job.look()
    if not job.roster.has_begun:
        job.look_for(PATIENCE.last_call_s + 1)
    job.all_read()
    assert (job.roster.has_begun, job.roster.round) == (True, 0)
    return job, [job.first, *others]


def ranks_in(job: Job) -> dict[str, list[int]]:
    return {member.launcher: list(member.ranks) for member in job.roster.members.values()}


# ---------------------------------------------------------------------- the end of a round


@pytest.mark.parametrize("terms", [FIXED, RANGE])
def test_a_failure_has_all_start_again_once_nothing_is_left_of_the_round(terms: Terms) -> None:
    job, (first, a, b) = begun(terms, 2, 1, 1)
    assert job.fail(a)
    assert not job.fail(b)  # which follows from that
    assert job.roster.round_end is not None
    assert (job.roster.round_end.node_rank, job.roster.round_end.again, job.roster.restarts) == (1, True, 1)
    job.read(first)
    job.read(b)
    job.look_for(5)
    assert not job.roster.has_begun
    assert job.next_round().round == 1
    assert job.roster.round_end is None


def test_what_ends_well_after_the_end_of_a_round_does_not_count() -> None:
    job, (first, a, b) = begun(FIXED, 1, 1, 1)
    job.write(first, "finish", 0)
    job.write(first, "done")
    job.fail(a)
    job.write(b, "finish", 2)
    job.write(b, "done")
    assert not job.roster.is_finishing
    job.next_round()
    for launcher in (first, a):
        job.write(launcher, "done")
    assert job.roster.verdict is None
    job.write(b, "done")
    assert job.roster.verdict is not None
    assert job.roster.verdict.success


def test_the_job_ends_with_the_failure_for_which_no_restart_is_left() -> None:
    job, (_, a, _) = begun(FIXED, 1, 1, 1)
    for _ in range(2):
        job.fail(a)
        job.next_round()
    assert job.roster.verdict is None
    job.fail(a)
    verdict = job.roster.verdict
    assert verdict is not None
    assert (verdict.exit_code, verdict.again, job.roster.restarts) == (3, False, 2)


@pytest.mark.parametrize("is_between", [False, True])
def test_a_signal_to_a_launcher_ends_the_job_between_rounds_too(is_between: bool) -> None:
    job, (_, a, b) = begun(RANGE, 1, 1, 1)
    if is_between:
        job.fail(b)
    verdict = {"success": False, "node_rank": 1, "host": "h", "exit_code": 130, "text": "stopped", "signal": 2}
    assert job.write(a, "give", verdict)
    assert job.roster.verdict is not None
    assert job.roster.verdict.signal == 2
    job.next_round(PATIENCE.join_s)
    assert job.roster.round == 0


# ---------------------------------------------------------------------- nodes that go


def test_a_lost_node_ends_a_job_that_has_as_many_nodes_as_it_was_told() -> None:
    job, (_, a, _) = begun(FIXED, 1, 1, 1)
    job.kill(a)
    verdict = job.roster.verdict
    assert verdict is not None
    assert (verdict.lost, verdict.node_rank, verdict.exit_code) == (True, 1, ExitCode.NODE_LOST)


def test_a_lost_node_is_waited_for_and_then_the_others_go_on() -> None:
    job, (_, a, b) = begun(RANGE, 2, 1, 1)
    job.kill(a)
    assert job.next_round(PATIENCE.last_call_s - 2).round == 0
    assert job.next_round(3).round == 1
    assert ranks_in(job) == {FIRST: [0, 1], b.name: [2]}
    assert [job.roster.place_of(member) for member in job.roster.members.values()] == [0, 1]
    assert (job.roster.node_count, job.roster.restarts) == (2, 1)


def test_another_may_take_the_place_of_a_lost_node() -> None:
    job, (_, a, b) = begun(RANGE, 1, 1, 1)
    job.kill(a)
    job.come("another")
    assert job.next_round().round == 1
    assert ranks_in(job) == {FIRST: [0], "another": [1, 2], b.name: [3]}


def test_a_node_that_leaves_is_neither_waited_for_nor_counted() -> None:
    job, (_, a, b) = begun(RANGE, 1, 1, 1)
    job.leave(a)
    assert job.roster.round_end is not None
    assert job.roster.round_end.is_planned
    assert job.next_round().round == 1
    assert (ranks_in(job), job.roster.restarts) == ({FIRST: [0], b.name: [1]}, 0)


def test_too_few_nodes_wait_for_another_and_then_end() -> None:
    job, (_, a) = begun(RANGE, 1, 1)
    job.leave(a)
    job.next_round(PATIENCE.join_s - 2)
    assert (job.roster.verdict, job.roster.round) == (None, 0)
    job.next_round(3)
    verdict = job.roster.verdict
    assert verdict is not None
    text = "only 1 of at least 2 nodes is left, and none has come for 60 s"
    assert (verdict.exit_code, verdict.text) == (ExitCode.NODE_LOST, text)


def test_a_node_lost_while_the_ranks_of_others_end_is_not_waited_for() -> None:
    """And costs no second restart; it is told when the next round begins."""
    job, (_, a, b) = begun(RANGE, 1, 1, 1)
    job.fail(b)
    job.kill(a)
    assert job.next_round(PATIENCE.last_call_s).round == 1
    assert (job.roster.restarts, [news.number for news in job.roster.news]) == (1, [1])


# ---------------------------------------------------------------------- nodes that come


def test_those_that_come_are_taken_in_together_after_a_last_call() -> None:
    job, _ = begun(RANGE, 1, 1)
    job.come("late", 1)
    job.look_for(PATIENCE.last_call_s - 3)
    assert job.roster.has_begun
    job.come("later", 1)
    job.look()
    assert job.roster.round_end is not None  # as there are no more places
    assert job.next_round().round == 1
    assert (job.roster.world_size, job.roster.restarts) == (4, 0)


def test_one_that_comes_alone_waits_for_the_last_call_while_ranks_run() -> None:
    job, _ = begun(RANGE, 1, 1)
    job.come("late", 1)
    job.look_for(PATIENCE.last_call_s + 1)
    assert job.roster.round_end is not None
    assert job.roster.round_end.told() == "node 2 (host) has come: it has 1 rank"
    assert job.next_round().round == 1


def test_one_too_many_waits_for_a_place_unless_there_will_be_none() -> None:
    job, (_, a, _, _) = begun(RANGE, 1, 1, 1, 1)
    job.come("spare", 1)
    job.look_for(PATIENCE.last_call_s + 5)
    assert (job.roster.has_begun, job.roster.refused) == (True, {})
    job.kill(a)
    assert job.next_round().of("spare") is not None
    job, _ = begun(FIXED, 1, 1, 1)
    job.come("spare", 1)
    job.look()
    assert "there are 3 launchers already" in job.roster.refused["spare"][1]


def test_nobody_is_needed_once_a_rank_has_ended_well() -> None:
    job, (first, _) = begun(RANGE, 1, 1)
    job.write(first, "finish", 0)
    job.come("late")
    job.look_for(PATIENCE.last_call_s + 1)
    assert job.roster.has_begun
    assert job.roster.refused["late"] == (ExitCode.UNNEEDED, "the job is finishing, and takes in no more nodes")


# ---------------------------------------------------------------------- random orders


def walk(seed: int, steps: int = 150) -> Job:
    """Have a job go through random steps, and see that what must hold does."""
    draw = random.Random(seed)
    least = draw.randint(1, 3)
    job = Job(Terms(least, draw.randint(max(least, 2), 4), draw.randint(0, 3), None), draw.choice([1, 2]))
    for _ in range(steps):
        before, planned = job.roster.round, job.roster.round_end is not None and job.roster.round_end.is_planned
        draw.choice([_come, _go, _end_a_rank, _read, _read, _look])(job, draw)
        assert_sound(job, before, planned)
    for launcher in job.launchers.values():
        job.catch_up(launcher)
        assert vars(launcher.roster) == vars(job.roster), "launchers do not agree"
    return job


def assert_sound(job: Job, round_before: int, was_planned: bool) -> None:
    """See that rounds follow each other, that their ranks are unique, and that two are never run at once."""
    roster = job.roster
    assert isinstance(roster, rounds.Rounds)
    assert len(roster.members) <= roster.terms.most
    assert roster.restarts <= roster.terms.max_restarts
    assert roster.round - round_before in (0, 1), "a round was left out"
    if roster.has_begun and roster.verdict is None:
        held = [rank for member in roster.members.values() for rank in member.ranks]
        assert sorted(held) == list(range(roster.world_size)), "ranks are held twice, or by nobody"
        for member in roster.members.values():
            launcher = job.launchers[member.launcher]
            assert launcher.running in (-1, roster.round), "a launcher has ranks of another round"
    if roster.round > round_before:
        assert len(roster.living()) >= roster.terms.least, "a round has begun with too few nodes"
    if roster.verdict is not None and roster.verdict.success:
        assert all(member.is_done for member in roster.living())


def _come(job: Job, draw: random.Random) -> None:
    name, wanted = f"launcher {len(job.launchers)}", draw.choice([-1, -1, draw.randrange(1, max(job.terms.most, 2))])
    job.come(name, draw.choice([1, 2]), wanted)


def _go(job: Job, draw: random.Random) -> None:
    there = list(job.living())
    if not there or draw.random() < 0.6:
        return
    launcher = draw.choice(there)
    if draw.random() < 0.5:
        job.leave(launcher)
    else:
        launcher.is_there, launcher.word = False, draw.choice([KILLED, launcher.word])


def _end_a_rank(job: Job, draw: random.Random) -> None:
    launcher = draw.choice([job.first, *job.living()])
    job.read(launcher)
    member = launcher.roster.of(launcher.name)
    if member is None or launcher.running < 0 or draw.random() < 0.5:
        return
    kind = draw.choice(["fail", "finish", "finish", "done", "stop"])
    if kind == "fail":
        job.fail(launcher)
    elif kind == "stop" and draw.random() < 0.1:
        verdict = {"success": False, "node_rank": 1, "host": "h", "exit_code": 130, "text": "stopped", "signal": 2}
        job.write(launcher, "give", verdict)
    elif kind == "finish":
        job.write(launcher, "finish", member.first_rank)
    elif kind == "done" and member.finished:
        job.write(launcher, "done")


def _read(job: Job, draw: random.Random) -> None:
    job.read(draw.choice([job.first, *job.living()]))


def _look(job: Job, draw: random.Random) -> None:
    job.meanwhile = lambda: draw.choice([_end_a_rank, _go])(job, draw)
    job.look(draw.choice([0.0, 0.5, 3.0, 11.0]))


@pytest.mark.parametrize("seed", range(10))
def test_random_orders_keep_rounds_apart_and_launchers_of_one_mind(seed: int) -> None:
    for number in range(15):
        walk(1000 * seed + number)


@pytest.mark.parametrize("seed", range(4))
def test_what_has_begun_goes_on_or_ends(seed: int) -> None:
    """Whatever has happened: if nothing more does, all ranks that are left end well, or the job says why not."""
    for number in range(50):
        job = walk(10_000 + 1000 * seed + number, 60)
        if job.roster.round < 0:
            continue
        for _ in range(3):
            job.next_round(PATIENCE.join_s + PATIENCE.silence_s + PATIENCE.last_call_s)
        for launcher in [job.first, *job.living()]:
            job.write(launcher, "done")
        assert job.roster.verdict is not None, vars(job.roster)


def test_random_orders_get_somewhere() -> None:
    jobs = [walk(seed) for seed in range(60)]
    assert max(job.roster.round for job in jobs) > 2
    assert {job.roster.verdict is not None for job in jobs} == {True, False}
    verdicts = [job.roster.verdict for job in jobs if job.roster.verdict]
    assert {verdict.success for verdict in verdicts} == {True, False}


#: Mistakes that might be made, each as words of the protocol and what stands there instead.
MISTAKES: dict[str, tuple[Any, str, str]] = {
    "a round begins while ranks of the one before run": (registrar, "or not roster.is_ready:", "or False:"),
    "all are ready before they say so": (rounds, "self._ready.clear()", "pass"),
    "a round begins with too few": (rounds, "if len(self.members) < self.terms.least or", "if"),
    "failures are not counted": (rounds, "self.restarts += counts", "pass"),
    "nodes that come are counted": (rounds, 'f"it has {ranks}"), counts=False)', 'f"it has {ranks}"))'),
    "nodes that leave are counted": (rounds, "counts=not leaves", "counts=True"),
    "nodes that leave are waited for": (rounds, "self._nodes_before -= leaves", "pass"),
    "a failure is taken for one of the next round": (rounds, "or not self.has_begun or self._alive", "or self._alive"),
    "an end is taken for one of the next round": (
        rounds,
        "return self.has_begun and super()._done(author)",
        "return super()._done(author)",
    ),
    "those that come are taken in one by one": (
        registrar,
        "if not (roster.has_begun and roster.restarts_all):",
        "if True:",
    ),
}


@pytest.mark.parametrize("mistake", MISTAKES)
def test_mistakes_are_noticed(mistake: str, monkeypatch: pytest.MonkeyPatch) -> None:
    module, right, wrong = MISTAKES[mistake]
    mistaken = with_mistake(module, right, wrong)
    place = "rankwise_launch.rounds.Rounds" if module is rounds else "tests.core.roster_model.Registrar"
    monkeypatch.setattr(place, mistaken[place.rpartition(".")[2]])
    with pytest.raises(AssertionError):
        everything()


def everything() -> None:
    test_a_failure_has_all_start_again_once_nothing_is_left_of_the_round(RANGE)
    test_what_ends_well_after_the_end_of_a_round_does_not_count()
    test_the_job_ends_with_the_failure_for_which_no_restart_is_left()
    test_a_node_that_leaves_is_neither_waited_for_nor_counted()
    test_those_that_come_are_taken_in_together_after_a_last_call()
    test_too_few_nodes_wait_for_another_and_then_end()
    for seed in range(50):
        walk(seed)
