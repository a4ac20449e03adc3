"""What ranks do over sockets, whether in C or not, on one host or as if on several."""

from __future__ import annotations

import gc
import hashlib
import os
import signal
import threading
import time
from collections import Counter
from collections.abc import Iterator
from functools import partial
from importlib import import_module
from types import SimpleNamespace
from typing import Any

import far_away
import numpy as np
import random_calls
from failing import end_of, error_of
from long_programs import LONG_CALLS, everyones_call, in_the_middle
from tests.python_calls import called

import rankwise as dist
from rankwise.errors import CollectiveMismatchError, DistTimeoutError
from rankwise.groups.world import current
from rankwise.store import PrefixStore
from rankwise_gloo_tcp.collectives.opening import SMALL_NBYTES, inline_nbytes
from rankwise_gloo_tcp.protocol import libsodium

LENGTHS = [1, 3, 1000, SMALL_NBYTES // 8, SMALL_NBYTES // 8 + 1, 4000]
LENGTHS += [inline_nbytes(size) // 8 + more for size in (3, 2) for more in (0, 1)]
DTYPES = [np.float32, np.float16, np.int32, np.uint8, np.bool_]
OPS = [dist.ReduceOp.SUM, dist.ReduceOp.MIN, dist.ReduceOp.MAX, dist.ReduceOp.PRODUCT, dist.ReduceOp.AVG]


def begin() -> tuple[int, int]:
    far_away.pretend()
    if os.environ.get("WITHOUT_A_LIBRARY") == "1":
        libsodium.hash_address = lambda: 0
    dist.init_process_group("gloo", timeout=30)
    return dist.get_rank(), dist.get_world_size()


def taken_meanwhile(nbytes: int) -> list[int]:
    """Take the engine's lock again and again while a call moves; return how much was sent while this waited for it."""
    rank, _ = begin()
    engine: Any = dist.group.WORLD.communicators()[0].engine  # type: ignore[union-attr, attr-defined]
    array, sent = np.ones(nbytes // 4, np.float32), [0]
    dist.all_reduce(array)
    connection = engine.peers.all[1 - rank].connection
    work: Any = dist.all_reduce(array, async_op=True)
    while not work.is_completed():
        before = connection.went_nbytes
        with engine.lock:
            sent.append(connection.went_nbytes - before)
    dist.destroy_process_group()
    return sent


def with_a_relay_in_python(ranks: list[int], program: str, *args: Any) -> Any:
    """Run one of these programs on ranks of which some compare calls among hosts in Python."""
    choosing = vars(import_module("rankwise_gloo_tcp.collectives.choosing"))
    found = choosing["_compiled_several_hosts"]
    if int(os.environ["RANK"]) in ranks:
        choosing["_compiled_several_hosts"] = lambda *_: None
    try:
        return globals()[program](*args)
    finally:
        choosing["_compiled_several_hosts"] = found


def with_a_relay_without_boards(program: str, *args: Any) -> Any:
    """Run one of these programs on ranks that compare calls by messages also on their own host."""
    vars(import_module("rankwise_gloo_tcp.collectives.relay"))["OneHost"] = SimpleNamespace
    return with_a_relay_in_python([int(os.environ["RANK"])], program, *args)


def everything() -> str:
    """Make calls of all kinds several times over, and return what has come of them."""
    rank, size = begin()
    seen, random = hashlib.sha256(), np.random.default_rng(rank)

    def note(*arrays: Any) -> None:
        for array in arrays:
            seen.update(array.tobytes())

    for count, dtype, turn, ops in _cases():
        data = random.integers(0, 5, count).astype(dtype)
        for op in ops:
            for again in range(3):
                array = data.copy()
                work = dist.all_reduce(array, op, async_op=again == 1, timeout=None if again else 20)
                if work is not None:
                    work.wait()
                note(array)
        array = data.copy()
        dist.broadcast(array, count % size)
        parts = [np.zeros_like(array) for _ in range(size)]
        dist.all_gather(parts, array)
        whole = np.zeros(count * size, dtype)
        dist.all_gather_single(whole, array)
        note(array, *parts, whole)
        for _ in range(2):
            out = np.zeros_like(array)
            dist.reduce_scatter(out, [data + data.dtype.type(peer % 2) for peer in range(size)])
            note(out)
        for tag in (0, 7):
            _pass_on(array, data, tag)
            note(array)
        if turn == 0:
            for _ in range(2):
                outs = [np.zeros(1 + (rank + peer) % 3, dtype) for peer in range(size)]
                dist.all_to_all(outs, [np.full(1 + (rank + peer) % 3, 1, dtype) for peer in range(size)])
                note(*outs)
            dist.barrier()
    dist.destroy_process_group()
    return seen.hexdigest()


def _cases() -> Iterator[tuple[int, Any, int, list[Any]]]:
    """Return lengths, each with float64, whose limits they are, and two other dtypes, and how often these have come.

    Each dtype meets all reduce ops that it has.
    """
    turns = Counter[Any]()
    for place, count in enumerate(LENGTHS):
        for dtype in (np.float64, DTYPES[place % 5], DTYPES[(place + 2) % 5]):
            turn, several = turns[dtype], 2 * turns[dtype]
            floating = np.issubdtype(dtype, np.floating)
            yield count, dtype, turn, [OPS[several % 5], OPS[(several + 1) % 5]] if floating else [OPS[turn % 4]]
            turns[dtype] += 1


def _pass_on(array: Any, data: Any, tag: int) -> None:
    rank, size = dist.get_rank(), dist.get_world_size()
    right, left = (rank + 1) % size, (rank - 1) % size
    if rank % 2:
        dist.recv(array, left, tag=tag)
        dist.send(data, right, tag=tag)
    else:
        dist.send(data, right, tag=tag)
        dist.recv(array, left, tag=tag)


def at_random(seed: int, rounds: int) -> int:
    """Make random calls, and return how many results are wrong."""
    wrong = random_calls.make(random_calls.Draw(seed, *begin()), rounds)
    dist.destroy_process_group()
    return wrong


def long_reductions() -> str:
    """Reduce arrays that go in segments, more than windows hold among them, and return what has come of it."""
    rank, _ = begin()
    seen, random, turn = hashlib.sha256(), np.random.default_rng(rank), 0
    for count in ((1 << 18) + 1, 600_001, 3_000_000):
        for dtype in (np.float32, np.float64, np.int32):
            data = random.integers(-3, 3, count).astype(dtype)
            data[random.integers(0, count, 1000)] *= 0  # some of them -0.0, whose order a maximum tells
            for op in OPS[: -1 if dtype == np.int32 else None]:
                array, turn = data.copy(), turn + 1
                work = dist.all_reduce(array, op, async_op=turn % 2 == 0)
                if work is not None:
                    work.wait()
                seen.update(array)
    dist.destroy_process_group()
    return seen.hexdigest()


def long_broadcasts() -> str:
    """Send arrays that go in segments, to and fro, and return what has come of it."""
    rank, _ = begin()
    seen, random = hashlib.sha256(), np.random.default_rng(1)
    for count in ((1 << 20) + 1, (3 << 20) + 5, 4 << 20, 9_000_001):
        for turn in range(6):
            sent, root = random.integers(0, 255, count, np.uint8), turn % 3 % 2
            array = sent.copy() if rank == root else np.zeros_like(sent)
            words = array[: count // 4 * 4].view(np.float32) if turn > 3 else array
            work = dist.broadcast(words, root, async_op=turn == 2)
            if work is not None:
                work.wait()
            assert (words.view(np.uint8) == sent[: words.nbytes]).all()
            seen.update(words)
    dist.destroy_process_group()
    return seen.hexdigest()


#: Numbers of elements, of which some fill a segment, some a piece of what hosts pass on, and some more than a window.
LONG = (
    (131_073, np.float32),
    (262_144, np.float16),
    (262_144, np.float32),
    (400_003, np.complex64),
    (1_500_000, np.float32),
)


def long_calls() -> str:
    """Make calls whose data is too long to go along, and return what has come of them."""
    rank, size = begin()
    seen = hashlib.sha256()
    for place, (count, dtype) in enumerate(LONG):
        numbers = np.random.default_rng(place).integers(0, 5, (size, count), np.uint8)
        data, total = numbers.astype(dtype), numbers.sum(0, np.float32).astype(dtype)  # the same in any order
        for root in (place % size, (place + 2) % size):
            array = data[rank].copy()
            average = np.issubdtype(dtype, np.floating) and root % 2
            dist.reduce(array, root, dist.ReduceOp.AVG if average else dist.ReduceOp.SUM)
            seen.update(array)
            if rank == root and average:
                assert np.allclose(array, total / size, rtol=1e-3)
            else:
                assert (array == (total if rank == root else data[rank])).all()
            array = data[rank].copy()
            work = dist.broadcast(array, root, async_op=True)
            assert work is not None
            work.wait()
            assert (array == data[root]).all()
        parts = np.zeros_like(data)
        dist.all_gather(list(parts), data[rank])
        assert (parts == data).all()
        cuts = [1 + count // 3, count, 0, 5, 7][:size]  # hosts do not have as much
        array = np.zeros(cuts[rank], dtype)
        dist.reduce_scatter(array, [data[rank][:cut] for cut in cuts])
        assert (array == total[: cuts[rank]]).all()
        array = np.zeros(count, dtype)
        dist.reduce_scatter(array, [data[rank]] * size)
        assert (array == total).all()
    dist.destroy_process_group()
    return seen.hexdigest()


def modules_of_warm_calls() -> list[str]:
    """Return the modules of gloo whose functions warm calls run."""
    begin()
    array, names = np.zeros(4, np.float32), set()
    parts, whole = [np.zeros_like(array) for _ in range(4)], np.zeros(16, np.float32)
    for call in (
        lambda: dist.all_reduce(array),
        lambda: dist.broadcast(array, 1),
        lambda: dist.reduce(array, 2),
        lambda: dist.all_gather(parts, array),
        lambda: dist.all_gather_single(whole, array),
        lambda: dist.reduce_scatter(array, parts),
        lambda: dist.reduce_scatter_single(array, whole),
        lambda: dist.gather(array, parts if dist.get_rank() == 2 else None, 2),
        lambda: dist.scatter(array, parts if dist.get_rank() == 1 else None, 1),
        lambda: dist.all_to_all(list(np.zeros((4, 4), np.float32)), parts),
        lambda: dist.all_to_all_single(np.zeros_like(whole), whole),
        dist.barrier,
    ):
        for turn in range(20):
            frames = called(call)
            if turn >= 10:
                names |= {frame.f_globals["__name__"].rpartition(".")[2] for frame in frames}
    dist.destroy_process_group()
    return sorted(names)


def out_of_order() -> None:
    """Messages and collectives of several threads meet on one connection, early and late ones among them."""
    rank, _ = begin()
    errors: list[BaseException] = []

    def exchange(tag: int) -> None:
        try:
            for turn in range(60):
                out, into = np.full(1 + 50 * tag, tag * 1000 + turn, np.int64), np.zeros(1 + 50 * tag, np.int64)
                work = dist.irecv(into, 1 - rank, tag=tag) if turn % 2 else None
                dist.send(out, 1 - rank, tag=tag)
                if work is None:
                    dist.recv(into, 1 - rank, tag=tag)
                else:
                    work.wait()
                assert (into == out).all()
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=exchange, args=(tag,)) for tag in (1, 2, 3)]
    for thread in threads:
        thread.start()
    for turn in range(200):
        array = np.full(1 + 37 * (turn % 9), turn + rank, np.int32)
        dist.all_reduce(array)
        assert (array == 2 * turn + 1).all()
    for thread in threads:
        thread.join(25)
    assert not errors, errors
    assert not any(thread.is_alive() for thread in threads)
    dist.destroy_process_group()


def ever_more() -> None:
    """Send more than windows hold, so that credit goes to and fro, in calls of every length."""
    rank, size = begin()
    for turn in range(300):
        array = np.full(30_000 + turn, rank + 1, np.float32)
        dist.all_reduce(array)
        assert (array == sum(range(1, size + 1))).all()
    dist.destroy_process_group()


def differ_and_go_on() -> list[str]:
    rank, size = begin()
    said = []
    for count in (4, 5000, 200_000):
        array, other = np.full(count, rank, np.float32), np.zeros(count if rank else 3)
        dist.all_reduce(array)
        for wrong in (
            lambda: dist.all_reduce(np.zeros(9 + rank, np.float32)),
            lambda array=array: dist.barrier() if rank else dist.all_reduce(array),
            lambda array=array: dist.all_reduce(array, OPS[rank]),
            lambda array=array: dist.reduce(array, rank % 2),
            lambda: dist.all_gather(list(np.zeros((size, 4 + rank))), np.zeros(4 + rank)),
            lambda other=other: dist.reduce_scatter(other, [other + 0] * size),
            lambda: dist.all_to_all(
                [np.zeros(4 + (rank == 1 != peer)) for peer in range(size)], list(np.zeros((size, 4)))
            ),
            lambda: dist.gather(np.zeros(4 + (rank == 1)), None if rank else list(np.zeros((size, 4)))),
            lambda: dist.scatter(np.zeros(4)) if rank else dist.gather(np.zeros(4), list(np.zeros((size, 4)))),
        ):
            before = array.copy()
            try:
                wrong()
            except CollectiveMismatchError as error:
                said.append(str(error))
            assert (array == before).all()
        array = np.full(count, rank, np.float32)
        dist.all_reduce(array)
        assert (array == sum(range(size))).all()
    dist.destroy_process_group()
    return said


def breaks_off_in_the_middle(how: str, victim: int) -> list[str]:
    """One rank aborts the group, or is late, once the calls are compared; return what becomes of each call."""
    rank, _ = begin()
    groups = [dist.new_group() for _ in LONG_CALLS]
    now, found = [groups[0]], []
    if rank == victim:
        in_the_middle(lambda: now[0].abort() if how == "abort" else time.sleep(1.5))  # it is to be late
    for name, group in zip(LONG_CALLS, groups, strict=True):
        now[0] = group
        timeout_s = 30.0 if how == "abort" or rank == victim else 0.5
        found.append(end_of(partial(_call_and_meet, name, group, timeout_s)))
        dist.barrier()  # the next one waits for nobody
    dist.destroy_process_group()
    return found


def _call_and_meet(name: str, group: Any, timeout_s: float) -> None:
    everyones_call(name, group, timeout_s)
    dist.barrier(group=group)


def one_is_late(count: int = 4) -> list[str]:
    rank, size = begin()
    store = PrefixStore("late", current().store)
    for _ in range(5):
        dist.barrier()
    said: list[str] = []
    if rank:
        error = error_of(lambda: dist.all_reduce(np.zeros(count, np.float32), timeout=0.5))
        assert isinstance(error, DistTimeoutError)
        said = [str(error).split(":")[0], *map(str, error.waited_for)]
        store.set(f"done {rank}", b"")
    else:
        store.wait([f"done {peer}" for peer in range(1, size)], timeout=20)
    dist.destroy_process_group()
    return said


def interrupted(count: int = 4) -> str:
    """Rank 0 is interrupted while it waits for others."""
    rank, _ = begin()
    array = np.zeros(count, np.float32)
    for _ in range(5):
        dist.all_reduce(array)
    if rank:
        time.sleep(0.5)  # it is to be late
    else:
        signal.signal(signal.SIGALRM, signal.default_int_handler)
        signal.setitimer(signal.ITIMER_REAL, 0.1)
    found = end_of(lambda: dist.all_reduce(array))
    dist.destroy_process_group()
    return found


def behind_a_long_message() -> int:
    """Reduce where the connection is still busy with another message; return how many results are wrong.

    What goes must not be changed by what comes.
    """
    rank, wrong = begin()[0], 0
    for turn in range(10):
        for long in (np.zeros(1, np.uint8), np.zeros(3_500_000, np.uint8)):
            array = np.full((100_000, 600_000)[turn % 2], rank + 1.0, np.float32)
            before = None if rank else dist.isend(long, 1, tag=5)
            dist.all_reduce(array)
            if rank:
                dist.recv(long, 0, tag=5)
            elif before is not None:
                before.wait()
            wrong += not (array == 3).all()
    dist.destroy_process_group()
    return wrong


def memory_that_the_collector_sees() -> list[str]:
    """Return which compiled objects show the collector a memoryview.

    They have lent its memory. Before Python 3.13 the collector clears it nevertheless, and crashes as it frees it.
    """
    rank = begin()[0]
    dist.all_reduce(np.zeros(4))
    (dist.send if rank else dist.recv)(np.zeros(4), 1 - rank)
    compiled = [each for each in gc.get_objects() if type(each).__module__ == "rankwise_native"]
    assert "Wire" in {type(each).__name__ for each in compiled}
    seen = [type(each).__name__ for each in compiled if memoryview in map(type, gc.get_referents(each))]
    dist.destroy_process_group()
    return seen


#: What the ranks of `while_it_moves` do meanwhile, and what becomes of the call.
MEANWHILE = {
    "compute": "done",
    "collect": "done",
    "fork": "done",
    "message": "done",
    "abort": "GroupAbortedError",
    "interrupt": "KeyboardInterrupt",
    "stand still": "DistTimeoutError",
}
_MOVED_NBYTES = 32 << 20


def while_it_moves(what: str) -> str:
    """Do something while an asynchronous call moves much more than sockets hold, and return what becomes of it.

    Rank 0 is the one that is aborted, interrupted, or waits for a rank that stands still.
    """
    rank, _ = begin()
    array = np.full(_MOVED_NBYTES // 4, rank + 1.0, np.float32)
    dist.barrier()
    connection = dist.group.WORLD.communicators()[0].engine.peers[1 - rank].connection
    pids = np.array([os.getpid() if each == rank else 0 for each in range(2)])
    dist.all_reduce(pids)
    begun = connection.came_nbytes + _MOVED_NBYTES // 16
    work = dist.all_reduce(array, async_op=True, timeout=2.0 if what == "stand still" else None)
    assert work is not None
    while connection.came_nbytes < begun and not work.is_completed():
        time.sleep(0)
    try:
        _do_meanwhile(what, rank, int(pids[1]))
        work.wait()
        found = "done"
        assert (array == 3).all()
        if MEANWHILE[what] == "done":
            dist.all_reduce(array)
            assert (array == 6).all()
    except (dist.DistError, KeyboardInterrupt) as error:
        found = type(error).__name__
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        if what == "stand still" and rank == 0:
            os.kill(int(pids[1]), signal.SIGCONT)
    dist.destroy_process_group()
    return found


def _do_meanwhile(what: str, rank: int, other: int) -> None:
    if what == "compute":
        sum(range(2_000_000))
    elif what == "collect":
        for _ in range(5):
            gc.collect()
    elif what == "fork":
        if (child := os.fork()) == 0:
            os._exit(0)
        assert os.waitpid(child, 0)[1] == 0
    elif what == "message":
        data = np.full(30_000, rank, np.float32)
        (dist.recv if rank else dist.send)(data, 1 - rank, tag=5)
        assert (data == 0).all()
    elif rank == 0 and what == "abort":
        dist.group.WORLD.abort()
    elif rank == 0 and what == "interrupt":
        signal.signal(signal.SIGALRM, signal.default_int_handler)
        signal.setitimer(signal.ITIMER_REAL, 0.003)
    elif rank == 0 and what == "stand still":
        os.kill(other, signal.SIGSTOP)


def seldom_in_python(tries: int) -> int:
    """Return how many Python functions an `all_reduce` of 16 MiB calls at least: others may have the processor.

    What is kept waiting for long is left to Python.
    """
    rank, _ = begin()
    array = np.empty(4 << 20, np.float32)
    found = []
    for _ in range(tries):
        array[:] = rank + 1.0
        dist.barrier()
        found.append(len(called(lambda: dist.all_reduce(array))))
        assert (array == 3).all()
    dist.destroy_process_group()
    return min(found)
