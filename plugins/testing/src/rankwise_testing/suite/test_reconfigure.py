"""A default group that becomes one of any processes: it shrinks, grows, merges and splits, and attempts fail."""

from __future__ import annotations

from typing import Any

import pytest

import rankwise as dist
from rankwise.backends import to_host
from rankwise.errors import DistError, DistTimeoutError, RendezvousError, UnsupportedOperationError
from rankwise.kits import PrefixStore
from rankwise_testing.suite.arrays import same
from rankwise_testing.suite.expect import error_of, host, numbers, settled
from rankwise_testing.suite.place import JoinPlan
from rankwise_testing.suite.plugin import Kit, needs

#: How long an attempt may take that waits for somebody in vain.
_IN_VAIN_S = 0.5


class Team:
    """A rank that has exchanged handles with the others.

    Attributes:
        handles: Those of all, by their ranks.
        group: The default group.
    """

    def __init__(self, meeting: JoinPlan, rank: int, name: str) -> None:
        store = PrefixStore(name, meeting.outside())
        place: dict[str, Any] = {"store": store, "rank": rank, "world_size": meeting.size}
        dist.init_process_group(meeting.backend, timeout=meeting.timeout_s, enable_reconfigure=True, **place)
        store.set(f"handle of {rank}", dist.get_reconfigure_handle())
        self.handles = [store.get(f"handle of {each}").decode() for each in range(meeting.size)]
        self.rank, self.group, self._store = rank, dist.group.WORLD, store

    def become(self, uuid: str, *ranks: int) -> None:
        """Make the group one of some ranks, in this order, and use it."""
        assert dist.reconfigure(uuid, [self.handles[rank] for rank in ranks]).wait()
        assert dist.group.WORLD is self.group
        assert (dist.get_rank(), dist.get_world_size()) == (ranks.index(self.rank), len(ranks))
        self.use(list(ranks))

    def use(self, ranks: list[int]) -> None:
        """See that these are the members, in this order."""
        assert self.members() == ranks

    def members(self) -> list[int]:
        """Return who is in the group, by asking all who are."""
        found = [numbers(-1) for _ in range(dist.get_world_size())]
        dist.all_gather(found, numbers(self.rank))
        return [int(to_host(each)[0]) for each in found]

    def await_all(self, point: str) -> None:
        """Wait until all have come to a point, by other means than their group."""
        self._store.set(f"{point}: {self.rank}", b"")
        for each in range(len(self.handles)):
            self._store.get(f"{point}: {each}")

    def fails(self, kind: type[DistError], uuid: str, *ranks: int, timeout_s: float | None = None) -> DistError:
        """Return why an attempt fails."""
        work = dist.reconfigure(uuid, [self.handles[rank] for rank in ranks], timeout=timeout_s)
        assert work.is_completed()
        assert not work.is_success()
        return error_of(kind, work.wait)


@needs("all_reduce", "all_gather", "reconfigure")
def test_a_group_has_no_members_at_first(kit: Kit) -> None:
    kit.run_outside(3, blank)


def blank(meeting: JoinPlan, rank: int) -> None:
    team = Team(meeting, rank, "blank")
    assert dist.is_initialized()
    assert dist.supports_reconfigure()
    assert (dist.get_rank(), dist.get_world_size()) == (-1, 0)
    assert "call reconfigure" in str(error_of(ValueError, dist.all_reduce, numbers(1)))
    assert len(set(team.handles)) == 3
    assert dist.get_reconfigure_handle() == team.handles[rank]
    dist.destroy_process_group()
    assert not dist.is_initialized()


@needs("all_reduce", "all_gather", "reconfigure")
def test_members_leave_and_come_back(kit: Kit) -> None:
    kit.run_outside(3, come_and_go)


def come_and_go(meeting: JoinPlan, rank: int) -> None:
    team = Team(meeting, rank, "come and go")
    team.become("all", 0, 1, 2)
    if rank < 2:
        team.become("without the last", 0, 1)
    team.become("all again", 0, 1, 2)
    if rank != 1:
        team.become("without the one in the middle", 0, 2)
    team.become("in another order", 2, 0, 1)
    team.become("the same", 2, 0, 1)
    dist.destroy_process_group()


@needs("all_reduce", "all_gather", "reconfigure")
def test_groups_merge_and_part(kit: Kit) -> None:
    kit.run_outside(3, merge_and_part)


def merge_and_part(meeting: JoinPlan, rank: int) -> None:
    team = Team(meeting, rank, "merge")
    team.become(f"{rank} alone", rank)
    if rank < 2:
        team.become("a pair", 0, 1)
    team.become("one more comes", 0, 1, 2)
    team.become(f"{rank} alone again", rank)
    assert dist.reconfigure("in any order", set(team.handles)).wait()
    assert sorted(team.members()) == [0, 1, 2]
    dist.destroy_process_group()


