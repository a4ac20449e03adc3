"""Calls of stores of which one is interrupted, and what must be true afterwards.

The rule (docs/interrupts.md): an interrupted call of a store has been carried out as a whole or not at all, and may be
made again. What waits has waited in vain, no item of a queue is lost or given out twice, and the store goes on.

One process has both sides: its main thread is interrupted, and another thread, with a store of its own, sees to it that
there is something to wait for, and looks at what has come of it.
"""

from __future__ import annotations

import contextlib
import random
import tempfile
import threading
import time
import traceback
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, NamedTuple

from interrupt_checks import Checks, Interrupted, Stopped, unraisable
from interrupt_points import Point, Tally

import rankwise as dist

_TIMEOUT_S = 10.0


class Wrong(AssertionError):
    """A store holds what it must not hold."""


class Desk(NamedTuple):
    """Where a case is tried: a store to be interrupted in, one that sees the same, and the thread that uses that."""

    mine: Any
    other: Any
    beside: ThreadPoolExecutor

    def begin(self, call: Callable[[], Any], late: bool) -> Future[Any]:
        """Have the other thread make a call, at once or when this one waits already."""
        return self.beside.submit(lambda: (time.sleep(0.004 * late), call())[1])


#: A case gets its desk, a key of its own, how to make the call that is interrupted, and whether the other comes late.
Again = Callable[[Callable[[], Any]], tuple[Any, int]]
Case = Callable[[Desk, str, Again, bool], None]


def _same(found: Any, wanted: Any) -> None:
    if found != wanted:
        raise Wrong(f"{found!r} and not {wanted!r}")


def _set(desk: Desk, key: str, again: Again, late: bool) -> None:
    waiting = desk.begin(lambda: desk.other.get(key), late)
    again(lambda: desk.mine.set(key, key))
    _same(waiting.result(_TIMEOUT_S), key.encode())


def _get(desk: Desk, key: str, again: Again, late: bool) -> None:
    desk.begin(lambda: desk.other.set(key, key), late)
    _same(again(lambda: desk.mine.get(key))[0], key.encode())


def _wait(desk: Desk, key: str, again: Again, late: bool) -> None:
    desk.begin(lambda: desk.other.set(key, key), late)
    again(lambda: desk.mine.wait([key]))
    _same(desk.mine.check([key]), True)


def _add(desk: Desk, key: str, again: Again, late: bool) -> None:
    found, interrupts = again(lambda: desk.mine.add(key, 1))
    _same(found in range(1, 2 + interrupts), True)
    _same(desk.other.add(key, 0), found)


def _compare_set(desk: Desk, key: str, again: Again, late: bool) -> None:
    _same(again(lambda: desk.mine.compare_set(key, "", "mine"))[0], b"mine")
    _same(desk.other.compare_set(key, "", "other"), b"mine")


def _append(desk: Desk, key: str, again: Again, late: bool) -> None:
    _, interrupts = again(lambda: desk.mine.append(key, "ab"))
    _same(desk.other.get(key) in [b"ab" * times for times in range(1, 2 + interrupts)], True)


def _queue_push(desk: Desk, key: str, again: Again, late: bool) -> None:
    popped = desk.begin(lambda: desk.other.queue_pop(key), late)
    _, interrupts = again(lambda: desk.mine.queue_push(key, key))
    _same(popped.result(_TIMEOUT_S), key.encode())
    left = desk.other.queue_len(key)
    _same(left <= interrupts, True)
    for _ in range(left):
        _same(desk.other.queue_pop(key, block=False), key.encode())


def _queue_pop(desk: Desk, key: str, again: Again, late: bool) -> None:
    pushed = [desk.begin(lambda n=n: desk.other.queue_push(key, f"{n}"), late) for n in range(2)]  # type: ignore[misc]
    _same(again(lambda: desk.mine.queue_pop(key))[0], b"0")
    for each in pushed:
        each.result(_TIMEOUT_S)
    _same(again(lambda: desk.mine.queue_pop(key, block=False))[0], b"1")
    _same(desk.other.queue_len(key), 0)


def _multi(desk: Desk, key: str, again: Again, late: bool) -> None:
    keys = [f"{key}/{n}" for n in range(3)]
    desk.begin(lambda: desk.other.multi_set(keys, keys), late)
    _same(again(lambda: desk.mine.multi_get(keys))[0], [each.encode() for each in keys])
    again(lambda: desk.mine.delete_prefix(key))
    _same(desk.other.check(keys[:1]), False)


