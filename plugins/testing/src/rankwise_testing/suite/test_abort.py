"""Giving a group up: blocked calls end on all ranks, and the program goes on."""

from __future__ import annotations

import gc
import threading
import time
import weakref
from contextlib import suppress

import pytest

import rankwise as dist
from rankwise.errors import DistError, DistTimeoutError, GroupAbortedError
from rankwise_testing.suite.expect import begun, error_of, numbers, settled, still_usable, together
from rankwise_testing.suite.place import JoinPlan
from rankwise_testing.suite.plugin import Kit, needs

pytestmark = needs("abort")

_SOON_S = 5.0


@needs("all_reduce")
def test_a_blocked_collective_is_ended_from_another_thread_on_all_ranks(kit: Kit) -> None:
    kit.run_alone(3, blocked_in_collective)


def blocked_in_collective() -> None:
    rank, group = dist.get_rank(), dist.group.WORLD
    assert group is not None
    if rank == 2:
        return
    if rank == 0:
        threading.Timer(0.1, group.abort).start()
    begin = time.monotonic()
    error = error_of(DistError, settled, dist.all_reduce, numbers(1))
    took = time.monotonic() - begin
    assert not isinstance(error, DistTimeoutError), error
    assert took < _SOON_S, f"it took {took:.1f} s"
    if rank == 0:
        assert isinstance(error, GroupAbortedError), repr(error)
        again = error_of(GroupAbortedError, settled, dist.all_reduce, numbers(1))
        assert str(again) == str(error)


@needs("all_reduce")
def test_a_call_that_has_failed_is_not_kept(kit: Kit) -> None:
    kit.run_alone(3, failed_and_forgotten)


def failed_and_forgotten() -> None:
    group = dist.group.WORLD
    assert group is not None
    if dist.get_rank() == 2:
        return
    threading.Timer(0.1, group.abort).start()
    kept = [_fails() for _ in range(2)]
    gc.collect()
    assert [variable() for variable in kept] == [None] * 2, "a kept error holds variables of the calls"


def _fails() -> weakref.ref[_Variable]:
    variable = _Variable()
    error_of(DistError, settled, dist.all_reduce, numbers(1))
    return weakref.ref(variable)


class _Variable:
    """What a program has in a variable, beside a call that fails."""


@needs("recv")
def test_a_blocked_receive_is_ended_from_another_thread(kit: Kit) -> None:
    if kit.device != "cpu":
        pytest.skip("on a GPU recv() orders the stream and does not block the host")
    kit.run_alone(2, blocked_in_receive, not kit.lacks("timeout"))


def blocked_in_receive(may_be_timed: bool) -> None:
    rank, group = dist.get_rank(), dist.group.WORLD
    assert group is not None
    pending = begun(dist.irecv(numbers(0), 1 - rank))
    if rank == 0:
        threading.Timer(0.1, group.abort).start()
    begin = time.monotonic()
    error = error_of(DistError, dist.recv, numbers(0), 1 - rank, **({"timeout": _SOON_S} if may_be_timed else {}))
    assert not isinstance(error, DistTimeoutError), f"nobody has told rank {rank} of the abort: {error}"
    ended = error_of(DistError, pending.wait)
    assert rank or isinstance(ended, GroupAbortedError), f"what was pending ended with another error: {ended!r}"
    took = time.monotonic() - begin
    assert took < _SOON_S, f"it took {took:.1f} s"


@needs("async", "all_reduce")
def test_pending_works_end_too(kit: Kit) -> None:
    kit.run_alone(2, pending_works)


def pending_works() -> None:
    rank, group = dist.get_rank(), dist.group.WORLD
    if rank == 1 or group is None:
        return
    works = [begun(dist.all_reduce(numbers(i), async_op=True)) for i in range(3)]
    dist.abort_process_group()
    for work in works:
        error_of(GroupAbortedError, work.synchronize)
        assert not work.is_success()
    group.abort("a second time")


@needs("send", "recv")
@pytest.mark.parametrize("way", ["again", "by two threads", "by all ranks"])
def test_a_group_may_be_aborted_more_than_once(kit: Kit, way: str) -> None:
    if kit.device != "cpu":
        pytest.skip("on a GPU recv() orders the stream and does not block the host")
    kit.run_alone(2, aborted_more_than_once, way)


def aborted_more_than_once(way: str) -> None:
    rank, group = dist.get_rank(), dist.group.WORLD
    assert group is not None
    first, second, *pending = [begun(dist.irecv(numbers(0), 1 - rank)) for _ in range(5)]
    begun(dist.isend(numbers(1), 1 - rank)).wait()
    first.wait()  # the other rank has begun its receives too
    with suppress(DistError):  # rank 0 waits until the other has received its first, which no abort may end
        (second if rank == 0 else begun(dist.isend(numbers(1), 0))).wait()
    (communicator,) = group.communicators()
    begin = time.monotonic()
    if rank == 0 or way == "by all ranks":
        group.abort("the first time")
        if way == "by two threads":
            error = GroupAbortedError("by another thread")
            together([lambda: communicator.abort(error), lambda: communicator.abort(error)], _SOON_S)
        group.abort("the second time")
        communicator.abort(GroupAbortedError("the third time"))
    told = error_of(DistError, pending[0].wait)
    for work in pending:
        assert str(error_of(DistError, work.wait)) == str(told), "a later abort has changed the error"
    took = time.monotonic() - begin
    assert took < _SOON_S, f"it took {took:.1f} s"


@needs("all_reduce", "barrier")
def test_after_an_abort_the_ranks_can_begin_again(kit: Kit) -> None:
    kit.run_outside(2, begin_again)


def begin_again(meeting: JoinPlan, rank: int) -> None:
    aside = meeting.outside()
    for number in range(3):
        meeting.join(rank)
        settled(dist.barrier)
        if rank == 0:
            aside.get(f"out of barrier {number}")  # an abort may end what another rank is still in
            dist.abort_process_group()
            error_of(GroupAbortedError, settled, dist.all_reduce, numbers(1))
        else:
            aside.set(f"out of barrier {number}", "")
            error_of(DistError, settled, dist.all_reduce, numbers(1))
        with suppress(DistError):  # it may say what it was that ended the group
            dist.destroy_process_group()
        assert not dist.is_initialized()
    meeting.join(rank)
    still_usable()
    dist.destroy_process_group()


@needs("all_reduce")
def test_aborting_one_group_leaves_the_others_alone(kit: Kit) -> None:
    kit.run_alone(2, other_groups)


def other_groups() -> None:
    group = dist.new_group([0, 1])
    assert not isinstance(group, int)
    still_usable(group)
    if dist.get_rank() == 0:
        group.abort()
    still_usable()
    error_of(DistError, settled, dist.all_reduce, numbers(1), group=group)
    still_usable()
