"""Whose turn it is on a group: one holder at a time, in Python and compiled."""

import threading
import weakref
from collections.abc import Iterator

import pytest
from tests.threads import at_once

from rankwise.basics import native
from rankwise.collective.issue_order import Turn, make_turn

PATIENCE_S = 60.0

THREADS, TURNS = 4, 2000


@pytest.fixture(params=["python", "compiled"])
def turn(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[Turn]:
    if request.param == "python":
        monkeypatch.setattr(native, "module", lambda: None)
    elif native.module() is None:
        pytest.skip(native.state()[1])
    return make_turn(threading.RLock())


def test_one_holder_at_a_time(turn: Turn) -> None:
    first, second = object(), object()
    assert turn.holder is None
    assert turn.take(first)
    assert turn.holder is first
    assert not turn.take(second)
    assert not turn.take(first)
    turn.holder = None
    assert turn.take(second)


def test_nobody_overtakes_those_in_the_line(turn: Turn) -> None:
    turn.queued = 2
    assert not turn.take(object())
    assert turn.holder is None
    turn.queued = 0
    assert turn.take(object())


def test_watchers_are_counted(turn: Turn) -> None:
    turn.watchers += 1
    assert turn.watchers == 1
    turn.watchers -= 1
    assert not turn.watchers


def test_threads_have_it_in_turn(turn: Turn) -> None:
    inside, seen = [], []

    def work(_: int) -> None:
        me = object()
        for _ in range(TURNS):
            if turn.take(me):
                inside.append(me)
                seen.append(len(inside))
                inside.remove(me)
                turn.holder = None

    at_once(work, range(THREADS), PATIENCE_S)
    assert set(seen) == {1}
    assert turn.holder is None


def test_what_holds_it_is_let_go_afterwards(turn: Turn) -> None:
    class Holder:
        pass

    holder = Holder()
    known = weakref.ref(holder)
    assert turn.take(holder)
    turn.holder = None
    del holder
    assert known() is None