STORE_CASES: dict[str, Case] = {
    "set": _set,
    "get": _get,
    "wait": _wait,
    "add": _add,
    "compare_set": _compare_set,
    "append": _append,
    "queue_push": _queue_push,
    "queue_pop": _queue_pop,
    "multi_get": _multi,
}


# ---------------------------------------------------------------------- the kinds of stores


@contextlib.contextmanager
def _hash() -> Iterator[tuple[Any, Any]]:
    with dist.HashStore() as store:
        yield store, store.clone()


@contextlib.contextmanager
def _file() -> Iterator[tuple[Any, Any]]:
    with tempfile.TemporaryDirectory() as folder, contextlib.ExitStack() as stack:
        one, other = (stack.enter_context(dist.FileStore(f"{folder}/store")) for _ in range(2))
        yield one, other


@contextlib.contextmanager
def _client() -> Iterator[tuple[Any, Any]]:
    """The interrupted side is a client of the server."""
    with dist.TCPStore("127.0.0.1", is_master=True) as server, dist.TCPStore("127.0.0.1", server.port) as client:
        yield client, server


@contextlib.contextmanager
def _server() -> Iterator[tuple[Any, Any]]:
    """The interrupted side has the server."""
    with dist.TCPStore("127.0.0.1", is_master=True) as server, dist.TCPStore("127.0.0.1", server.port) as client:
        yield server, client


STORES = {"HashStore": _hash, "FileStore": _file, "TCPStore": _client, "TCPStore's server": _server}


# ---------------------------------------------------------------------- points


def run_store_points(
    points: int, seed: int, cases: list[str], seconds: float = 1e9, kinds: tuple[str, ...] = tuple(STORES)
) -> Tally:
    """Interrupt calls of stores at random points, until one goes wrong.

    Args:
        points: How many.
        seed: What decides all that is random.
        cases: Which calls, by their names.
        seconds: After so long no new point is begun.
        kinds: Which stores.
    """
    checks, chance = Checks(), random.Random(seed)
    checks.spare(__file__)
    unraisable(checks)
    went_on = not_raised = 0
    until = time.monotonic() + seconds
    with contextlib.ExitStack() as stack:
        beside = stack.enter_context(ThreadPoolExecutor(1))
        desks = {}
        for kind in kinds:
            mine, other = stack.enter_context(STORES[kind]())
            for store in (mine, other):
                store.set_timeout(_TIMEOUT_S)
            desks[kind] = Desk(mine, other, beside)
        lengths: dict[tuple[str, str], int] = {}
        for number in range(points):
            kind, case = chance.choice(kinds), chance.choice(cases)
            again = _Again(checks, chance, lengths, (kind, case))
            try:
                STORE_CASES[case](desks[kind], f"{case}{number}", again, chance.random() < 0.3)
            except BaseException as error:
                checks.disarm()
                said = "".join(traceback.format_exception(error))
                name = f"{case} of {kind} (point {number} of seed {seed})"
                return Tally(went_on, 0, not_raised, Point(name, 0, checks.where, "a call has failed", [said]))
            went_on, not_raised = went_on + bool(again.interrupts), not_raised + (not again.interrupts)
            if time.monotonic() > until:
                break
    return Tally(went_on, 0, not_raised, None)


class _Again:
    """Makes a call that is interrupted, and makes it again; returns its result and how often it was interrupted."""

    def __init__(self, checks: Checks, chance: random.Random, lengths: dict[Any, int], key: Any) -> None:
        self._checks, self._chance, self._lengths, self._key = checks, chance, lengths, key
        self.interrupts = 0

    def __call__(self, call: Callable[[], Any]) -> tuple[Any, int]:
        checks, chance, before = self._checks, self._chance, threading.active_count()
        checks.kind = chance.choice((Interrupted, Stopped))
        by_time = chance.random() < 0.2
        at = chance.random()
        try:
            if by_time:
                checks.arm_after(0.0002 + at * 0.005)
            else:
                checks.arm(1 + int(at * self._lengths.get(self._key, 60)))
            found = call()
            checks.disarm()
            if not by_time:
                self._lengths[self._key] = max(1, int(checks.count * 1.05))
        except (Interrupted, Stopped):
            checks.disarm()
            self.interrupts += 1
            found = call()
        finally:
            checks.disarm()
        _same(threading.active_count() <= before + 1, True)
        return found, self.interrupts
