"""Who is in an elastic job of several nodes, who is lost, and how it ends, in random orders too."""

from __future__ import annotations

import copy
import random
import select
from types import SimpleNamespace
from typing import Any

import pytest
from tests.core.roster_model import FIRST, PATIENCE, Launcher, Model, with_mistake

from rankwise import DistTimeoutError, HashStore
from rankwise_launch import registrar, roster, words
from rankwise_launch.config import ExitCode
from rankwise_launch.elastic import ElasticAttempt
from rankwise_launch.job_log import JobLog
from rankwise_launch.roster import NodeJoined, NodeLost, Roster, Terms
from rankwise_launch.tally import Tally
from rankwise_launch.verdicts import Verdicts
from rankwise_launch.words import BREAK_S, GONE, KILLED

FIXED = Terms(3, 3, 2, 1)
RANGE = Terms(2, 4, 2, None)


def begun(terms: Terms, *sizes: int) -> tuple[Model, list[Launcher]]:
    """Return a job that has begun with nodes that have so many ranks."""
    model = Model(terms, sizes[0])
    others = [model.come(f"launcher {number}", size) for number, size in enumerate(sizes[1:], 1)]
    model.look()
    if not model.roster.has_begun:
        model.look_for(PATIENCE.last_call_s + 1)
    assert model.roster.has_begun
    return model, [model.first, *others]


def kill(model: Model, launcher: Launcher) -> None:
    launcher.is_there, launcher.word = False, KILLED
    model.look()


# ---------------------------------------------------------------------- the beginning


def test_a_fixed_number_of_nodes_begins_when_all_have_come() -> None:
    model = Model(FIXED)
    model.come("a", 1)
    model.look()
    assert not model.roster.has_begun
    model.come("b", 3)
    model.look()
    assert [list(member.ranks) for member in model.roster.members.values()] == [[0, 1], [2], [3, 4, 5]]


def test_ranks_follow_the_numbers_of_the_nodes() -> None:
    model = Model(FIXED)
    model.come("late", 1, wanted=2)
    model.come("early", 1, wanted=1)
    model.look()
    assert {member.launcher: member.first_rank for member in model.roster.members.values()} == {
        FIRST: 0,
        "early": 2,
        "late": 3,
    }


def test_more_nodes_than_the_least_have_a_last_call() -> None:
    model = Model(RANGE)
    model.come("a")
    model.look_for(PATIENCE.last_call_s - 1)
    assert not model.roster.has_begun
    model.come("b")
    model.look_for(2)
    assert model.roster.has_begun
    assert model.roster.world_size == 6


def test_nobody_is_called_any_more_once_all_are_there() -> None:
    model = Model(RANGE)
    for name in "abc":
        model.come(name)
    model.look()
    assert model.roster.has_begun


def test_a_launcher_that_dies_before_the_job_begins_leaves_its_number_to_others() -> None:
    model = Model(FIXED)
    dead = model.come("dead", wanted=1)
    model.look()
    kill(model, dead)
    model.come("a", wanted=1)
    model.come("b")
    model.look()
    assert {number: member.launcher for number, member in model.roster.members.items()} == {0: FIRST, 1: "a", 2: "b"}


@pytest.mark.parametrize(
    ("terms", "text"),
    [
        (FIXED, "node 2 has not joined at here within 60 s; start `rankwise run --nnodes 3 --node-rank 2 ...` there"),
        (Terms(3, 4), "only 2 nodes have joined at here within 60 s; the job begins with at least 3"),
    ],
)
def test_a_job_that_lacks_nodes_does_not_begin(terms: Terms, text: str) -> None:
    model = Model(terms)
    model.come("a")
    model.look_for(PATIENCE.join_s + 1)
    verdict = model.roster.verdict
    assert verdict is not None
    assert (verdict.exit_code, verdict.text) == (ExitCode.NODE_MISSING, text)


def test_a_job_begins_with_enough_ranks_even_if_there_are_enough_nodes() -> None:
    model = Model(Terms(1, 4, 0, 5))
    model.look_for(PATIENCE.last_call_s + 1)
    model.come("a")
    model.look_for(1)
    assert not model.roster.has_begun
    model.come("b")
    model.look_for(1)
    assert model.roster.has_begun


# ---------------------------------------------------------------------- a node is lost


