"""Errors that travel, and the log that lets all ranks raise the same one."""

from __future__ import annotations

import json
import threading
from contextlib import suppress

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.threads import at_once

from rankwise.errors import (
    DistBackendError,
    DistError,
    DistNetworkError,
    DistTimeoutError,
    GroupAbortedError,
    PeerDiedError,
    PeerUnreachableError,
    ProtocolError,
)
from rankwise.observing import pack_error, unpack_error
from rankwise.store import HashStore
from rankwise_watch.verdict import Log, Verdict, ask

PATIENCE_S = 10.0

EVERYONE = (0, 1, 2)


@pytest.mark.parametrize(
    "error",
    [
        PeerDiedError(2, "node7", "its process was killed by SIGKILL"),
        PeerUnreachableError(2, "node7", "no heartbeat for more than 20 s"),
        ProtocolError("from rank 2 on node7: a frame's header was changed on its way"),
        DistTimeoutError("all_reduce #3: not done within 1 s"),
        GroupAbortedError("group 'x' was aborted on rank 1"),
    ],
)
def test_an_error_arrives_as_it_was_sent(error: DistError) -> None:
    got = unpack_error(json.loads(json.dumps(pack_error(error, 0))))
    assert type(got) is type(error)
    assert str(got) == str(error)


def test_an_error_of_a_kind_that_does_not_travel_says_whose_it_was() -> None:
    got = unpack_error(pack_error(DistBackendError("out of memory"), 5))
    assert isinstance(got, GroupAbortedError)
    assert str(got) == "rank 5 gave the group up: DistBackendError: out of memory"


def test_what_travels_is_bounded() -> None:
    assert len(json.dumps(pack_error(GroupAbortedError("x" * 100_000), 0))) < 2000
    assert len(json.dumps(pack_error(PeerDiedError(1, "h" * 9000, "c" * 9000), 0))) < 1000


WORDS = ["rank", "host", "cause", "kind", "text", "lost"]
json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.sampled_from(WORDS), inner),
    max_leaves=8,
)


@settings(deadline=None)
@given(json_values)
def test_only_our_error_escapes_from_what_others_write(content: object) -> None:
    with suppress(ProtocolError):
        assert isinstance(unpack_error(content), DistError)


def test_a_death_ends_all_groups_of_the_dead_and_what_has_happened_in_a_group_that_group_only() -> None:
    death, symptom = (Verdict(group, PeerDiedError(2, "h", "c")) for group in ("", "dp"))
    assert death.covers("any", (1, 2))
    assert not death.covers("any", (0, 1))
    assert symptom.covers("dp", EVERYONE)
    assert not symptom.covers("tp", EVERYONE)


def test_the_first_verdict_about_a_group_is_everyones() -> None:
    store, barrier = HashStore(), threading.Barrier(3)

    def rank(number: int) -> tuple[str, int]:
        heard = list[Verdict]()
        log = Log(store, number, heard.append)
        barrier.wait(PATIENCE_S)
        error = log.settle(Verdict("dp", GroupAbortedError(f"rank {number} says so")), "dp", EVERYONE)
        return str(error), len(heard)

    (answer,) = set(at_once(rank, range(3), PATIENCE_S))
    assert answer[1] == 1, "a second verdict about the same group was written"


def test_a_verdict_about_another_group_is_passed_over() -> None:
    store = HashStore()
    first, second = list[Verdict](), list[Verdict]()
    Log(store, 0, first.append).settle(Verdict("tp", GroupAbortedError("of tp")), "tp", EVERYONE)
    error = Log(store, 1, second.append).settle(Verdict("dp", GroupAbortedError("of dp")), "dp", EVERYONE)
    assert str(error) == "of dp"
    assert [verdict.group for verdict in second] == ["tp", "dp"]


def test_a_secondary_symptom_gives_way_to_the_death_that_was_its_cause() -> None:
    store = HashStore()
    Log(store, 0, lambda verdict: None).settle(Verdict("", PeerDiedError(2, "h", "SIGKILL")), "dp", EVERYONE)
    symptom = Verdict("dp", PeerDiedError(0, "h", "its connections have ended"))
    error = Log(store, 1, lambda verdict: None).settle(symptom, "dp", EVERYONE)
    assert isinstance(error, PeerDiedError)
    assert error.rank == 2


def test_who_was_not_asked_hears_of_it_by_looking() -> None:
    store, heard = HashStore(), list[Verdict]()
    log = Log(store, 1, heard.append)
    log.catch_up()
    assert heard == []
    Log(store, 0, lambda verdict: None).settle(Verdict("dp", DistTimeoutError("late")), "dp", EVERYONE)
    log.catch_up()
    log.catch_up()
    assert [str(verdict.error) for verdict in heard] == ["timed out: late"]


def test_a_malformed_verdict_ends_nothing() -> None:
    store, heard = HashStore(), list[Verdict]()
    store.set("verdict/0", b"\xff{")
    error = Log(store, 1, heard.append).settle(Verdict("dp", DistTimeoutError("late")), "dp", EVERYONE)
    assert str(error) == "timed out: late"
    assert not heard[0].covers("dp", EVERYONE)


def test_a_store_that_is_gone_is_said_to_be() -> None:
    store = HashStore()
    store.close()
    with pytest.raises(DistError, match="closed"):
        Log(store, 0, lambda verdict: None).settle(Verdict("dp", DistNetworkError("x")), "dp", EVERYONE)


def test_questions_of_those_who_look_stand_between_verdicts_and_are_none() -> None:
    store, heard, asked = HashStore(), [], []
    ask(store, "look 1")
    log = Log(store, 0, heard.append, asked.append)
    mine = Verdict("dp", GroupAbortedError("of dp"))
    assert str(log.settle(mine, "dp", EVERYONE)) == "of dp"
    ask(store, "look 2")
    ask(store, "look 2")  # who has written it already has no need to again
    late, later = [], []
    Log(store, 1, late.append, later.append).catch_up()
    log.catch_up()
    assert asked == later == ["look 1", "look 2"]
    assert [str(verdict.error) for verdict in heard] == [str(verdict.error) for verdict in late] == ["of dp"]
    Log(store, 2, late.append).catch_up()  # nobody answers, and nothing happens
    assert len(late) == 2
