"""What ranks run with calls that are bound to their arguments, by plans and by the public functions."""

from __future__ import annotations

import signal
import sys
import threading
import traceback
from collections.abc import Callable
from functools import partial
from types import FrameType
from typing import Any

import numpy as np
from tests.python_calls import fewest

import rankwise as dist
from rankwise.basics import native
from rankwise.groups.world import current

MAX = dist.ReduceOp.MAX
#: Enough for a call to be prepared, and then found.
WARM = 3


def rows(size: int) -> list[Any]:
    return [np.zeros(2) for _ in range(size)]


#: How each call is made, by this rank and the number of ranks, and what it fills on this rank.
CALLS: dict[str, Any] = {
    "all_gather": lambda me, size, a: ([out := rows(size), a], {}, out),
    "all_gather_single": lambda me, size, a: ([out := np.zeros(2 * size), a], {}, out),
    "all_reduce": lambda me, size, a: ([a], {"op": MAX}, a),
    "all_to_all": lambda me, size, a: ([out := rows(size), [a + n for n in range(size)]], {}, out),
    "all_to_all_single": lambda me, size, a: ([out := np.zeros(2 * size), np.tile(a, size)], {}, out),
    "barrier": lambda me, size, a: ([], {}, None),
    "broadcast": lambda me, size, a: ([a, size - 1], {}, a),
    "gather": lambda me, size, a: ([a, out := rows(size) if me == 0 else None], {"dst": 0}, out),
    "reduce": lambda me, size, a: ([a], {"dst": 0, "op": MAX}, a if me == 0 else None),
    "reduce_scatter": lambda me, size, a: ([out := np.zeros(2), [a + n for n in range(size)]], {"op": MAX}, out),
    "reduce_scatter_single": lambda me, size, a: ([out := np.zeros(2), np.tile(a, size)], {"op": MAX}, out),
    "scatter": lambda me, size, a: ([a, [a + n for n in range(size)] if me == 0 else None], {"src": 0}, a),
}


def begin() -> tuple[int, int]:
    if not dist.is_initialized():
        dist.init_process_group("gloo", timeout=30)
    return dist.get_rank(), dist.get_world_size()


def totals() -> Any:
    current().recorder.count()  # also what leaves the ring
    return current().default.trail.totals()  # type: ignore[union-attr]


def made(way: str, call: str, *args: Any, **options: Any) -> Callable[[], Any]:
    """Return a call that has been made before: by a plan, by the public function, or by what stands behind that."""
    function = getattr(dist, call)
    if way == "behind":
        function = getattr(function, "__wrapped__", function)
    again = dist.prepare(call, *args, **options) if way == "plan" else partial(function, *args, **options)
    for _ in range(WARM):
        again()
    return again


def frames_of_plans() -> tuple[bool, dict[str, int]]:
    """Return of each call how many frames of Python a plan of it has, after it has filled what the plain call fills.

    The first says whether this rank has the compiled parts.
    """
    me, size = begin()
    found = {}
    for call in CALLS:
        args, options, meant = CALLS[call](me, size, np.arange(2.0) + me)
        getattr(dist, call)(*args, **options)
        args, options, filled = CALLS[call](me, size, np.arange(2.0) + me)
        again = dist.prepare(call, *args, **options)
        for _ in range(WARM):
            again()
        np.testing.assert_equal(filled, meant)
        found[call] = fewest(again, 0 if native.state()[0] else sys.maxsize)
    return native.state()[0], found


# ------------------------------------------------------------------ arrays that change in place


