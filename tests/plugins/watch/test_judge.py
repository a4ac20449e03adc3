"""Who is taken for hung, by a clock of the test: a rank that could have sent a heartbeat for all of the limit."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from rankwise.errors import PeerDiedError, PeerUnreachableError
from rankwise_watch import judge
from rankwise_watch.heartbeat import UNKNOWN, Lateness
from rankwise_watch.judge import Judge

LIMIT_S, OUTAGE_S, EVERY_S, HOST = 10.0, 30.0, 1.0, 0
LATE_S = 2 * EVERY_S


class Case:
    """A judge of rank 3, which serves no store, and all that it asks."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, host: int | None = HOST) -> None:
        self.now, self.heard_at = 100.0, 0.0
        self.last: dict[int, float] = {}
        self.fed: list[int] = []
        self.starved: dict[int, float] = {}
        self.ends: dict[int, str] = {}
        self.states: dict[int, str] = {}
        self.elsewhere: set[int] = set()
        self.forgiven = 0
        monkeypatch.setattr(judge, "monotonic", lambda: self.now)
        self.lateness = Lateness(EVERY_S, self.now)
        beats: Any = SimpleNamespace(silent_s=self._silent_s, forgive=self._forgive)
        processes: Any = SimpleNamespace(
            is_fed=self.fed.append,
            starved_s=lambda rank, unseen_s: self.starved.get(rank, 0.0),
            end_of=self.ends.get,
            is_here=lambda rank: rank not in self.elsewhere,
            host=lambda rank: f"host{rank}",
            state=self.states.get,
        )
        self.judge = Judge(beats, processes, self.lateness, LIMIT_S, OUTAGE_S, host, lambda: self.heard_at)

    def _silent_s(self, peer: int, beat: Any) -> float:
        return self.now - self.last.get(peer, 100.0)

    def _forgive(self) -> None:
        self.forgiven += 1

    def answer_until(self, end: float) -> None:
        """Let time pass, with an answer of the store every second."""
        while self.now < end:
            self.now += EVERY_S
            self.judge.answered()

    def hung(self, *peers: int, left: bool = False) -> int | None:
        error = self.judge.hung_among(peers, {peer: SimpleNamespace(left=left) for peer in peers})  # type: ignore[misc]
        return None if error is None else error.rank


@pytest.fixture
def case(monkeypatch: pytest.MonkeyPatch) -> Case:
    return Case(monkeypatch)


def test_a_rank_is_hung_that_is_silent_for_all_of_the_limit(case: Case) -> None:
    case.answer_until(109)
    assert case.hung(1, 2) is None
    case.last[1] = 109
    case.answer_until(110)
    assert case.hung(1, 2) == 2
    assert case.judge.hung_among([2], {}) is not None  # one that has come, and has sent none yet
    assert case.hung(2, left=True) is None
    assert case.hung(HOST) is None  # which has just answered
    assert case.hung(1) is None


def test_what_a_process_was_starved_for_does_not_count(case: Case) -> None:
    case.answer_until(112)
    case.starved[1] = 2.0
    assert case.hung(1) == 1
    case.starved[1] = 2.5
    assert case.hung(1) is None


def test_a_process_is_fed_that_has_not_been_silent_for_half_of_the_limit(case: Case) -> None:
    case.answer_until(110)
    case.fed.clear()
    for last, fed in ((110 - LIMIT_S / 2, []), (110 - LIMIT_S / 2 + 0.5, [1])):
        case.last[1] = last
        assert case.hung(1) is None
        assert case.fed == fed


def test_what_this_ranks_own_answers_were_late_by_does_not_count(case: Case) -> None:
    case.answer_until(104)
    case.now = 107
    case.judge.answered()  # two seconds late
    assert not case.forgiven
    case.answer_until(111)
    assert case.hung(1) is None
    case.answer_until(112)
    assert case.hung(1) == 1


@pytest.mark.parametrize(("took_s", "forgives"), [(LIMIT_S / 2, False), (LIMIT_S / 2 + 0.5, True)])
def test_all_is_counted_anew_after_an_answer_that_took_half_of_the_limit(
    case: Case, took_s: float, forgives: bool
) -> None:
    case.now += took_s
    case.judge.answered()
    assert case.forgiven == forgives


def test_a_rank_that_was_late_itself_counts_anew(case: Case) -> None:
    case.answer_until(109)
    case.judge.was_late(LATE_S)
    assert not case.forgiven
    case.judge.was_late(LATE_S + 0.1)
    assert case.forgiven == 1
    case.answer_until(118)
    assert case.hung(1) is None
    case.answer_until(119)
    assert case.hung(1) == 1


def test_the_host_of_the_store_is_hung_that_does_not_answer(case: Case) -> None:
    case.answer_until(101)
    assert case.fed == [HOST]
    case.now = 110
    assert case.judge.hung_host() is None
    case.now = 111
    assert case.judge.hung_host() is not None
    case.heard_at = 102.0  # too late for this rank
    assert case.judge.hung_host() is None
    case.now = 112
    assert case.judge.hung_host() is not None
    case.judge.was_late(LATE_S + 1)
    assert case.judge.hung_host() is None


def test_nobody_is_hung_where_nobody_knows_the_host(monkeypatch: pytest.MonkeyPatch) -> None:
    case = Case(monkeypatch, None)
    case.judge.answered()
    assert not case.fed
    case.now = 200
    assert case.judge.hung_host() is None


@pytest.mark.parametrize(
    ("end", "state", "said"),
    [
        ("killed by SIGKILL", "stopped", "rank 1 on host1 is gone: killed by SIGKILL"),
        (None, "stopped", "hung: its process is there, stopped; no heartbeat for more than 10 s"),
        (None, None, "rank 1 on host1 is gone: hung; no heartbeat for more than 10 s"),
    ],
)
def test_it_is_said_what_is_known_of_its_process(case: Case, end: str | None, state: str | None, said: str) -> None:
    case.ends |= {1: end} if end else {}
    case.states |= {1: state} if state else {}
    case.answer_until(110)
    error = case.judge.hung_among([1], {})
    assert type(error) is PeerDiedError
    assert said in str(error)


def test_a_rank_on_another_machine_is_unreachable_after_an_outage_and_not_dead(case: Case) -> None:
    case.elsewhere |= {1, HOST}
    case.answer_until(110)
    assert case.hung(1, 2) == 2  # which is here
    case.answer_until(129)
    assert case.hung(1) is None
    case.answer_until(130)
    error = case.judge.hung_among([1], {})
    assert type(error) is PeerUnreachableError
    assert str(error) == "rank 1 on host1 is unreachable: no heartbeat for more than 30 s; " + UNKNOWN
    for late_s, is_over in ((OUTAGE_S - 1, False), (OUTAGE_S, True)):
        case.now = 130 + late_s
        host = case.judge.hung_host()
        assert (type(host) is PeerUnreachableError) == is_over
