"""Steps that wait for a store which may never answer: they end when it is of no use to wait any more."""

from __future__ import annotations

import gc
import threading
import weakref
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from tests.processes import forked, wait_until
from tests.threads import within

from rankwise.basics import attending
from rankwise.basics.attending import attended, dismiss
from rankwise.basics.deadline import Deadline
from rankwise.basics.interrupts import held
from rankwise.errors import DistStoreError, DistTimeoutError, PeerDiedError
from rankwise.groups.world import World, current, use
from rankwise.store import HashStore, PrefixStore
from rankwise_stores import TCPStore
from rankwise_watch.watcher import Watcher

PATIENCE_S = 10.0


def see_nothing() -> None:
    pass


def attend(step: Callable[[], Any], look: Callable[[], None] | None = see_nothing, within_s: float = 0.0) -> Any:
    return attended(step, look, Deadline(within_s or PATIENCE_S), "a step")


def three() -> int:
    return 3


@pytest.fixture
def endless() -> Iterator[Callable[[], object]]:
    """A step that does not end before the test does."""
    over = threading.Event()
    yield lambda: over.wait(PATIENCE_S)
    over.set()


def test_what_a_step_returns_or_raises_is_the_callers() -> None:
    assert attend(three) == 3

    def fail() -> None:
        raise DistStoreError("gone")

    with pytest.raises(DistStoreError, match="gone"):
        attend(fail)


def test_a_step_is_done_in_the_callers_world() -> None:
    world = World()
    use(world)
    assert attend(current) is world


def test_a_step_leaves_the_caller_free_to_look_and_to_be_interrupted() -> None:
    for look in (see_nothing, None):
        assert attend(threading.current_thread, look) is not threading.current_thread()


def test_a_step_sleeps_until_something_comes_although_the_caller_holds_handlers_back(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    import zmq

    sleepers: list[str] = []
    poll = zmq.Poller.poll

    def counted(self: zmq.Poller, timeout: float | None = None) -> list[tuple[Any, int]]:
        sleepers.append(threading.current_thread().name)
        return poll(self, timeout)

    monkeypatch.setattr(zmq.Poller, "poll", counted)
    with TCPStore("127.0.0.1", is_master=True) as store, held:
        with pytest.raises(DistTimeoutError):
            attend(lambda: store.wait(["key"], 0.5))
        assert sleepers.count("rankwise meeting") <= 2  # each of hundreds of ranks would wake up twenty times a second
        with pytest.raises(DistTimeoutError):
            store.wait(["key"], 0.5)
        assert sleepers.count("MainThread") > 5  # which is to call handlers meanwhile


def test_one_thread_takes_step_after_step_until_it_is_dismissed() -> None:
    dismiss()
    takers = {attend(threading.current_thread) for _ in range(20)}
    assert len(takers) < 5  # one, and any that were at a step of an earlier test
    dismiss()
    for taker in takers:
        taker.join(PATIENCE_S)
        assert not taker.is_alive()


def test_a_thread_without_a_step_ends_by_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(attending, "_STAY_S", 0.01)
    dismiss()
    taker = attend(threading.current_thread)
    taker.join(PATIENCE_S)
    assert not taker.is_alive()
    assert attend(three) == 3


def test_a_thread_without_a_step_holds_nothing() -> None:
    class Group:
        def wait(self) -> None:
            pass

    group = Group()
    gone = weakref.ref(group)
    attend(group.wait)
    del group
    assert wait_until(lambda: gc.collect() is not None and gone() is None, PATIENCE_S)


def test_a_forked_child_has_a_thread_of_its_own() -> None:
    def have_one() -> None:
        assert attend(three) == 3

    have_one()
    with forked(have_one):
        pass


def test_what_is_seen_ends_the_wait(endless: Callable[[], object]) -> None:
    looks = []

    def look() -> None:
        looks.append(1)
        if len(looks) > 2:
            raise PeerDiedError(0, "h", "unreachable")

    with within(PATIENCE_S / 2), pytest.raises(PeerDiedError):
        attend(endless, look)


def test_a_step_that_outlasts_its_deadline_is_left_alone(endless: Callable[[], object]) -> None:
    told = r"^a step: timed out: not done within 0.1 s: the store"
    with within(PATIENCE_S / 2, at_least_s=0.1), pytest.raises(DistTimeoutError, match=told):
        attend(endless, within_s=0.1)
    assert attend(three) == 3  # whose thread is not waited for


class Cut(HashStore):
    """A store that nobody reaches any more from some moment on."""

    is_master = False

    def __init__(self) -> None:
        super().__init__()
        self.gone = threading.Event()

    def _run(self, *args: Any, **kwargs: Any) -> Any:
        if self.gone.is_set():
            raise DistTimeoutError("no answer")
        return super()._run(*args, **kwargs)


def test_those_who_meet_notice_that_the_store_is_out_of_reach(
    monkeypatch: pytest.MonkeyPatch, endless: Callable[[], object]
) -> None:
    monkeypatch.setenv("RANKWISE_HEARTBEAT_S", "0.05")
    monkeypatch.setenv("RANKWISE_HEARTBEAT_LIMIT_S", "0.3")
    monkeypatch.setenv("RANKWISE_OUTAGE_LIMIT_S", "0.3")
    store, world = Cut(), World()
    world.owned_store = store
    watcher = Watcher(world, store, 1, range(3), dict)
    try:
        with watcher.meeting(PrefixStore("meet", store), (1, 2), "making group 'dp'") as look:
            look()
            store.gone.set()
            with pytest.raises(PeerDiedError) as caught:
                attend(endless, look)
        assert caught.value.rank == 0
        assert "no heartbeat for more than 0.3 s" in str(caught.value)
    finally:
        store.gone.clear()
        watcher.stop()
