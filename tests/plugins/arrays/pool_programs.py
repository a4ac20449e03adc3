"""What ranks run with pools and channels."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any

import numpy as np

import rankwise as dist


def square(task: Any) -> Any:
    return task * task


def maps(size: int) -> None:
    """Map in both orders, and more than once."""
    with dist.pool() as pool:
        assert pool.leads == (dist.get_rank() == 0)
        assert (size > 1) == bool(pool.workers)
        for n in (0, 1, size - 1, 40):
            assert sorted(pool.map_unordered(square, range(n))) == ([i * i for i in range(n)] if pool.leads else [])
            assert pool.done == (n if pool.leads else 0)
            assert list(pool.map(square, range(n))) == ([i * i for i in range(n)] if pool.leads else [])
    assert dist.functional.all_reduce(1) == size


def arrays_travel() -> None:
    """Have tasks and results that fit into no box, and some that do."""
    with dist.pool() as pool:
        tasks = [np.full(n, n) for n in (0, 1, 90, 130, 5000, 200_000, 3)]
        for task, result in zip(tasks, pool.map(square, tasks), strict=False):
            np.testing.assert_array_equal(result, task * task)


def any_object_travels_as_a_pickle() -> list[Any]:
    with dist.pool(pickle=True) as pool:
        return list(pool.map(partial(pow, 2), [Path("a").name.__len__(), 3]))


def asks_for_few(size: int, chunksize: int) -> None:
    """Take tasks from a source without end, of which no more are asked for than workers have at a time."""
    taken = []

    def source() -> Iterator[int]:
        for number in count():
            taken.append(number)
            yield number

    with dist.pool(chunksize=chunksize) as pool:
        for got, _ in enumerate(pool.map_unordered(square, source()), 1):
            assert len(taken) <= got + chunksize * size - 1
            if got == 20 * chunksize:
                break
    assert dist.functional.all_reduce(1) == size


LATE = range(500, 564)


def takes_long_later(task: int) -> tuple[int, int]:
    """Return a task and who has done it; some take long, behind many that do not."""
    if task in LATE:
        time.sleep(0.002)
    return task, dist.get_rank()


def gives_back() -> list[int]:
    """Return who has done the tasks that take long, of which a worker would have many at a time."""
    with dist.pool() as pool:
        done = [*pool.map(takes_long_later, range(1000))]
    assert [task for task, _ in done] == ([*range(1000)] if pool.leads else [])
    return [rank for _, rank in done[LATE.start : LATE.stop]]


def fails(task: int) -> int:
    if task == 5:
        raise LookupError("no such thing")
    return task


def says_where() -> tuple[int, int, str] | None:
    """Return what is told of a task that fails; all go on after it."""
    told = None
    with dist.pool() as pool:
        try:
            assert len([*pool.map(fails, range(9))]) == 0
        except dist.TaskError as error:
            told = error.number, error.rank, str(error)
        assert sorted(pool.map_unordered(square, range(3))) == ([0, 1, 4] if pool.leads else [])
    dist.barrier()
    return told


def does_not_travel(of_task: bool) -> str:
    """Return what the leader hears of a task or a result of a type that does not travel."""
    told = ""
    with dist.pool() as pool:
        function = square if of_task else lambda task: object()
        try:
            for _ in pool.map(function, [object() if of_task else 1]):
                pass
        except (TypeError, dist.TaskError) as error:
            told = f"{type(error).__name__}: {error}"
    dist.barrier()
    return told


def the_leader_raises() -> None:
    """Leave the block by an error, while workers have tasks."""
    try:
        with dist.pool() as pool:
            for _ in pool.map_unordered(square, count()):
                raise LookupError
    except LookupError:
        assert dist.get_rank() == 0
    dist.barrier()


def dies_once(folder: str, task: int) -> int:
    """Kill the first process that gets one of some tasks."""
    if task % 10 == 3:
        try:
            os.close(os.open(f"{folder}/{task}", os.O_CREAT | os.O_EXCL))
        except FileExistsError:
            return task
        os.kill(os.getpid(), signal.SIGKILL)
    return task


def kills(task: int) -> int:
    if task == 3:
        os.kill(os.getpid(), signal.SIGKILL)
    return task


def goes_on(folder: str, tasks: int) -> tuple[list[int], int, int]:
    """Have workers die; return the results, how many were lost, and how many are left."""
    dist.init_process_group("gloo", timeout=30)
    with dist.pool() as pool:
        results = sorted(pool.map_unordered(partial(dies_once, folder), range(tasks)))
        again = [*pool.map(square, range(5))]
        assert again == ([i * i for i in range(5)] if pool.leads else [])
    return results, len(pool.lost), dist.functional.all_reduce(1, group=pool.group)


def dies_between(victim: int) -> list[int]:
    """Have a worker die while nobody waits for it."""
    dist.init_process_group("gloo", timeout=30)
    with dist.pool() as pool:
        assert len([*pool.map(square, range(4))]) == (4 if pool.leads else 0)
        if dist.get_rank() == victim:
            os.kill(os.getpid(), signal.SIGKILL)
        return [*pool.map(square, range(6))]


def is_given_up(attempts: int) -> str:
    """Return what the leader hears of a task that kills whoever has it."""
    dist.init_process_group("gloo", timeout=30)
    with dist.pool(attempts=attempts) as pool:
        try:
            for _ in pool.map_unordered(kills, range(8)):
                pass
        except dist.DistError as error:
            return f"{type(error).__name__}: {error}"
    return ""


def without_a_leader() -> tuple[str, int]:
    """Return what workers hear of the death of their leader."""
    dist.init_process_group("gloo", timeout=30)
    try:
        with dist.pool() as pool:
            for _ in pool.map_unordered(square, range(100)):
                os.kill(os.getpid(), signal.SIGKILL)
    except dist.PeerDiedError as error:
        return type(error).__name__, error.rank
    return "nothing", -1


# ---------------------------------------------------------------------- channels


def values_come(src: int, number: int) -> None:
    """Put in objects and arrays of all sizes, beside other calls."""
    values: list[Any] = [None, {"a": [1, 2.5]}, np.arange(7), "x" * 3000, np.ones((300, 500)), *range(number)]
    with dist.channel(src) as channel:
        assert dist.functional.all_reduce(1) == dist.get_world_size()
        if channel.writes:
            for value in values:
                channel.put(value)
        else:
            got = [channel.get() for _ in range(2)]
            got += channel
            assert len(got) == len(values)
            for one, meant in zip(got, values, strict=True):
                assert type(one) is type(meant)
                np.testing.assert_equal(one, meant)
    assert dist.functional.all_reduce(1) == dist.get_world_size()


def who_leaves_early_takes_the_rest() -> int:
    """Have readers that stop after a value, and close."""
    with dist.channel(0) as channel:
        if channel.writes:
            for number in range(10):
                channel.put(number)
            return 0
        for number in channel:
            if number == 2:
                break
    return int(number)


def after_the_end() -> list[str]:
    """Return what calls say that come too late, or from the wrong end."""
    told = []
    channel = dist.channel(0)
    calls = [lambda: channel.get()] if channel.writes else [lambda: channel.put(1)]
    if channel.writes:
        channel.close()
    else:
        calls.append(lambda: channel.get())
    for call in [*calls, lambda: channel.put(2) if channel.writes else channel.get()]:
        try:
            call()
        except (ValueError, EOFError) as error:
            told.append(f"{type(error).__name__}: {error}")
    channel.close()
    return told


def a_dead_end(victim: int) -> tuple[str, int]:
    """Return what the others hear of an end that dies."""
    dist.init_process_group("gloo", timeout=30)
    channel = dist.channel(0)
    try:
        for number in range(1000):
            if number == 5 and dist.get_rank() == victim:
                os.kill(os.getpid(), signal.SIGKILL)
            if channel.writes:
                channel.put(number)
            else:
                assert channel.get() == number
    except dist.PeerDiedError as error:
        return type(error).__name__, error.rank
    return "nothing", -1
