"""Matching against a list that is searched from its beginning, as MPI's rules are usually told."""

from __future__ import annotations

import sys
from collections.abc import Callable
from time import process_time
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from rankwise_gloo_tcp.protocol.frames import Header, Kind
from rankwise_gloo_tcp.protocol.matching import Arrival, Matching

SOURCES, TAGS = st.integers(0, 2), st.integers(0, 2)


def receive_from(peer: int | None, tag: int) -> Any:
    return SimpleNamespace(peer=peer, tag=tag)


def arrival_of(source: int, tag: int) -> Arrival[Any]:
    return Arrival(source, Header(Kind.MESSAGE, 0, tag))


def meets(receive: Any, source: int, tag: int) -> bool:
    return receive.tag == tag and receive.peer in (None, source)


class Meetings(RuleBasedStateMachine):
    """Two lists stand beside the matching: each newcomer meets the first that it fits."""

    def __init__(self) -> None:
        super().__init__()
        self.matching: Matching[Any] = Matching()
        self.receives: list[Any] = []
        self.arrivals: list[Arrival[Any]] = []

    @rule(peer=st.none() | SOURCES, tag=TAGS)
    def receive(self, peer: int | None, tag: int) -> None:
        receive = receive_from(peer, tag)
        wanted = next((a for a in self.arrivals if meets(receive, a.source, a.header.tag)), None)
        assert self.matching.post(receive) is wanted
        if wanted is None:
            self.receives.append(receive)
        else:
            self.arrivals.remove(wanted)

    @rule(source=SOURCES, tag=TAGS)
    def arrive(self, source: int, tag: int) -> None:
        wanted = next((r for r in self.receives if meets(r, source, tag)), None)
        assert self.matching.arrive(source, tag) is wanted
        if wanted is None:
            self.arrivals.append(arrival_of(source, tag))
            self.matching.keep(self.arrivals[-1])
        else:
            self.drop(wanted)

    @precondition(lambda self: self.receives)
    @rule(data=st.data())
    def withdraw(self, data: st.DataObject) -> None:
        receive = data.draw(st.sampled_from(self.receives))
        assert self.matching.withdraw(receive)
        assert not self.matching.withdraw(receive)
        self.drop(receive)

    @precondition(lambda self: self.arrivals)
    @rule(data=st.data())
    def forget(self, data: st.DataObject) -> None:
        arrival = data.draw(st.sampled_from(self.arrivals))
        self.matching.forget(arrival)
        self.arrivals.remove(arrival)

    @precondition(lambda self: len(self.receives) + len(self.arrivals) > 3)
    @rule()
    def clear(self) -> None:
        receives, arrivals = self.matching.clear()
        assert same(receives, self.receives)
        assert same(arrivals, self.arrivals)
        self.receives, self.arrivals = [], []

    @invariant()
    def tells_what_waits(self) -> None:
        matching = self.matching
        for source in (None, 0, 1, 2):
            assert same(matching.receives(source), [r for r in self.receives if r.peer == source])
        for tag in range(3):
            of_tag = [a for a in self.arrivals if a.header.tag == tag]
            assert [a for a in matching.arrivals() if a.header.tag == tag] == of_tag
            for source in range(3):
                before = any(r.tag == tag and r.peer in (source, None) for r in self.receives)
                assert matching.is_clear(source, tag) != (before or any(a.source == source for a in of_tag))

    def drop(self, receive: Any) -> None:
        self.receives = [r for r in self.receives if r is not receive]


def same(some: list[Any], others: list[Any]) -> bool:
    return sorted(map(id, some)) == sorted(map(id, others))


TestMeetings = Meetings.TestCase
TestMeetings.settings = settings(
    max_examples=60, stateful_step_count=40, deadline=None, suppress_health_check=[HealthCheck.too_slow]
)


def receives_wait(matching: Matching[Any], count: int) -> list[Any]:
    receives = [receive_from(None if i % 2 else i % 3, i % 5) for i in range(count)]
    for receive in receives:
        matching.post(receive)
    return receives


def messages_wait(matching: Matching[Any], count: int) -> list[Arrival[Any]]:
    arrivals = [arrival_of(i % 3, i % 5) for i in range(count)]
    for arrival in arrivals:
        matching.keep(arrival)
    return arrivals


def both_wait(matching: Matching[Any], count: int) -> None:
    receives_wait(matching, count)
    messages_wait(matching, count)


def come_and_go(matching: Matching[Any], _: Any) -> None:
    receive = receive_from(7, 7)
    matching.post(receive)
    assert matching.arrive(7, 7) is receive


#: What waits, and a step on it.
STEPS: dict[str, tuple[Callable[[Matching[Any], int], Any], Callable[[Matching[Any], Any], object]]] = {
    "withdraw the last": (receives_wait, lambda matching, waiting: matching.withdraw(waiting.pop())),
    "forget the last": (messages_wait, lambda matching, waiting: matching.forget(waiting.pop())),
    "take from one": (messages_wait, lambda matching, _: matching.post(receive_from(1, 1))),
    "take from anyone": (messages_wait, lambda matching, _: matching.post(receive_from(None, 1))),
    "arrive for the first": (receives_wait, lambda matching, _: matching.arrive(1, 1)),
    "come and go": (both_wait, come_and_go),
}


@pytest.mark.parametrize("name", STEPS)
def test_a_step_costs_no_more_when_many_wait(name: str) -> None:
    """Lines that are searched would cost a hundred times as much."""
    begin, step = STEPS[name]

    def cost(count: int) -> float:
        matching: Matching[Any] = Matching()
        waiting = begin(matching, count)
        start = process_time()
        for _ in range(12):
            step(matching, waiting)
        return process_time() - start

    few, many = (min(cost(count) for _ in range(7)) for count in (200, 20_000))
    assert many < 12 * few + 20e-6


def test_nothing_is_left_of_what_has_met() -> None:
    matching: Matching[Any] = Matching()
    for _ in range(3):
        messages_wait(matching, 300)
        for i in range(300):
            assert matching.post(receive_from(None, i % 5)) is not None
        receives_wait(matching, 300)
        for i in range(300):
            assert matching.arrive(i % 3 if i % 2 == 0 else 0, i % 5) is not None
    held = [getattr(matching, name) for name in ("waiting_receives", "lines", "waiting_arrivals")]
    assert held == [{}, {}, {}]
    assert sum(map(sys.getsizeof, held)) < 4000
