"""The lock of an engine is what `threading.Lock` makes, and tells who has it whether others want it."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable

import pytest
from tests.processes import wait_until

native = pytest.importorskip("rankwise_native", exc_type=ImportError)

PATIENCE_S = 20.0


def waiting(lock: native.EngineLock, body: Callable[[], object]) -> threading.Thread:
    """Return a thread that waits for a lock, to do something while it has it."""

    def wait() -> None:
        with lock:
            body()

    thread = threading.Thread(target=wait)
    thread.start()
    assert wait_until(lock.wanted, PATIENCE_S)
    return thread


@pytest.mark.parametrize("kind", [threading.Lock, native.EngineLock])
def test_it_is_taken_by_one_at_a_time(kind: Callable[[], threading.Lock]) -> None:
    lock, counted = kind(), [0]

    def count() -> None:
        for _ in range(5000):
            with lock:
                counted[0] = counted[0] + 1

    threads = [threading.Thread(target=count) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert counted == [20_000]
    assert not lock.locked()


@pytest.mark.parametrize("kind", [threading.Lock, native.EngineLock])
def test_it_is_asked_for_as_any_lock(kind: Callable[[], threading.Lock]) -> None:
    lock = kind()
    with pytest.raises(RuntimeError, match="release unlocked lock"):
        lock.release()
    assert lock.acquire()
    assert lock.locked()
    assert not lock.acquire(False)
    assert not lock.acquire(blocking=False)
    assert not lock.acquire(timeout=0.01)
    lock.release()
    assert not lock.locked()
    assert lock.acquire(timeout=PATIENCE_S)
    lock.release()
    with pytest.raises(KeyError), lock:
        raise KeyError
    assert not lock.locked()
    with pytest.raises(TypeError):
        kind(3)  # type: ignore[call-arg]


def test_who_has_it_sees_who_waits_for_it() -> None:
    lock, seen = native.EngineLock(), []
    lock.acquire()
    assert not lock.wanted()
    thread = waiting(lock, lambda: seen.append(lock.wanted()))
    lock.release()
    thread.join(PATIENCE_S)
    assert seen == [False]
    assert not lock.locked()


def test_who_has_it_sees_who_has_found_it_taken_until_it_lets_it_go() -> None:
    lock = native.EngineLock()
    assert not lock.locked()
    with lock:
        assert not lock.wanted()
        assert lock.locked()
        assert lock.wanted()
    assert not lock.wanted()


def test_a_handler_that_raises_ends_the_wait_of_the_main_thread() -> None:
    lock, kept, free = native.EngineLock(), threading.Event(), threading.Event()

    def keep() -> None:
        with lock:
            kept.set()
            assert wait_until(lock.wanted, PATIENCE_S)
            signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGUSR1)
            free.wait(PATIENCE_S)

    def raising(number: int, frame: object) -> None:
        raise InterruptedError

    before = signal.signal(signal.SIGUSR1, raising)
    keeper = threading.Thread(target=keep)
    try:
        keeper.start()
        assert kept.wait(PATIENCE_S)
        with pytest.raises(InterruptedError):
            lock.acquire()
        assert not lock.wanted()
    finally:
        free.set()
        keeper.join()
        signal.signal(signal.SIGUSR1, before)
    assert lock.acquire(timeout=PATIENCE_S)
