"""What tests expect of a rank: an error, or a group that still works."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from contextvars import copy_context
from queue import Empty, SimpleQueue
from typing import Any, TypeVar

import numpy as np

import rankwise as dist
from rankwise.kits import Deadline, GroupLike, ProcessGroup, Work, registry
from rankwise_testing.suite.arrays import device, on_device, plain, plain_name, same

E = TypeVar("E", bound=BaseException)


def numbers(*values: float) -> Any:
    """Return an array of the plain dtype on the device under test."""
    return on_device(host(*values))


def host(*values: float) -> Any:
    """Return an array of the plain dtype on the host; whole numbers that it does not hold wrap around."""
    return np.array(values, np.int64).astype(plain())


def error_of(kind: type[E] | tuple[type[E], ...], call: Callable[..., Any], *args: Any, **terms: Any) -> E:
    """Make a call that must raise an error of a kind, or of one of several, and return that."""
    kinds = kind if isinstance(kind, tuple) else (kind,)
    wanted = " or ".join(each.__name__ for each in kinds)
    try:
        result = call(*args, **terms)
    except kinds as error:
        return error
    except Exception as error:
        raise AssertionError(f"{type(error).__name__} instead of {wanted}: {error}") from error
    raise AssertionError(f"no {wanted}, but {result!r} was returned")


def begun(work: Work | None) -> Work:
    """Return the work of a call that must have returned one."""
    assert work is not None, "a member of the group got no work"
    return work


def settled(call: Callable[..., Work | None], *args: Any, **terms: Any) -> None:
    """Make a call, and block this thread until the operation has ended, on whatever device."""
    if device() == "cpu":
        call(*args, **terms)
    else:
        begun(call(*args, async_op=True, **terms)).synchronize()


def still_usable(group: GroupLike = None) -> None:
    """Raise unless the group does something correct now: an all_reduce, or else what the backend has."""
    assert group is None or isinstance(group, ProcessGroup)
    rank, size = dist.get_rank(group), dist.get_world_size(group)
    table = registry.get(dist.get_backend(group).rpartition(":")[2]).capabilities
    if table.supports("all_reduce", device(), plain_name(), "SUM"):
        array = numbers(rank + 1, 1)
        dist.all_reduce(array, group=group)
        same(array, host(size * (size + 1) // 2, size))
    elif table.supports("send", device(), plain_name()) and table.supports("recv", device(), plain_name()):
        array = numbers(0)
        work = begun(dist.isend(numbers(rank), group=group, group_dst=(rank + 1) % size))
        begun(dist.irecv(array, group=group, group_src=(rank - 1) % size)).wait()
        work.wait()
        same(array, host((rank - 1) % size))
    elif table.supports("barrier", device()):
        dist.barrier(group)


def until(condition: Callable[[], bool], what: str, timeout_s: float = 10.0) -> None:
    """Wait until a condition holds."""
    deadline = Deadline(timeout_s)
    while not condition():
        if deadline.expired():
            raise AssertionError(f"{what} did not come true within {timeout_s:g} s")
        time.sleep(0.001)


def together(calls: Sequence[Callable[[], object]], timeout_s: float = 30.0) -> None:
    """Make calls at the same time, each on a thread of its own, and raise the first error as soon as it comes."""
    ends: SimpleQueue[BaseException | None] = SimpleQueue()

    def run(call: Callable[[], object]) -> None:
        try:
            call()
            ends.put(None)
        except BaseException as error:  # it is raised again below
            ends.put(error)

    for call in calls:
        threading.Thread(target=copy_context().run, args=(run, call), daemon=True).start()
    deadline = Deadline(timeout_s)
    for number in range(len(calls)):
        try:
            error = ends.get(timeout=deadline.remaining())
        except Empty:
            standing = len(calls) - number
            raise AssertionError(f"{standing} of {len(calls)} threads did not return within {timeout_s:g} s") from None
        if error is not None:
            raise error


def has_no_store() -> bool:
    """Tell whether the ranks have nothing but the backend to learn of each other by."""
    group = dist.group.WORLD
    return group is None or group.store is None
