"""What ranks run with public functions that compiled code stands in front of, and with the functions themselves."""

from __future__ import annotations

import signal
import threading
import time
import traceback
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

import rankwise as dist
from rankwise_local import local_world

#: Enough for a call to be prepared, and then found.
WARM = 3


def begin() -> tuple[int, int]:
    if not dist.is_initialized():
        dist.init_process_group("gloo", timeout=30)
    return dist.get_rank(), dist.get_world_size()


def behind(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return what stands behind a function, which is itself where nothing stands in front."""
    return getattr(function, "__wrapped__", function)


def ways_to_say_it(group: Any, src: int) -> dict[str, tuple[tuple[Any, ...], dict[str, Any]]]:
    """Return how a program may say one broadcast."""
    return {
        "by position": ((src, group), {}),
        "by name": ((), {"src": src, "group": group}),
        "both": ((src,), {"group": group}),
        "all by name": ((), {"group": group, "src": src, "async_op": False, "group_src": None, "timeout": None}),
        "with a time-out": ((src, group), {"timeout": 20}),
        "as a rank in the group": ((), {"group": group, "group_src": dist.get_group_rank(group, src)}),
        "as numpy says it": ((np.int64(src), group), {}),
        "asynchronously": ((src, group, True), {}),
    }


def said_in_all_ways() -> None:
    """Broadcast from the last rank of a group whose ranks have other numbers there, and of the world."""
    rank, size = begin()
    others = dist.new_group(list(range(1, size)))
    for group in (dist.group.WORLD, others):
        if group == dist.GroupMember.NON_GROUP_MEMBER:
            continue
        for said, (args, options) in ways_to_say_it(group, size - 1).items():
            for _ in range(WARM):
                array = np.full(2, float(rank))
                work = dist.broadcast(array, *args, **options)
                assert (work is None) == (said != "asynchronously"), said
                if work is not None:
                    work.wait()
                assert array.tolist() == [size - 1.0] * 2, said
    dist.barrier()


def messages_in_all_ways() -> None:
    rank, size = begin()
    others = dist.new_group(list(range(1, size)))
    if rank == 0:
        return
    peer, array = 3 - rank, np.zeros(2)
    assert dist.get_group_rank(others, peer) == peer - 1
    for number in range(20 * WARM):
        tag = number % 2
        if rank == 1:
            dist.send(np.full(2, float(number)), peer, others, tag)
            dist.isend(np.full(2, number + 0.5), dst=peer, group=others, tag=tag).wait()  # type: ignore[union-attr]
            assert dist.recv(array, None, others) == peer
        else:
            assert dist.recv(array, peer, group=others, tag=tag) == peer
            assert array.tolist() == [number] * 2
            work = dist.irecv(array, src=peer, group=others, tag=tag)
            assert work is not None
            assert work.wait()
            assert work.source_rank() == peer
            assert array.tolist() == [number + 0.5] * 2
            dist.send(array, peer, others)


def refused_in_both() -> list[list[tuple[str, str]]]:
    """Return what calls say that are wrong, or mean nothing here, by a function and by the one behind."""
    _, size = begin()
    array, group, op = np.zeros(2), dist.group.WORLD, dist.ReduceOp.SUM
    stranger = dist.GroupMember.NON_GROUP_MEMBER
    wrong: dict[str, tuple[Any, tuple[Any, ...], dict[str, Any]]] = {
        "nothing": (dist.all_reduce, (), {}),
        "no reduce op": (dist.all_reduce, (array, "sum"), {}),
        "twice": (dist.all_reduce, (array,), {"tensor": array}),
        "no parameter": (dist.all_reduce, (array,), {"of": 1}),
        "too much": (dist.all_reduce, (array, op, group, False, 30), {}),
        "no group": (dist.all_reduce, (array, op, "world"), {}),
        "a stranger": (dist.all_reduce, (array,), {"group": stranger}),
        "no array": (dist.all_reduce, ("array",), {}),
        "no time": (dist.all_reduce, (array,), {"timeout": -1}),
        "no root": (dist.broadcast, (array,), {}),
        "a root beyond": (dist.broadcast, (array, size), {}),
        "a root before": (dist.broadcast, (array, -1), {}),
        "a root in words": (dist.broadcast, (array, "0"), {}),
        "two roots": (dist.broadcast, (array, 0), {"group_src": 0}),
        "no list": (dist.gather, (array, array, dist.get_rank()), {}),
        "a barrier of much": (dist.barrier, (group, False, None, None, None), {}),
        "to oneself": (dist.send, (array, dist.get_rank()), {}),
        "no tag": (dist.send, (array, (dist.get_rank() + 1) % size, group, -1), {}),
        "from beyond": (dist.recv, (array, size), {}),
        "to nobody": (dist.isend, (array,), {}),
        "into no array": (dist.irecv, ("array", 0), {}),
    }

    def said(call: Any, args: Any, options: Any) -> str:
        try:
            return f"returns {call(*args, **options)!r}"
        except (TypeError, ValueError) as error:
            return "".join(traceback.format_exception_only(error))

    found = [
        [(what, said(of(function), args, options)) for what, (function, args, options) in wrong.items()]
        for of in (lambda function: function, behind)
    ]
    dist.barrier()
    return found


def in_worlds_of_their_own() -> list[float]:
    """Return what threads get that each have a world of their own, where the same function stands for other groups."""
    begin()
    array = np.ones(2)

    def reduced() -> float:
        own = np.full(2, dist.get_rank() + 1.0)
        dist.all_reduce(own)
        return float(own[0])

    for _ in range(WARM):
        dist.all_reduce(array)
    with local_world(3) as world:
        inner = world.run(reduced)
    array[:] = 1
    dist.all_reduce(array)
    return [*inner, float(array[0])]


def interrupted_in_both() -> list[tuple[str, str, str]]:
    """Have a handler raise Python's own errors while rank 0 waits for a message; return what becomes of all."""
    rank, _ = begin()
    told = []
    for error in (ValueError("my words"), TypeError("my words"), TimeoutError("my words"), KeyError("my words")):
        for way in (lambda function: function, behind):
            group = dist.new_group([0, 1])
            if rank < 2:
                told.append(_interrupted(way(dist.recv), group, rank, error))
            dist.barrier()
    return told


def _interrupted(recv: Callable[..., Any], group: Any, rank: int, error: Exception) -> tuple[str, str, str]:
    array = np.ones(2)
    for _ in range(WARM):
        if rank == 0:
            dist.send(array, 1, group)
            recv(array, 1, group)
        else:
            dist.recv(array, 0, group)
            dist.send(array, 0, group)
    said = context = ""
    if rank == 0:
        said, context = _after_a_signal(partial(recv, array, 1, group), error)
    try:
        dist.all_reduce(np.ones(1), group=group, timeout=10)
    except dist.DistError as ended:
        return said, context, type(ended).__name__
    return said, context, "it goes on"


def _after_a_signal(call: Callable[[], object], error: Exception) -> tuple[str, str]:
    """Return what ends a call in which a handler raises, and what that was raised in the midst of."""

    def handler(number: int, frame: object) -> None:
        tensor = "of the handler"
        try:
            raise KeyError(tensor)
        except KeyError:
            raise type(error)(*error.args) from None

    before = signal.signal(signal.SIGALRM, handler)
    signal.setitimer(signal.ITIMER_REAL, 0.01)
    try:
        call()
    except Exception as ended:
        return f"{type(ended).__name__}: {ended}", repr(ended.__context__)
    finally:
        signal.signal(signal.SIGALRM, before)
    return "", ""


def lists_that_change() -> list[list[float]]:
    """Reduce several arrays as one, while another thread changes their list."""
    rank, size = begin()
    found = []
    for change in (
        list.clear,
        lambda arrays: arrays.append(np.ones(1000)),
        lambda arrays: arrays.__setitem__(0, object()),
    ):
        for late in (False, True):
            arrays = [np.full(3, 1.0), np.full(2, 10.0)]
            kept = list(arrays)
            dist.barrier()
            if late and rank == 0:
                threading.Thread(target=_change_soon, args=(arrays, change)).start()
            elif late:
                time.sleep(0.1)
            dist.all_reduce_coalesced(arrays)
            found.append([float(array[0]) / size for array in kept])
    return found


def _change_soon(arrays: list[Any], change: Callable[[list[Any]], object]) -> None:
    time.sleep(0.03)
    change(arrays)