def test_the_ranks_of_a_lost_node_are_lost() -> None:
    model, (_, a, b) = begun(Terms(3, 3, 0, 3), 2, 2, 2)
    kill(model, a)
    (news,) = model.roster.news
    assert news == NodeLost(1, "host", "its launcher was killed", (2, 3), 4, False, False)
    assert model.roster.verdict is None
    kill(model, b)
    verdict = model.roster.verdict
    assert verdict is not None
    text = "its launcher was killed; only 2 ranks are left, which ends the job"
    assert (verdict.lost, verdict.node_rank, verdict.text) == (True, 2, text)


def test_two_nodes_may_be_lost_at_once() -> None:
    model, (_, a, b) = begun(FIXED, 2, 2, 2)
    a.is_there = b.is_there = False
    model.look_for(PATIENCE.silence_s + 2)
    assert [news.number for news in model.roster.news] == [1, 2]
    assert model.roster.left == 2
    assert model.roster.verdict is None


def test_ranks_that_had_ended_are_not_lost_with_their_node() -> None:
    model, (_, a, _) = begun(Terms(3, 3, 0, 1), 2, 2, 2)
    model.write(a, "give_up", 2)
    model.write(a, "finish", 3)
    kill(model, a)
    assert model.roster.news[0].ranks == ()
    assert model.roster.left == 5


def test_whom_the_others_have_given_up_changes_nothing_any_more() -> None:
    model, (_, a, _) = begun(Terms(3, 3, 5, 1), 2, 2, 2)
    a.is_there = False
    model.look_for(PATIENCE.silence_s + 2)
    assert not any(model.write(a, kind, 2) for kind in ("restart", "give_up", "finish"))
    verdict = {"success": False, "node_rank": 1, "host": "host", "exit_code": 3, "text": "it failed"}
    assert not any((model.write(a, "give", verdict), model.write(a, "done"), model.write(a, "kill")))
    assert model.roster.left == 4


def test_a_rank_that_fails_once_too_few_are_left_ends_the_job() -> None:
    model, (first, a, b) = begun(Terms(3, 3, 0, 2), 2, 1, 1)
    kill(model, a)
    kill(model, b)
    model.write(first, "give_up", 0)
    assert (first.roster.left, first.roster.is_enough()) == (1, False)


def test_restarts_are_counted_over_all_nodes() -> None:
    model, launchers = begun(Terms(2, 2, 3, 1), 1, 1)
    taken = [model.write(launchers[number % 2], "restart", number % 2) for number in range(5)]
    assert taken == [True, True, True, False, False]
    assert model.roster.lives == {0: 2, 1: 1}


# ---------------------------------------------------------------------- a node comes


def test_who_comes_back_has_the_ranks_that_were_lost_and_their_lives() -> None:
    model, (_, a, _) = begun(Terms(3, 3, 2, 1), 2, 2, 2)
    model.write(a, "restart", 3)
    kill(model, a)
    model.come("again")
    model.look()
    assert model.roster.news[1] == NodeJoined(1, "host", range(2, 4), 6, True)
    assert (model.roster.left, model.roster.lives[2], model.roster.lives[3]) == (6, 1, 2)


def test_nobody_takes_a_place_before_those_that_meet_know_that_it_is_vacant() -> None:
    model, (_, a, _) = begun(FIXED, 2, 2, 2)
    kill(model, a)
    model.come("again")
    model.look(has_heard=False)
    assert model.roster.of("again") is None
    model.look()
    assert model.roster.of("again") is not None


def test_a_launcher_that_has_gone_is_soon_missed_unless_only_its_connection_has() -> None:
    model, (_, a, b) = begun(FIXED, 2, 2, 2)
    for launcher in (a, b):
        launcher.is_there, launcher.word = False, GONE
    model.look(0.5)
    b.is_there = True  # by another connection
    assert not model.roster.members[1].is_lost
    model.look(0.5)
    model.look(BREAK_S)
    assert [model.roster.members[number].is_lost for number in (1, 2)] == [True, False]
    assert [news.text for news in model.roster.news if isinstance(news, NodeLost)] == [
        "its launcher is gone: its connection has ended"
    ]


def test_losses_are_told_of_before_more_is_handled() -> None:
    log = JobLog(FIRST, Roster(Terms(3, 3)))
    for number, name in enumerate([FIRST, "a", "b"]):
        log.write("enrol", number, name, "host", 1)
    log.write("begin", 0)
    verdicts = Verdicts(log, 0, lambda: None)
    assert log.is_handled
    log.write("lost", "a", "it was killed")
    assert not log.is_handled
    assert [news.number for news in verdicts.take_news()] == [1]
    log.write("lost", "b", "it was killed")  # before that of the first is handled
    verdicts.note_handled()
    assert not log.is_handled
    assert [news.number for news in verdicts.take_news()] == [2]
    verdicts.note_handled()
    assert log.is_handled
    verdicts.close()


