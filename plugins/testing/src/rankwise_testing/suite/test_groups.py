"""Subgroups: any members in any order, several at a time, non-members, smaller and smaller."""

from __future__ import annotations

import threading
import warnings
from contextvars import copy_context

import pytest

import rankwise as dist
from rankwise import GroupMember
from rankwise.errors import UnsupportedOperationError
from rankwise.kits import COLLECTIVES, OPS, ProcessGroup
from rankwise_testing.suite.arrays import own_stream, same
from rankwise_testing.suite.exercises import Case, perform
from rankwise_testing.suite.expect import begun, error_of, host, numbers, still_usable
from rankwise_testing.suite.plugin import Kit, needs

_BARE_CALLS = {
    "broadcast": lambda group: dist.broadcast(numbers(1), 0, group),
    "all_reduce": lambda group: dist.all_reduce(numbers(1), group=group),
    "reduce": lambda group: dist.reduce(numbers(1), 0, group=group),
    "all_gather": lambda group: dist.all_gather([numbers(1)], numbers(1), group),
    "gather": lambda group: dist.gather(numbers(1), group=group),
    "scatter": lambda group: dist.scatter(numbers(1), group=group),
    "reduce_scatter": lambda group: dist.reduce_scatter(numbers(1), [numbers(1)], group=group),
    "all_to_all": lambda group: dist.all_to_all([numbers(1)], [numbers(1)], group),
    "barrier": lambda group: dist.barrier(group),
}


@pytest.mark.parametrize("op", [pytest.param(op, marks=pytest.mark.needs(op)) for op in OPS])
def test_members_may_stand_in_any_order(kit: Kit, op: str) -> None:
    kit.sizes(3)
    kit.run(4, in_a_permuted_group, op)


def in_a_permuted_group(op: str) -> None:
    group = dist.new_group([3, 0, 2], sort_ranks=False)
    if not isinstance(group, ProcessGroup):
        return
    assert dist.get_rank(group) == [3, 0, 2].index(dist.get_rank())
    for root in range(3):
        perform(Case(op, reduce="SUM" if "reduce" in op else None, count=10, root=root), group)
    dist.destroy_process_group(group)


@pytest.mark.parametrize("op", [pytest.param(op, marks=pytest.mark.needs(op)) for op in COLLECTIVES])
def test_a_non_member_is_warned_and_gets_nothing(kit: Kit, op: str) -> None:
    kit.sizes(1)
    kit.run(2, as_a_non_member, op)


def as_a_non_member(op: str) -> None:
    group = dist.new_group([0])
    if dist.get_rank() == 0:
        perform(Case(op, reduce="SUM" if "reduce" in op else None), group)  # type: ignore[arg-type]
        return
    assert group == GroupMember.NON_GROUP_MEMBER
    assert dist.get_rank(group) == dist.get_world_size(group) == -1
    _check_warning(op, group)


_warnings = threading.Lock()


def _check_warning(op: str, group: object) -> None:
    # What is caught is caught for the whole process, in which other ranks may be threads.
    with _warnings, warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        assert _BARE_CALLS[op](group) is None
    assert any("not a member" in str(warning.message) for warning in caught), f"{op} did not warn"


@needs("all_reduce", "async")
def test_groups_that_share_ranks_do_not_mix_their_messages(kit: Kit) -> None:
    kit.run(3, interleaved)


def interleaved() -> None:
    rank = dist.get_rank()
    pairs = [dist.new_group(ranks) for ranks in ([0, 1], [1, 2], [0, 2])]
    mine = [group for group in pairs if isinstance(group, ProcessGroup)]
    assert len(mine) == 2
    arrays, works = [], []
    for i in range(10):
        # The two groups are called in different orders on different ranks, which is allowed.
        for group in mine if rank != 1 or i % 2 else reversed(mine):
            array = numbers(10 ** group.rank() * (i + 1), sum(group.ranks))
            arrays.append((array, group, i))
            works.append(begun(dist.all_reduce(array, group=group, async_op=True)))
    still_usable()
    for work in works:
        work.wait()
    for array, group, i in arrays:
        same(array, host(11 * (i + 1), 2 * sum(group.ranks)))