@needs("all_reduce", "all_gather", "reconfigure")
def test_a_name_is_used_once(kit: Kit) -> None:
    kit.run_outside(3, used_once)


def used_once(meeting: JoinPlan, rank: int) -> None:
    team = Team(meeting, rank, "once")
    team.become("first", 0, 1, 2)
    assert "already used" in str(team.fails(RendezvousError, "first", 0, 1, 2))
    team.use([0, 1, 2])  # nothing was given up
    assert "already used" in str(team.fails(RendezvousError, "first", *((0, 1) if rank < 2 else (2,))))
    team.use([0, 1, 2])
    team.become("second", 0, 1, 2)
    dist.destroy_process_group()


@needs("all_reduce", "all_gather", "reconfigure")
def test_members_that_do_not_agree_are_told_and_may_try_again(kit: Kit) -> None:
    kit.run_outside(3, disagree)


def disagree(meeting: JoinPlan, rank: int) -> None:
    team = Team(meeting, rank, "disagree")
    team.become("all", 0, 1, 2)
    team.fails(RendezvousError, "which order?", *((0, 1, 2) if rank < 2 else (1, 0, 2)))
    team.use([0, 1, 2])
    team.become("this order", 1, 0, 2)
    dist.destroy_process_group()


@needs("all_reduce", "all_gather", "reconfigure")
def test_who_does_not_come_is_named_and_nothing_is_given_up(kit: Kit) -> None:
    kit.run_outside(3, not_all_come)


def not_all_come(meeting: JoinPlan, rank: int) -> None:
    team = Team(meeting, rank, "not all")
    team.become("all", 0, 1, 2)
    if rank < 2:
        error = team.fails(DistTimeoutError, "all again?", 0, 1, 2, timeout_s=_IN_VAIN_S)
        assert "rank 2 of 3" in str(error)
    team.use([0, 1, 2])
    if rank == 2:  # it comes too late for that one
        team.fails(DistTimeoutError, "all again?", 0, 1, 2)
    team.become("all again", 0, 1, 2)
    dist.destroy_process_group()


@needs("all_reduce", "all_gather", "reconfigure", "abort")
def test_a_group_that_was_aborted_is_made_anew(kit: Kit) -> None:
    kit.run_outside(3, aborted)


def aborted(meeting: JoinPlan, rank: int) -> None:
    team = Team(meeting, rank, "aborted")
    team.become("before", 0, 1, 2)
    team.await_all("used")  # else others may be in a call yet
    if rank == 0:
        dist.abort_process_group()
    error_of(DistError, settled, dist.all_reduce, numbers(1))
    team.become("after", 0, 1, 2)
    dist.destroy_process_group()


@needs("all_reduce", "all_gather", "reconfigure", "timeout")
def test_so_is_one_whose_time_is_up(kit: Kit) -> None:
    kit.run_outside(3, late)


def late(meeting: JoinPlan, rank: int) -> None:
    team = Team(meeting, rank, "late")
    team.become("before", 0, 1, 2)
    if rank < 2:
        error_of(DistError, settled, dist.all_reduce, numbers(1), timeout=_IN_VAIN_S)
        team.become("without it", 0, 1)
    team.become("with it", 0, 1, 2)
    dist.destroy_process_group()


@needs("all_reduce", "all_gather", "reconfigure")
def test_subgroups_end_and_may_be_made_again(kit: Kit) -> None:
    kit.run_outside(3, subgroups)


def subgroups(meeting: JoinPlan, rank: int) -> None:
    team = Team(meeting, rank, "subgroups")
    team.become("before", 0, 1, 2)
    pair = dist.new_group([0, 1])
    team.become("after", 2, 1, 0)
    if rank < 2:
        assert "make it again" in str(error_of(ValueError, dist.all_reduce, numbers(1), group=pair))
    again = dist.new_group([1, 2])  # ranks 1 and 0 of before
    if rank < 2:
        array = numbers(1)
        dist.all_reduce(array, group=again)
        same(array, host(2))
    dist.destroy_process_group()


def test_a_backend_that_cannot_says_so(kit: Kit) -> None:
    if not kit.lacks("reconfigure"):
        pytest.skip(f"backend {kit.spec.name!r} can")
    kit.run_outside(1, refused)


def refused(meeting: JoinPlan, rank: int) -> None:
    place: dict[str, Any] = {"store": meeting.outside(), "rank": rank, "world_size": 1}
    error = error_of(
        UnsupportedOperationError, dist.init_process_group, meeting.backend, enable_reconfigure=True, **place
    )
    assert "reconfigure" in str(error), error
    assert not dist.is_initialized()