@pytest.mark.parametrize("has_another", [False, True])
def test_what_is_said_while_a_launcher_acts_on_news_wakes_it_again(has_another: bool) -> None:
    """Two nodes are lost, the second while the launcher tells of the first: it tells of both."""
    log = JobLog(FIRST, Roster(Terms(3, 3)))
    for number, name in enumerate([FIRST, "a", "b"]):
        log.write("enrol", number, name, "host", 1)
    log.write("begin", 0)
    verdicts = Verdicts(log, 0, lambda: None)
    told: list[str] = []

    def say(text: str) -> None:
        told.append(text)
        if has_another and len(told) == 1:
            log.write("lost", "b", "it was killed")

    means: Any = SimpleNamespace(received=[], say=say, config=SimpleNamespace(nproc_per_node=1), first_rank=0)
    attempt = ElasticAttempt(Tally(log), means, means.config, means, means, means, means, verdicts, None)
    log.write("lost", "a", "it was killed")
    while select.select([verdicts], [], [], 0)[0]:
        attempt._on_word()
    assert [text[:16] for text in told] == [f"rankwise: node {number}" for number in ((1, 2) if has_another else (1,))]
    verdicts.close()


class LateStore:
    """A store whose every other answer is lost, after it has done what was asked."""

    def __init__(self) -> None:
        self.values: dict[str, bytes] = {}
        self.is_late = False

    def compare_set(self, key: str, expected: bytes, value: bytes) -> bytes:
        found = self.values.setdefault(key, value)
        self.is_late = not self.is_late
        if self.is_late:
            raise DistTimeoutError("no answer")
        return found


def test_an_outage_costs_no_entry_and_doubles_none() -> None:
    store: Any = LateStore()
    first, second = (JobLog(name, Roster(Terms(2, 2, 9)), store) for name in (FIRST, "a"))
    first.write("enrol", 0, FIRST, "host", 1)
    first.write("enrol", 1, "a", "host", 1)
    first.write("begin", 0)
    assert [log.write("restart", 0) for log in (second, first, second, second)] == [True] * 4
    assert first.write("restart", 0)
    assert (first.roster.restarts, len(store.values)) == (5, 8)


def test_entries_are_read_one_by_one_or_in_runs_and_applied_once() -> None:
    with HashStore() as store:
        writer, reader = (JobLog(name, Roster(Terms(2, 40)), store) for name in (FIRST, "a"))
        for number in range(40):
            writer.write("enrol", number, FIRST if number == 0 else str(number), "host", 1)
        assert reader.read(1.0, 16)
        assert reader.read(1.0)
        assert len(reader.roster.members) == 17
        reader.write("kill")  # which it may not do, and for which it reads all that stands before it
        assert not reader.read(0.01, 16)
        assert vars(reader.roster) == vars(writer.roster)


def test_who_comes_late_has_ranks_beyond_all_others() -> None:
    model, _ = begun(RANGE, 2, 2)
    model.come("late", 3)
    model.look()
    assert model.roster.news == [NodeJoined(2, "host", range(4, 7), 7, False)]


def test_a_node_of_another_size_does_not_take_the_ranks_of_a_lost_one() -> None:
    model, (_, a) = begun(RANGE, 2, 2)
    kill(model, a)
    model.come("smaller", 1)
    model.look()
    assert list(model.roster.members[2].ranks) == [4]
    model.come("numbered", 1, wanted=1)
    model.look()
    code, text = model.roster.refused["numbered"]
    assert (code, text) == (ExitCode.USAGE, "node 1 of this job has 2 ranks; start it with -n 2")


@pytest.mark.parametrize(("wanted", "text"), [(-1, "there are 3 launchers already"), (1, "is node 1 already")])
def test_one_too_many_waits_for_a_place(wanted: int, text: str) -> None:
    model, (_, a, _) = begun(FIXED, 2, 2, 2)
    model.come("spare", wanted=wanted)
    model.look_for(PATIENCE.join_s - 2)
    assert model.roster.refused == {}
    model.look_for(3)
    assert text in model.roster.refused["spare"][1]
    model.come("other", wanted=wanted)
    model.look_for(5)
    kill(model, a)
    assert model.roster.of("other") is not None


