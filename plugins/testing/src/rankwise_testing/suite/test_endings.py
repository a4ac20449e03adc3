"""Ends: what was issued before `destroy_process_group` arrives, and nobody goes on waiting for a rank that is gone."""

from __future__ import annotations

import os
import signal
import time
from contextlib import suppress

import pytest

import rankwise as dist
from rankwise.errors import DistError, DistTimeoutError
from rankwise.kits import ProcessGroup, Store
from rankwise_testing.suite.arrays import on_device, pattern, same
from rankwise_testing.suite.exercises import Case, perform
from rankwise_testing.suite.expect import begun, error_of, host, numbers, still_usable
from rankwise_testing.suite.place import JoinPlan
from rankwise_testing.suite.plugin import Kit, needs

_SOON_S = 5.0
#: How long a receiver waits for the sender's destroy to return; a destroy may also wait for the receives.
_PATIENCE_S = 2.0
#: Messages that are issued before the end: large, small, and of another tag.
_SIZES = (2_000_000, 1, 2_000_000, 70_000, 2_000_000, 2_000_000, 5, 2_000_000)


@needs("send", "recv")
@pytest.mark.parametrize("late", [False, True], ids=["at once", "late"])
def test_what_was_sent_before_destroy_arrives(kit: Kit, late: bool) -> None:
    kit.on_host_only("what a GPU waits for cannot be withdrawn")
    kit.require("uint8", "send", "recv")
    kit.run_outside(2, sent_before_destroy, late, not _does_not_tell_who_left(kit))


def _does_not_tell_who_left(kit: Kit) -> str:
    return "the backend's runtime does not tell who has left" if kit.spec.runtime is not None else ""


def sent_before_destroy(meeting: JoinPlan, rank: int, late: bool, tells_who_left: bool) -> None:
    meeting.join(rank)
    aside = meeting.aside()
    if rank == 0:
        arrays = [on_device(pattern(nbytes, i)) for i, nbytes in enumerate(_SIZES)]
        for array in arrays:
            begun(dist.isend(array, 1))
        dist.destroy_process_group()
        for array in arrays:
            array[:] = 0  # it is the caller's again
        if aside is not None:
            aside.set("gone", "yes")
        return
    if late:
        _wait_for(aside, "gone")
    _receive_all(0)
    if tells_who_left:
        _nothing_more_comes(0)
    with suppress(DistError):
        dist.destroy_process_group()


def _wait_for(aside: Store | None, key: str) -> None:
    if aside is not None:
        with suppress(DistError):
            aside.wait([key], _PATIENCE_S)


def _receive_all(src: int) -> None:
    for i, nbytes in enumerate(_SIZES):
        array = on_device(pattern(nbytes, 99))
        dist.recv(array, src)
        same(array, pattern(nbytes, i))


def _nothing_more_comes(src: int) -> None:
    begin = time.monotonic()
    error = error_of(DistError, dist.recv, numbers(0), src)
    took = time.monotonic() - begin
    assert took < _SOON_S, f"a receive from a rank that is gone took {took:.1f} s: {error}"
    assert not isinstance(error, DistTimeoutError), error


@needs("send", "recv")
def test_small_messages_before_destroy_arrive_to_the_last(kit: Kit) -> None:
    kit.on_host_only("what a GPU waits for cannot be withdrawn")
    kit.run_outside(2, small_before_destroy)


def small_before_destroy(meeting: JoinPlan, rank: int) -> None:
    aside = meeting.aside()
    for count in (1, 50):
        meeting.join(rank)
        if rank == 0:
            for i in range(count):
                begun(dist.isend(numbers(i), 1))
            dist.destroy_process_group()
            if aside is not None:
                aside.set(f"gone {count}", "yes")
        else:
            _wait_for(aside, f"gone {count}")
            for i in range(count):
                array = numbers(-1)
                dist.recv(array, 0)
                same(array, host(i))
            with suppress(DistError):
                dist.destroy_process_group()


