"""A store that is slow because many ask it: the rank that serves it lives, as long as it answers at all."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from time import monotonic
from types import SimpleNamespace
from typing import Any

import pytest

from rankwise.backends.communicator import Communicator
from rankwise.backends.contract import Context
from rankwise.errors import DistError, DistTimeoutError, PeerDiedError, PeerUnreachableError
from rankwise.groups.world import World
from rankwise.store import HashStore
from rankwise_watch import suspicion
from rankwise_watch.heartbeat import Beats
from rankwise_watch.watcher import Watcher

PATIENCE_S = 10.0
#: So often a rank sends a heartbeat here; it may be silent for ten of them; and so many tell that nothing has come.
EVERY_S, LIMIT_S, ENOUGH = 0.05, 0.5, 14


class Served(HashStore):
    """A store that a rank serves: it answers, answers too late, or does not answer."""

    is_master = False

    def __init__(self) -> None:
        super().__init__()
        #: All views of it share these.
        self.now = SimpleNamespace(in_time=True, answers=True, beats=True, heard_at=monotonic())
        self.asked = threading.Semaphore(0)

    @property
    def heard_at(self) -> float:
        return float(self.now.heard_at)

    def _set_and_peek(self, *args: Any) -> Any:
        self.asked.release()
        if self.now.answers:
            self.now.heard_at = monotonic()
        if not self.now.in_time:
            raise DistTimeoutError("no answer in time")
        return super()._set_and_peek(*args)


class Waiting:
    """A group of three ranks that has been waiting for long, and notes why it is given up."""

    name, ranks, rank_of = "dp", (0, 1, 2), {0: 0, 1: 1, 2: 2}

    def __init__(self) -> None:
        self.ended: list[DistError] = []
        self.has_ended = threading.Event()
        self.context = Context("dp", 1, 3, (0, 1, 2), 60.0)

    def communicators(self) -> list[Communicator]:
        return [self]  # type: ignore[list-item]

    def peer_died(self, rank: int, error: DistError) -> bool:
        return False

    def is_busy(self) -> bool:
        return False

    def give_up(self, error: DistError) -> None:
        self.ended.append(error)
        self.has_ended.set()


@contextmanager
def rank_one(store: Served, monkeypatch: pytest.MonkeyPatch) -> Iterator[Waiting]:
    """Watch as rank 1 of three, whose rank 0 serves the store."""
    monkeypatch.setenv("RANKWISE_HEARTBEAT_S", str(EVERY_S))
    for variable in ("RANKWISE_HEARTBEAT_LIMIT_S", "RANKWISE_OUTAGE_LIMIT_S"):
        monkeypatch.setenv(variable, str(LIMIT_S))
    world, group = World(), Waiting()
    world.owned_store, world.groups["dp"] = store, group  # type: ignore[assignment]
    step = {"op": "barrier", "number": 0, "peer": None, "age_s": 30.0}
    watcher = Watcher(world, store, 1, range(3), lambda: {"dp": {"pending": [step], "done": 0}})
    watcher.everyone_is_here([b'{"host": "host%d", "pid": 1}' % rank for rank in range(3)])
    stop = threading.Event()
    beating = threading.Thread(target=_beat, args=(store, 2, stop.wait))
    beating.start()
    try:
        yield group
    finally:
        stop.set()
        beating.join()
        watcher.stop()


def _beat(store: Served, rank: int, wait: Callable[[float], bool]) -> None:
    """Send heartbeats for another rank."""
    beats = Beats(store, rank, "watch/")
    while not wait(EVERY_S / 4):
        if store.now.beats:
            beats.give({})


def wait_for_beats(store: Served) -> None:
    for _ in range(ENOUGH):
        assert store.asked.acquire(timeout=PATIENCE_S)


def test_a_server_that_answers_too_late_lives(monkeypatch: pytest.MonkeyPatch) -> None:
    store = Served()
    with rank_one(store, monkeypatch) as group:
        store.now.in_time = False
        wait_for_beats(store)
        assert group.ended == []
        store.now.answers = False
        assert group.has_ended.wait(PATIENCE_S)
    assert isinstance(group.ended[0], PeerDiedError)
    assert group.ended[0].rank == 0


def test_a_server_that_answers_lives_though_its_own_signs_of_life_do_not_come(monkeypatch: pytest.MonkeyPatch) -> None:
    store = Served()
    with rank_one(store, monkeypatch) as group:
        wait_for_beats(store)
        assert group.ended == []


def test_where_the_store_was_slow_the_signs_of_life_of_others_may_be_late_too(monkeypatch: pytest.MonkeyPatch) -> None:
    store = Served()
    with rank_one(store, monkeypatch) as group:
        wait_for_beats(store)
        store.now.in_time = store.now.beats = False
        wait_for_beats(store)
        while store.asked.acquire(blocking=False):
            pass
        store.now.in_time = True
        for _ in range(3):  # the second begins when the first is over, which may have begun before
            assert store.asked.acquire(timeout=PATIENCE_S)
        store.now.beats = True
        wait_for_beats(store)
        assert group.ended == []
        store.now.beats = False
        assert group.has_ended.wait(PATIENCE_S)
    assert isinstance(group.ended[0], PeerDiedError)
    assert group.ended[0].rank == 2


@pytest.mark.parametrize("is_silent", [False, True], ids=["ended", "silent"])
@pytest.mark.parametrize(("serves_store", "is_gone"), [(True, False), (False, True)])
def test_a_broken_connection_to_who_serves_the_store_is_no_death(
    serves_store: bool, is_gone: bool, is_silent: bool
) -> None:
    none = (lambda: None), (lambda: None), (lambda: False)
    found = suspicion.silence(Beats(HashStore(), 1), 0, EVERY_S, serves_store, *none, is_silent)
    assert (found is not None) == is_gone
    if found is not None:
        assert found[0] is (PeerUnreachableError if is_silent else PeerDiedError)