@needs("all_reduce")
def test_a_group_may_be_split(kit: Kit) -> None:
    kit.sizes(2)
    kit.run(4, split)


def split() -> None:
    rank = dist.get_rank()
    half = dist.split_group(split_ranks=[[2, 0], [1, 3]])
    assert half is not None
    assert half.ranks == ((2, 0) if rank % 2 == 0 else (1, 3))
    still_usable(half)
    mine, everyone = dist.new_subgroups(2)
    assert mine.ranks == ((0, 1) if rank < 2 else (2, 3))
    assert len(everyone) == 2
    still_usable(mine)
    dist.destroy_process_group(half)
    still_usable(mine)
    still_usable()


@needs("send", "recv", "tags")
def test_messages_of_a_group_and_of_the_one_it_was_split_from_do_not_meet(kit: Kit) -> None:
    kit.features |= {} if kit.lacks("split") else {"split": False}
    kit.run(2, two_alike)
    kit.features |= {} if kit.lacks("split") else {"split": True}


def two_alike() -> None:
    rank = dist.get_rank()
    part = dist.split_group(split_ranks=[[1, 0]])
    assert part is not None
    groups, peer = [None, part, None, part], 1 - rank
    sent = [numbers(i, rank) for i in range(4)]
    works = [begun(dist.isend(array, peer, group=group, tag=7)) for array, group in zip(sent, groups, strict=True)]
    # Those of each group in their order, those of the group that was made last first.
    for i in (1, 3, 0, 2):
        array = numbers(9, 9)
        dist.recv(array, peer, group=groups[i], tag=7)
        same(array, host(i, peer))
    for work in works:
        work.wait()
    dist.destroy_process_group(part)


@needs("all_reduce")
def test_members_alone_may_make_a_group(kit: Kit) -> None:
    kit.run(3, members_alone)


def members_alone() -> None:
    if dist.get_rank() != 1:
        group = dist.new_group([0, 2], use_local_synchronization=True)
        assert isinstance(group, ProcessGroup)
        still_usable(group)
    still_usable()


@needs("all_reduce")
def test_a_destroyed_group_says_so_and_the_others_live(kit: Kit) -> None:
    kit.run(2, destroyed)


def destroyed() -> None:
    first, second = dist.new_group(), dist.new_group()
    assert isinstance(first, ProcessGroup)
    assert isinstance(second, ProcessGroup)
    still_usable(first)
    dist.destroy_process_group(first)
    error_of(ValueError, dist.all_reduce, numbers(1), group=first)
    error_of(ValueError, dist.destroy_process_group, first)
    still_usable(second)
    still_usable()


@needs("all_reduce")
def test_each_thread_may_use_a_group_of_its_own(kit: Kit) -> None:
    kit.run(2, threaded)


def threaded() -> None:
    groups = [dist.new_group() for _ in range(3)]
    errors: list[BaseException] = []

    def use(group: object) -> None:
        assert isinstance(group, ProcessGroup)
        try:
            with own_stream():
                for _ in range(20):
                    still_usable(group)
        except BaseException as error:  # it is raised below
            errors.append(error)

    threads = [threading.Thread(target=copy_context().run, args=(use, group)) for group in groups]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    if errors:
        raise errors[0]
    assert not any(thread.is_alive() for thread in threads), "a thread stands still"


@needs("all_reduce", "shrink")
def test_survivors_form_a_smaller_group(kit: Kit) -> None:
    kit.sizes(3)
    kit.run_alone(4, shrunk)


def shrunk() -> None:
    if dist.get_rank() == 1:
        return
    group = dist.shrink_group([1], shrink_flags=dist.SHRINK_ABORT)
    assert group.ranks == (0, 2, 3)
    still_usable(group)


def test_shrinking_is_refused_where_it_is_not_declared(kit: Kit) -> None:
    if not kit.lacks("shrink"):
        pytest.skip("shrinking is declared, and proved by another test")
    kit.run_alone(2, not_shrunk)


def not_shrunk() -> None:
    if dist.get_rank() == 0:
        error = error_of(UnsupportedOperationError, dist.shrink_group, [1])
        assert "shrink" in str(error), error