def changed_arrays() -> None:
    """Run plans of arrays and lists that change in place: each run is the call with what they are then."""
    me, size = begin()
    array = np.full(4, float(me))
    again = made("plan", "all_reduce", array, op=MAX)
    array.shape = (2, 2)  # another kind of call
    for _ in range(WARM):
        array[:] = me
        again()
        assert array.tolist() == [[size - 1.0] * 2] * 2
    array.shape = (4,)
    array.resize(7, refcheck=False)  # it moves
    array[:] = me
    again()
    assert array.tolist() == [size - 1.0] * 7
    array.resize(9, refcheck=False)
    again = made("plan", "all_reduce", array, op=MAX)
    moved = array.ctypes.data
    while array.ctypes.data == moved:
        array.resize(array.size * 2, refcheck=False)
    array.resize(9, refcheck=False)
    array[:] = me
    again()
    assert array.tolist() == [size - 1.0] * 9
    array.resize(6, refcheck=False)
    array.shape = (2, 3)
    again = made("plan", "all_reduce", array, op=MAX)
    array.shape = (3, 2) if me == 0 else (2, 3)
    assert heard(again).startswith("CollectiveMismatchError")
    array.shape = (3, 2)
    again()
    (entry,) = current().recorder.entries()[-1:]
    assert entry.op == "all_reduce"
    assert entry.nbytes == 48
    array.shape = (6,)
    array.resize(7, refcheck=False)
    again()
    array.dtype = np.int64
    array[:] = -me
    again()
    assert array.tolist() == [0] * 7
    array.flags.writeable = False
    assert "tensor" in heard(again)
    array.flags.writeable = True
    again()


def changed_lists() -> None:
    """Run a plan of a list whose arrays become others, and whose length changes."""
    me, size = begin()
    outs, array = [np.zeros(1) for _ in range(size)], np.full(1, float(me))
    again = made("plan", "all_gather", outs, array)
    first, outs[0] = outs[0], np.full(1, 9.0)
    first[:] = 9
    again()
    assert [out.item() for out in outs] == [*range(size)]
    assert first.item() == 9
    outs.append(np.zeros(1))
    assert heard(again).startswith("ValueError")
    outs.pop()
    again()


# ------------------------------------------------------------------ what the recorder sees


def noted(way: str) -> list[tuple[Any, ...]]:
    """Return what the recorder says of calls of each kind, and how often each operation is counted."""
    me, size = begin()
    found = []
    for call in CALLS:
        args, options, _ = CALLS[call](me, size, np.arange(2.0) + me)
        again = made(way, call, *args, **options)
        before = totals()[call.removesuffix("_single")]
        again()
        entry = [each for each in current().recorder.entries() if each.op == call.removesuffix("_single")][-1]
        after = totals()[entry.op]
        counts = [new - old for new, old in zip(after[:4], before[:4], strict=True)]
        where = entry.code.co_name, str(entry.dtype), entry.nbytes, entry.ended_ns >= entry.began_ns > 0
        found.append((entry.op, *where, entry.error, *counts))
    return found


def seen_while_waiting(way: str) -> tuple[int, str, int]:
    """Return what another thread finds in the recorder while this one waits in a call that has ended on no rank."""
    me, _ = begin()
    array = np.ones(2)
    again = made(way, "all_reduce", array, op=MAX)
    if me != 0:
        dist.recv(np.empty(1), 0)
        again()
        return 0, "", 0
    found: list[Any] = []

    def look(world: Any) -> None:
        while not found:
            entries = world.recorder.entries()[-1:]
            found.extend(entry for entry in entries if entry.op == "all_reduce" and not entry.ended_ns)
        dist.send(np.empty(1), 1, group=world.default)

    looks = threading.Thread(target=look, args=(current(),))
    looks.start()
    again()
    looks.join()
    return len(found), found[0].op, found[0].nbytes


def failed_calls(way: str) -> tuple[list[str], list[str]]:
    """Return what ranks hear that make different calls, and what the recorder says of that; the group stays usable."""
    me, _ = begin()
    array = np.full(2, me + 1.0)
    calls = made(way, "all_reduce", array, op=MAX), made(way, "broadcast", np.ones(2), 0)
    array[:] = me + 1
    told = []
    for odd in (0, 1):
        try:
            calls[me == odd]()
        except dist.CollectiveMismatchError as error:
            told.append(str(error))
            frames = [frame.name for frame in traceback.extract_tb(error.__traceback__)]
            assert frames[0] == "failed_calls", frames
            assert len(frames) == 2, frames
    assert array.tolist() == [me + 1.0] * 2  # nothing has moved
    calls[0]()
    entries = current().recorder.entries()[-3:]
    return told, [f"{entry.op} {entry.error} {entry.ended_ns > 0}" for entry in entries]


