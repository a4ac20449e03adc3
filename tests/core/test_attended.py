"""Steps that wait for a store which may never answer: they end when it is of no use to wait any more."""

from __future__ import annotations

import contextlib
import gc
import os
import threading
import weakref
from time import monotonic
from typing import Any

import pytest

from rankwise.basics import attending
from rankwise.basics.attending import attended, dismiss
from rankwise.basics.deadline import Deadline
from rankwise.basics.interrupts import held
from rankwise.errors import DistStoreError, DistTimeoutError, PeerDiedError
from rankwise.groups.world import World, current, use
from rankwise.store import HashStore, PrefixStore, TCPStore
from rankwise_watch.watcher import Watcher

PATIENCE_S = 10.0


def see_nothing() -> None:
    pass


def test_what_a_step_returns_or_raises_is_the_callers() -> None:
    assert attended(lambda: 3, see_nothing, Deadline(PATIENCE_S), "a step") == 3

    def fail() -> None:
        raise DistStoreError("gone")

    with pytest.raises(DistStoreError, match="gone"):
        attended(fail, see_nothing, Deadline(PATIENCE_S), "a step")


def test_a_step_is_done_in_the_callers_world() -> None:
    world = World()
    use(world)
    assert attended(current, see_nothing, Deadline(PATIENCE_S), "a step") is world


def test_a_step_leaves_the_caller_free_to_look_and_to_be_interrupted() -> None:
    step = threading.current_thread
    for look in (see_nothing, None):
        assert attended(step, look, Deadline(PATIENCE_S), "a step") is not threading.current_thread()


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
            attended(lambda: store.wait(["key"], 0.5), see_nothing, Deadline(PATIENCE_S), "a step")
        assert sleepers.count("rankwise meeting") <= 2  # each of hundreds of ranks would wake up twenty times a second
        with pytest.raises(DistTimeoutError):
            store.wait(["key"], 0.5)
        assert sleepers.count("MainThread") > 5  # which is to call handlers meanwhile


def test_one_thread_takes_step_after_step_until_it_is_dismissed() -> None:
    dismiss()
    takers = {attended(threading.current_thread, see_nothing, Deadline(PATIENCE_S), "a step") for _ in range(20)}
    assert len(takers) < 5  # one, and any that were at a step of an earlier test
    dismiss()
    for taker in takers:
        taker.join(PATIENCE_S)
        assert not taker.is_alive()


def test_a_thread_without_a_step_ends_by_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(attending, "_STAY_S", 0.01)
    dismiss()
    taker = attended(threading.current_thread, see_nothing, Deadline(PATIENCE_S), "a step")
    taker.join(PATIENCE_S)
    assert not taker.is_alive()
    assert attended(lambda: 3, see_nothing, Deadline(PATIENCE_S), "a step") == 3


def test_a_thread_that_is_still_at_a_step_is_not_waited_for() -> None:
    never = threading.Event()
    with pytest.raises(DistTimeoutError):
        attended(lambda: never.wait(PATIENCE_S), see_nothing, Deadline(0.1), "a step that goes on")
    assert attended(lambda: 3, see_nothing, Deadline(PATIENCE_S), "another") == 3
    never.set()


def test_a_thread_without_a_step_holds_nothing() -> None:
    class Group:
        def wait(self) -> None:
            pass

    group = Group()
    gone = weakref.ref(group)
    attended(group.wait, see_nothing, Deadline(PATIENCE_S), "a step")
    del group
    until = Deadline(PATIENCE_S)
    while gone() is not None and not until.expired():
        gc.collect()
    assert gone() is None


def test_a_forked_child_has_a_thread_of_its_own() -> None:
    attended(lambda: 3, see_nothing, Deadline(PATIENCE_S), "a step")
    child = os.fork()
    if not child:
        with contextlib.suppress(BaseException):
            os._exit(attended(lambda: 3, see_nothing, Deadline(PATIENCE_S), "a step"))
        os._exit(1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 3


def test_what_is_seen_ends_the_wait() -> None:
    never, looks = threading.Event(), []

    def look() -> None:
        looks.append(1)
        if len(looks) > 2:
            raise PeerDiedError(0, "h", "unreachable")

    began = monotonic()
    with pytest.raises(PeerDiedError):
        attended(lambda: never.wait(PATIENCE_S), look, Deadline(PATIENCE_S), "a step")
    assert monotonic() - began < PATIENCE_S / 2
    never.set()


def test_a_step_that_outlasts_its_deadline_is_left_alone() -> None:
    never, began = threading.Event(), monotonic()
    with pytest.raises(DistTimeoutError, match=r"^making it: timed out: not done within 0.1 s: the store"):
        attended(lambda: never.wait(PATIENCE_S), see_nothing, Deadline(0.1), "making it")
    assert 0.1 <= monotonic() - began < PATIENCE_S / 2
    never.set()


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


def test_those_who_meet_notice_that_the_store_is_out_of_reach(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RANKWISE_HEARTBEAT_S", "0.05")
    monkeypatch.setenv("RANKWISE_HEARTBEAT_LIMIT_S", "0.3")
    store, world = Cut(), World()
    world.owned_store = store
    watcher = Watcher(world, store, 1, range(3), dict)
    try:
        with watcher.meeting(PrefixStore("meet", store), (1, 2), "making group 'dp'") as look:
            look()
            store.gone.set()
            with pytest.raises(PeerDiedError) as caught:
                attended(lambda: threading.Event().wait(PATIENCE_S), look, Deadline(PATIENCE_S), "a step")
        assert caught.value.rank == 0
        assert "no heartbeat for more than 0.3 s" in str(caught.value)
    finally:
        store.gone.clear()
        watcher.stop()
