"""Groups outside of the world: made from a store alone, several at a time, beside a world and without one."""

from __future__ import annotations

import numpy as np

import rankwise as dist
from rankwise.errors import CollectiveMismatchError
from rankwise_testing.suite.arrays import on_device, own_stream, plain, same
from rankwise_testing.suite.expect import error_of, host, numbers, still_usable, together
from rankwise_testing.suite.place import JoinPlan
from rankwise_testing.suite.plugin import Kit, needs


@needs("all_reduce")
def test_a_group_may_be_made_without_a_world_again_and_again(kit: Kit) -> None:
    kit.run_outside(3, made_again)


def made_again(meeting: JoinPlan, rank: int) -> None:
    for _ in range(3):
        group = meeting.make(rank, "team")
        assert not dist.is_initialized()
        assert (dist.get_rank(group), dist.get_world_size(group)) == (rank, 3)
        still_usable(group)
        dist.destroy_process_group(group)
        error_of(ValueError, dist.all_reduce, numbers(1), group=group)
        error_of(ValueError, dist.destroy_process_group, group)


@needs("send", "recv")
def test_messages_pass_in_such_a_group(kit: Kit) -> None:
    kit.run_outside(2, message)


def message(meeting: JoinPlan, rank: int) -> None:
    group = meeting.make(rank, "pair")
    array = numbers(rank, 7)
    if rank == 0:
        dist.send(array, 1, group)
    else:
        dist.recv(array, 0, group)
    same(array, host(0, 7))
    dist.destroy_process_group(group)


@needs("all_reduce", "mismatch")
def test_its_members_are_told_when_they_disagree(kit: Kit) -> None:
    texts = kit.run_outside(3, disagree)
    assert len(set(texts)) == 1, f"the ranks were told different things: {texts}"
    assert "'team'" in texts[0], texts[0]


def disagree(meeting: JoinPlan, rank: int) -> str:
    group = meeting.make(rank, "team")
    array = numbers(*range(3 if rank == 2 else 4))
    error = error_of(CollectiveMismatchError, dist.all_reduce, array, group=group)
    still_usable(group)
    dist.destroy_process_group(group)
    return str(error)


@needs("all_reduce")
def test_several_such_groups_and_a_world_live_side_by_side(kit: Kit) -> None:
    kit.run_outside(3, side_by_side)


def side_by_side(meeting: JoinPlan, rank: int) -> None:
    first = meeting.make(rank, "first")
    meeting.join(rank)
    second = meeting.make(rank, "second")

    def use(group: dist.ProcessGroup | None) -> None:
        with own_stream():
            for i in range(20):
                array = on_device(np.full(1000, rank + i, plain()))
                dist.all_reduce(array, group=group)
                same(array, np.full(1000, 3 * i + 3, plain()))

    together([lambda: use(first), lambda: use(None), lambda: use(second)])
    dist.destroy_process_group()
    still_usable(first)
    dist.destroy_process_group(first)
    still_usable(second)
    dist.destroy_process_group(second)