# ------------------------------------------------------------------ the end of a group


def ended(way: str, how: str) -> list[str]:
    """Return what a call says whose group has ended: twice, as the second finds it ended before."""
    me, size = begin()
    group = dist.new_group(list(range(size)))
    again = made(way, "all_reduce", np.ones(2), group=group)
    if how == "destroyed":
        dist.destroy_process_group(group)
    elif how == "died" and me == 0:
        group.report_death(1, "its pod was evicted")
    elif how == "died":
        return []
    elif me == 0:
        group.abort()
        dist.send(np.empty(1), 1)
    else:
        dist.recv(np.empty(1), 0)
    return [heard(again) for _ in range(2)]


def heard(call: Callable[[], Any]) -> str:
    try:
        call()
    except (Exception, KeyboardInterrupt) as error:
        return f"{type(error).__name__}: {error}"
    return "nothing"


def default_group_ended(way: str) -> tuple[str, float]:
    """Return what a call on the default group says after its end, and fills with the next default group."""
    begin()
    array = np.ones(1)
    again = made(way, "all_reduce", array)
    dist.destroy_process_group()
    told = heard(again)
    begin()
    array[:] = 1
    again()
    dist.destroy_process_group()
    return told, float(array[0])


# ------------------------------------------------------------------ waiting, and what ends that


def late(way: str) -> str:
    """Return what the first rank hears whose time is up; the second comes only afterwards."""
    me, size = begin()
    group = dist.new_group(list(range(size)))
    again = made(way, "all_reduce", np.ones(2), group=group)
    group.set_timeout(0.3)
    if me != 0:
        dist.recv(np.empty(1), 0)
        return ""
    told = heard(again)
    dist.send(np.empty(1), 1)
    return told


def late_of_its_own(way: str) -> str:
    """Return the same of a time-out that the call was given."""
    me, size = begin()
    group = dist.new_group(list(range(size)))
    again = made(way, "all_reduce", np.ones(2), group=group, timeout=0.5)
    if me != 0:
        dist.recv(np.empty(1), 0)
        return ""
    told = heard(again)
    dist.send(np.empty(1), 1)
    return told


def interrupted(way: str, kind: type[BaseException]) -> list[str]:
    """Return what a rank hears that is interrupted while it waits, and what both hear from then on."""
    me, size = begin()
    group = dist.new_group(list(range(size)))
    again = made(way, "all_reduce", np.ones(2), group=group)
    if me != 0:
        dist.recv(np.empty(1), 0)
        first = heard(again)  # it may complete, as the other rank had begun it
        return [heard(again) if first == "nothing" else first]

    def interrupt(number: int, frame: FrameType | None) -> None:
        signal.setitimer(signal.ITIMER_REAL, 0)
        raise kind("by hand")

    before = signal.signal(signal.SIGALRM, interrupt)
    signal.setitimer(signal.ITIMER_REAL, 0.3)
    told = [heard(again)]
    signal.signal(signal.SIGALRM, before)
    dist.send(np.empty(1), 1)
    return [*told, heard(again)]


# ------------------------------------------------------------------ the order of calls


def in_order() -> None:
    """Make plans between plain and asynchronous calls, whose results depend on the order."""
    me, _ = begin()
    array = np.ones(1)
    again = made("plan", "all_reduce", array, op=MAX)
    for turn in range(30):
        array[0] = me + turn
        works = [dist.all_reduce(array, async_op=True)]
        again()
        dist.all_reduce(array)
        again()
        works.append(dist.all_reduce(array, async_op=True))
        dist.wait_all(works)
        assert array[0] == 4 * (2 * turn + 1)
        with dist.coalescing() as collected:
            again()
        collected.wait()
        assert array[0] == 4 * (2 * turn + 1)


def by_two_threads(way: str) -> int:
    """Make the same calls on two threads at once; return how many the recorder has counted."""
    begin()
    array = np.ones(1)
    again = made(way, "all_reduce", array, op=MAX)
    before = totals()["all_reduce"][1]

    def many() -> None:
        for _ in range(200):
            again()

    threads = [threading.Thread(target=many) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert array[0] == 1
    return int(totals()["all_reduce"][1] - before)