def test_a_spare_that_dies_gets_no_place() -> None:
    model, (_, a, _) = begun(FIXED, 2, 2, 2)
    spare = model.come("spare")
    model.look()
    spare.is_there = False
    model.look_for(PATIENCE.silence_s + 2)
    kill(model, a)
    model.look()
    assert model.roster.of("spare") is None


def test_nobody_joins_a_job_that_is_finishing() -> None:
    model, (first, _) = begun(RANGE, 2, 2)
    model.write(first, "finish", 0)
    model.come("late")
    model.look()
    assert model.roster.refused["late"] == (0, "the job is finishing, and takes in no more nodes")


def test_nor_if_that_turns_out_just_before() -> None:
    model, (first, _) = begun(RANGE, 2, 2)
    model.come("late")
    model.meanwhile = lambda: model.write(first, "finish", 0)
    model.look()
    assert model.roster.of("late") is None
    model.look()
    assert "late" in model.roster.refused


def test_two_with_the_same_number_are_told_before_the_job_begins() -> None:
    model = Model(FIXED)
    model.come("a", wanted=1)
    model.come("b", wanted=1)
    model.look()
    assert "another launcher, on host, is node 1 already" in model.roster.refused["b"][1]


# ---------------------------------------------------------------------- too few nodes


def test_too_few_nodes_wait_for_another_and_then_end() -> None:
    model, (_, a) = begun(RANGE, 2, 2)
    assert model.roster.min_ranks == 4
    kill(model, a)
    assert model.roster.news[0].is_awaited  # type: ignore[union-attr]
    model.look_for(PATIENCE.join_s - 1)
    assert model.roster.verdict is None
    again = model.come("again")
    model.look()
    kill(model, again)
    model.look_for(PATIENCE.join_s + 1)
    verdict = model.roster.verdict
    assert verdict is not None
    text = "only 1 of at least 2 nodes is left, and none has come for 60 s"
    assert (verdict.exit_code, verdict.text) == (ExitCode.NODE_LOST, text)


def test_ranks_that_end_well_meanwhile_end_the_job_well() -> None:
    model, (first, a) = begun(RANGE, 1, 1)
    kill(model, a)
    model.write(first, "finish", 0)
    model.write(first, "done")
    assert model.roster.verdict is not None
    assert model.roster.verdict.success


def test_the_least_ranks_are_those_of_the_smallest_nodes() -> None:
    model, _ = begun(Terms(2, 3, 0, None), 4, 1, 2)
    assert model.roster.min_ranks == 3


# ---------------------------------------------------------------------- the end


def test_the_job_ends_well_with_the_last_node_that_is_left() -> None:
    model, (first, a, b) = begun(FIXED, 1, 1, 1)
    for launcher, rank in ((first, 0), (a, 1)):
        model.write(launcher, "finish", rank)
        model.write(launcher, "done")
    assert model.roster.verdict is None
    kill(model, b)
    assert model.roster.verdict is not None
    assert model.roster.verdict.success


def test_the_first_verdict_counts() -> None:
    model, (first, a, _) = begun(FIXED, 1, 1, 1)
    for launcher in (a, first):
        verdict = {"success": False, "node_rank": 1, "host": "h", "exit_code": 3, "text": launcher.name}
        model.write(launcher, "give", verdict)
    assert model.roster.verdict is not None
    assert model.roster.verdict.text == a.name
    model.come("late")
    model.look()
    assert model.roster.refused["late"][1] == "the job is ending"


# ---------------------------------------------------------------------- random orders


def walk(seed: int, steps: int = 150) -> Model:
    """Have a job go through random steps, and see after each that what must hold does."""
    draw = random.Random(seed)
    least = draw.randint(1, 3)
    terms = Terms(least, draw.randint(max(least, 2), 4), draw.randint(0, 4), draw.choice([None, 1, 2, 4]))
    model = Model(terms, draw.choice([1, 2]))
    ranks: dict[str, range] = {}
    for _ in range(steps):
        before = copy.deepcopy(model.roster)
        model.step(draw)
        assert_sound(before, model.roster, ranks)
    for launcher in model.launchers.values():
        model.catch_up(launcher)
        launcher.roster.news.clear()
        assert vars(launcher.roster) == vars(model.roster), "launchers do not agree"
    return model


