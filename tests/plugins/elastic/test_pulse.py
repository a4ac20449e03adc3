"""Who is taken for gone: what a process says of itself counts for more than what others say of it."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator
from typing import Any

import pytest

import rankwise as dist
from rankwise_elastic import board
from rankwise_elastic.board import Pulse


def handle(name: str, **others: object) -> str:
    return json.dumps({"id": name, "host": "elsewhere", "space": "", "pid": 1, "started": "1", "rank": -1, **others})


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Callable[[float], None]:
    """Return what has time pass for the pulse."""
    now = [0.0]
    monkeypatch.setattr(board, "monotonic", lambda: now[0])

    def passes(seconds: float) -> None:
        now[0] += seconds

    return passes


@pytest.fixture
def store() -> Iterator[dist.Store]:
    with dist.HashStore() as made:
        yield made


@pytest.fixture
def pulse(store: dist.Store) -> Iterator[Pulse]:
    made = Pulse(store, handle("mine"))
    yield made
    made.stop()


def test_who_comes_waits_for_the_store_as_long_as_the_program_lets_it(store: dist.Store) -> None:
    """Its server may be away; later words are lost then, which costs nothing."""
    limits = []

    class Noting(dist.HashStore):
        def _run(self, operation: Any, limit_s: float, /, *args: Any, **kwargs: Any) -> Any:
            limits.append(limit_s)
            return super()._run(operation, limit_s, *args, **kwargs)

    with Noting() as patient:
        patient.set_timeout(77)
        Pulse(patient, handle("mine")).stop()
    assert limits[0] == 77


def test_silence_is_counted_from_the_last_word(pulse: Pulse, store: dist.Store, clock: Callable[[float], None]) -> None:
    store.set("pulse/other", "1")
    assert pulse.why_gone(handle("other")) == ""
    clock(board.SILENCE_S - 1)
    assert pulse.why_gone(handle("other")) == ""
    store.set("pulse/other", "2")
    clock(board.SILENCE_S - 1)
    assert pulse.why_gone(handle("other")) == ""
    clock(board.SILENCE_S + 1)
    assert pulse.why_gone(handle("other")) == "it has said nothing for 7 s"
    store.set("pulse/other", "3")
    clock(1)
    assert pulse.why_gone(handle("other")) == ""


def test_nobody_falls_silent_while_the_store_is_out_of_reach(clock: Callable[[float], None]) -> None:
    class Away(dist.HashStore):
        is_away = False

        def _run(self, operation: Any, limit_s: float, /, *args: Any, **kwargs: Any) -> Any:
            if self.is_away:
                raise dist.DistNetworkError("nobody answers")
            return super()._run(operation, limit_s, *args, **kwargs)

    with Away() as store:
        pulse = Pulse(store, handle("mine"))
        store.set("pulse/other", "1")
        assert pulse.why_gone(handle("other")) == ""
        Away.is_away = True
        for _ in range(3):
            clock(board.SILENCE_S - 1)
            assert pulse.why_gone(handle("other"), fresh=True) == ""
        pulse.learn(handle("other"), "others say so")
        assert pulse.why_gone(handle("other")) == "others say so"
        Away.is_away = False
        clock(board.SILENCE_S - 1)
        assert pulse.why_gone(handle("third")) == ""
        clock(2)
        assert pulse.why_gone(handle("other")) == "others say so"
        pulse.stop()


def test_who_was_said_to_be_gone_and_speaks_again_is_not(
    pulse: Pulse, store: dist.Store, clock: Callable[[float], None]
) -> None:
    store.set("pulse/other", "7")
    pulse.learn(handle("other"), "its heart has stopped")
    clock(1)
    assert pulse.gone_among([handle("other"), handle("mine")]) == {handle("other"): "its heart has stopped"}
    store.set("pulse/other", "8")
    clock(1)
    assert pulse.why_gone(handle("other")) == ""


def test_who_has_left_is_gone_for_good(pulse: Pulse, store: dist.Store, clock: Callable[[float], None]) -> None:
    leaver = Pulse(store, handle("other"))
    leaver.leave()
    leaver.stop()  # as the end of its process does
    assert pulse.why_gone(handle("other")) == "it left after a notice"
    clock(100)
    assert pulse.why_gone(handle("other")) == "it left after a notice"


def test_a_process_of_this_host_that_has_ended_is_gone_whatever_it_has_said(pulse: Pulse, store: dist.Store) -> None:
    from rankwise.observing import process_space, started_at

    here = {"space": process_space(), "pid": os.getpid()}
    store.set("pulse/living", "1")
    store.set("pulse/dead", "1")
    assert pulse.why_gone(handle("living", started=started_at(os.getpid()), **here)) == ""
    dead = handle("dead", started="another time", **here)
    pulse.learn(dead, "its process was killed by SIGKILL")
    assert pulse.why_gone(dead) == "its process was killed by SIGKILL"


def test_a_pulse_that_ends_takes_its_word_out_of_the_store(store: dist.Store) -> None:
    made = Pulse(store, handle("other"))
    assert store.check(["pulse/other"])
    made.stop()
    assert not store.check(["pulse/other"])


def test_what_a_silent_process_has_done_is_given_up_later(
    pulse: Pulse, store: dist.Store, clock: Callable[[float], None]
) -> None:
    store.set("pulse/other", "1")
    assert not pulse.is_lost(handle("other"), 30)
    pulse.learn(handle("other"), "others say so")
    clock(board.SILENCE_S + 29)
    assert pulse.why_gone(handle("other"))
    assert not pulse.is_lost(handle("other"), 30)
    clock(2)
    assert pulse.is_lost(handle("other"), 30)
    store.set("pulse/other", "left")
    clock(1)
    assert pulse.is_lost(handle("other"), 30)