@needs("send", "recv", "barrier")
def test_so_it_is_when_one_group_of_several_is_destroyed(kit: Kit) -> None:
    kit.on_host_only("what a GPU waits for cannot be withdrawn")
    kit.require("uint8", "send", "recv")
    kit.run_alone(3, one_group_of_several)


def one_group_of_several() -> None:
    rank, group = dist.get_rank(), dist.new_group([0, 1])
    if rank == 0:
        assert isinstance(group, ProcessGroup)
        for i, nbytes in enumerate(_SIZES):
            begun(dist.isend(on_device(pattern(nbytes, i)), 1, group=group))
        dist.destroy_process_group(group)
    if rank == 1:
        assert isinstance(group, ProcessGroup)
        for i, nbytes in enumerate(_SIZES):
            array = on_device(pattern(nbytes, 99))
            dist.recv(array, 0, group=group)
            same(array, pattern(nbytes, i))
        dist.destroy_process_group(group)
    still_usable()


@needs("send", "recv")
def test_a_receive_that_waits_for_a_rank_that_leaves_is_ended(kit: Kit) -> None:
    kit.on_host_only("what a GPU waits for cannot be withdrawn")
    if reason := _does_not_tell_who_left(kit):
        pytest.skip(reason)
    kit.run_outside(2, left_alone)


def left_alone(meeting: JoinPlan, rank: int) -> None:
    meeting.join(rank)
    if rank == 0:
        dist.recv(numbers(0), 1)
        dist.destroy_process_group()
        return
    pending = begun(dist.irecv(numbers(0), 0))
    dist.send(numbers(1), 0)
    begin = time.monotonic()
    error = error_of(DistError, pending.wait)
    took = time.monotonic() - begin
    assert took < _SOON_S, f"it took {took:.1f} s: {error}"
    assert not isinstance(error, DistTimeoutError), error
    with suppress(DistError):
        dist.destroy_process_group()


@needs("send", "recv", "barrier")
def test_a_receive_that_waits_for_a_rank_that_dies_is_ended_after_what_came_before(kit: Kit) -> None:
    kit.on_host_only("what a GPU waits for cannot be withdrawn")
    _needs_deaths(kit)
    kit.run_doomed(3, 1, wait_for_the_dead)


def _needs_deaths(kit: Kit) -> None:
    if kit.in_threads:
        pytest.skip("ranks that share a process die together")
    if kit.spec.runtime is not None and kit.lacks("shrink"):
        pytest.skip("the launcher of the backend's runtime ends the job with the first rank that dies")


def wait_for_the_dead() -> None:
    rank = dist.get_rank()
    dist.barrier()
    if rank == 1:
        dist.send(numbers(3, 4), 0)
        dist.recv(numbers(0), 0)
        os.kill(os.getpid(), signal.SIGKILL)
    if rank == 2:
        return
    first, second, third = numbers(0, 0), numbers(0), numbers(0)
    receives = [begun(dist.irecv(array, 1)) for array in (first, second, third)]
    receives[0].wait()
    same(first, numbers(3, 4))
    dist.send(numbers(0), 1)
    begin = time.monotonic()
    for work in receives[1:]:
        error = error_of(DistError, work.wait)
        assert not isinstance(error, DistTimeoutError), error
        assert "1" in str(error), f"the dead rank 1 is not named: {error}"
    took = time.monotonic() - begin
    assert took < _SOON_S, f"it took {took:.1f} s"


@pytest.mark.parametrize("op", [pytest.param(op, marks=needs(op)) for op in ("barrier", "all_reduce", "broadcast")])
def test_what_has_returned_on_a_rank_that_ends_returns_on_all(kit: Kit, op: str) -> None:
    _needs_deaths(kit)
    kit.on_host_only("a GPU's work ends with its process")
    kit.run_doomed(3, 1, ends_at_once, op)


def ends_at_once(op: str) -> None:
    perform(Case(op, reduce="SUM" if "reduce" in op else None, count=50_000, root=1))
    if dist.get_rank() == 1:
        os.kill(os.getpid(), signal.SIGKILL)