def assert_sound(before: Roster, after: Roster, ranks: dict[str, range]) -> None:
    """See that numbers are unique and keep their meaning, that the counts are right, and that the end is the end."""
    after.news.clear()
    living = after.living()
    assert len(living) <= after.terms.most
    if not after.has_begun:
        return
    held = [rank for member in after.members.values() for rank in member.ranks]
    assert sorted(held) == list(range(after.world_size)), "ranks are held twice, or by nobody"
    for member in after.members.values():
        assert ranks.setdefault(member.launcher, member.ranks) == member.ranks, "a launcher has got other ranks"
        was = before.of(member.launcher)
        assert was is None or not was.is_lost or was == member, "a lost node has changed"
    there = [rank for member in living for rank in member.ranks if rank not in member.given_up]
    well = [rank for member in after.members.values() if member.is_lost for rank in member.finished - member.given_up]
    assert after.left == len(there) + len(well)
    assert after.restarts <= after.terms.max_restarts
    came = {each.launcher for each in living} - {each.launcher for each in before.living()}
    assert before.verdict is None or (after.verdict == before.verdict and not came), "the job has gone on after its end"
    assert not (before.has_begun and before.is_finishing and came), "somebody has come too late"
    if after.verdict is not None and after.verdict.success and before.verdict is None:
        assert after.is_enough()
        assert all(member.is_done for member in living)


@pytest.mark.parametrize("seed", range(10))
def test_random_orders_keep_ranks_unique_and_counts_right(seed: int) -> None:
    for number in range(15):
        walk(1000 * seed + number)


@pytest.mark.parametrize("seed", range(4))
def test_what_has_begun_ends_once_all_ranks_that_are_left_have_ended(seed: int) -> None:
    for number in range(50):
        model = walk(10_000 + 1000 * seed + number, 60)
        if not model.roster.has_begun:
            continue
        for launcher in [model.first, *model.living()]:
            model.catch_up(launcher)
            member = launcher.roster.of(launcher.name)
            if member is None:
                continue
            for rank in set(member.ranks) - member.finished - member.given_up:
                model.write(launcher, "finish", rank)
            model.write(launcher, "done")
        model.look_for(PATIENCE.join_s + PATIENCE.silence_s + 2)
        assert model.roster.verdict is not None, vars(model.roster)


#: Mistakes that might be made, each as words of the protocol and what stands there instead.
MISTAKES: dict[str, tuple[Any, str, str]] = {
    "a launcher that was given up still counts": (
        roster,
        "return None if member is None or member.is_lost else member",
        "return member",
    ),
    "ranks of a lost node are not counted": (roster, "member.given_up.update(ranks)", "pass"),
    "late nodes get ranks that others have": (
        roster,
        "self.world_size if before is None else",
        "0 if before is None else",
    ),
    "the last verdict counts": (roster, "if self.verdict is not None or self._alive(author) is None:", "if False:"),
    "a finishing job takes in nodes": (roster, "if self.has_begun and self.is_finishing:", "if False:"),
    "there may be one node too many": (registrar, ">= self._roster.terms.most:", "> self._roster.terms.most:"),
    "nobody is ever taken for lost": (words, "if self._silent_s > limit_s:", "if False:"),
    "what has gone is waited for as long as what is silent": (words, "min(BREAK_S, limit_s)", "limit_s"),
    "a connection that breaks is the end": (words, "word == GONE and self._silent_s", "word == GONE or self._silent_s"),
}


@pytest.mark.parametrize("mistake", MISTAKES)
def test_mistakes_are_noticed(mistake: str, monkeypatch: pytest.MonkeyPatch) -> None:
    module, right, wrong = MISTAKES[mistake]
    mistaken = with_mistake(module, right, wrong)
    place, name = {
        roster: ("tests.core.roster_model", "Roster"),
        registrar: ("tests.core.roster_model", "Registrar"),
        words: ("rankwise_launch.registrar", "Watch"),
    }[module]
    monkeypatch.setattr(f"{place}.{name}", mistaken[name])
    with pytest.raises(AssertionError):
        everything()


def everything() -> None:
    test_two_nodes_may_be_lost_at_once()
    test_the_first_verdict_counts()
    test_nor_if_that_turns_out_just_before()
    test_a_launcher_that_has_gone_is_soon_missed_unless_only_its_connection_has()
    for seed in range(50):
        walk(seed)
