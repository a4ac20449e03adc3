"""Groups outside of the world: several at once, with and without a world, in threads of one process."""

from __future__ import annotations

import re
import threading
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.core.alien import Alien, Bare
from tests.processes import forked
from tests.threads import at_once, run_local

import rankwise as dist
from rankwise import ProcessGroup
from rankwise.groups.world import World, current, use
from rankwise.store import HashStore
from rankwise_local import register_local

PATIENCE_S = 60.0


@pytest.fixture(autouse=True)
def _local() -> None:
    register_local()


def make(store: Any, rank: int, size: int, name: str = "team", **more: Any) -> ProcessGroup:
    terms = {"backend": "local", "timeout": 20, **more}
    return ProcessGroup.create(store=store, rank=rank, size=size, name=name, **terms)


def total(group: ProcessGroup, value: float = 1.0) -> float:
    array = np.full(3, value)
    dist.all_reduce(array, group=group)
    return float(array[0])


def on_ranks(size: int, program: Callable[..., Any], own_worlds: bool = True) -> list[Any]:
    """Run `program(rank)` on threads, each with a world of its own or all with the process's, and no group."""

    def run(rank: int) -> Any:
        if own_worlds:
            use(World())
        return program(rank)

    return at_once(run, range(size), PATIENCE_S)


def members(size: int) -> Callable[[Callable[..., object]], Callable[[], None]]:
    """Have each of some ranks without a group do what a test does, with a store that they share."""

    def decorate(program: Callable[[HashStore, int], object]) -> Callable[[], None]:
        def test() -> None:
            on_ranks(size, partial(program, HashStore()))

        return test

    return decorate


def told(size: int, program: Callable[..., Any], error: type[Exception]) -> list[str]:
    """Run `program(rank)` likewise, where it fails on all ranks; return what they are told."""

    def run(rank: int) -> str:
        with pytest.raises(error) as caught:
            program(rank)
        return str(caught.value)

    return on_ranks(size, run)


# ---------------------------------------------------------------------- one group, whatever the store


@pytest.mark.parametrize("own_worlds", [True, False], ids=["own worlds", "one world"])
@pytest.mark.parametrize("kind", [HashStore, Alien, Bare])
def test_it_needs_no_world_and_any_store_will_do(tmp_path: Path, kind: type, own_worlds: bool) -> None:
    def program(rank: int) -> None:
        for _ in range(2):  # the name and the store serve again
            group = make(store, rank, 3)
            assert not dist.is_initialized()
            assert (dist.get_rank(group), dist.get_world_size(group), dist.get_backend(group)) == (rank, 3, "local")
            assert dist.get_process_group_ranks(group) == [0, 1, 2]
            assert dist.get_global_rank(group, 2) == dist.get_group_rank(group, 2) == 2
            assert total(group, rank) == 3.0
            array = np.full(2, rank)
            if rank == 1:
                dist.send(array, 2, group=group)
            elif rank == 2:
                assert dist.recv(array, group=group) == 1
                assert array[0] == 1
            objects = [{"from": rank}]
            dist.broadcast_object_list(objects, src=2, group=group)
            assert objects == [{"from": 2}]
            dist.monitored_barrier(group)
            work = dist.all_reduce(array, group=group, async_op=True)
            dist.destroy_process_group(group)
            assert work.is_success()
            with pytest.raises(ValueError, match="destroyed"):
                dist.barrier(group)
            with pytest.raises(ValueError, match="destroyed before"):
                dist.destroy_process_group(group)

    store = HashStore() if kind is HashStore else kind(str(tmp_path / "store"))
    on_ranks(3, program, own_worlds=own_worlds)
    if kind is not Bare:
        assert store.list_keys() == ["team/life"]
    store.close()


@members(2)
def test_a_mismatch_names_both_camps_and_lines(store: HashStore, rank: int) -> None:
    group = make(store, rank, 2, ranks=[7, 5])
    call = partial(dist.all_reduce, np.ones(3), group=group) if rank else partial(dist.barrier, group)
    with pytest.raises(dist.CollectiveMismatchError) as caught:
        call()
    for words in ("group 'team'", "rank 7 called barrier", "rank 5 called all_reduce"):
        assert words in str(caught.value)
    assert str(caught.value).count("at test_outside.py:") == 2
    assert total(group) == 2.0  # it goes on
    dist.destroy_process_group(group)


@members(3)
def test_members_may_be_known_by_other_numbers(store: HashStore, rank: int) -> None:
    group = make(store, rank, 3, ranks=[30, 10, 20], description="the tens")
    assert dist.get_rank(group) == rank
    assert dist.get_process_group_ranks(group) == [30, 10, 20]
    array = np.full(1, rank)
    dist.broadcast(array, src=20, group=group)
    assert array[0] == 2
    pair = dist.split_group(group, [[2, 0]])
    if rank != 1:
        assert dist.get_process_group_ranks(pair) == [20, 30]
        assert total(pair) == 2.0
    parts, _ = dist.new_subgroups(1, group)
    assert dist.get_process_group_ranks(parts) == [[30, 10, 20][rank]]
    dist.abort_process_group(group)
    where = f"'the tens' was aborted on rank {[30, 10, 20][rank]} by abort_process_group"
    with pytest.raises(dist.GroupAbortedError, match=where):
        dist.barrier(group)
    assert total(parts) == 1.0
    dist.destroy_process_group(group)
    for part in (pair, parts):
        if part is not None:
            with pytest.raises(ValueError, match="destroyed"):
                dist.barrier(part)


@members(3)
def test_survivors_go_on(store: HashStore, rank: int) -> None:
    group = make(store, rank, 3, ranks=[4, 5, 6])
    if rank != 1:
        smaller = dist.shrink_group([5], group)
        assert dist.get_process_group_ranks(smaller) == [4, 6]
        assert total(smaller) == 2.0
        assert smaller.world is group.world
    dist.barrier(group)
    dist.destroy_process_group(group)
    with pytest.raises(ValueError, match="has been destroyed"):
        dist.shrink_group([4], group)


# ---------------------------------------------------------------------- several at once


def test_worlds_and_groups_live_side_by_side_and_end_in_any_order() -> None:
    def program() -> None:
        rank = dist.get_rank()
        first = make(store, rank, 2, "first")
        second = make(store, 1 - rank, 2, "second")
        assert dist.get_pg_count() == 3
        assert dist.new_group([0, 1]) is not None
        assert dist.get_pg_count() == 4
        assert dist.get_rank(second) == 1 - rank
        assert total(first) == total(second) == 2.0
        dist.destroy_process_group(first)
        assert total(second) == 2.0
        dist.barrier()
        dist.destroy_process_group()
        assert not dist.is_initialized()
        assert dist.get_pg_count() == 1
        assert total(second) == 2.0
        third = make(store, rank, 2, "third")
        assert total(third) == 2.0
        dist.destroy_process_group(second)
        assert total(third) == 2.0  # which the end of the local world destroys
        assert current().worlds()[1:] == [third.world]

    store = HashStore()
    run_local(2, program, timeout=30)


@members(2)
def test_each_thread_may_make_one_of_its_own(store: HashStore, rank: int) -> None:
    def one(name: str) -> None:
        group = make(store, rank, 2, name)
        for _ in range(20):
            assert total(group) == 2.0
        dist.destroy_process_group(group)

    at_once(one, [f"team {number}" for number in range(4)], PATIENCE_S)
    assert dist.get_pg_count() == 0


def test_destroying_the_world_leaves_the_groups_outside() -> None:
    dist.init_process_group("local", rank=0, world_size=1)
    group = make(None, 0, 1)
    dist.destroy_process_group()
    assert total(group) == 1.0
    dist.init_process_group("local", rank=0, world_size=1)
    dist.destroy_process_group(group)
    dist.barrier()


# ---------------------------------------------------------------------- what goes wrong


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"rank": 2}, "group 'team': there is no rank 2 in a group of 2"),
        ({"rank": -1}, "there is no rank -1"),
        ({"size": 0}, "there is no rank 0 in a group of 0"),
        ({"store": None}, "its 2 members need a store"),
        ({"name": ""}, "a group needs a name"),
        ({"ranks": [0]}, r"ranks must name each of its 2 members, not \[0\]"),
        ({"ranks": [3, 3]}, "holds a rank twice"),
        ({"ranks": [-1, 0]}, "ranks must name each"),
        ({"timeout": -1}, "timeout"),
    ],
)
def test_arguments_that_cannot_be_are_refused(arguments: dict[str, Any], words: str) -> None:
    asked = {"store": HashStore(), "rank": 0, "size": 2, "name": "team", "backend": "local", **arguments}
    with pytest.raises(ValueError, match=words):
        ProcessGroup.create(**asked)
    assert current().worlds() == [current()]


def test_what_is_no_store_is_refused() -> None:
    with pytest.raises(TypeError, match="a store must have set, add, compare_set, wait, which dict does not"):
        make({}, 0, 2)


def test_those_that_do_not_come_are_named() -> None:
    store = HashStore()
    late = told(2, lambda rank: make(store, rank, 4, timeout=0.5, ranks=[8, 9, 10, 11]), dist.DistTimeoutError)
    for text in late:
        assert "timed out" in text
        assert "making group 'team': ranks 10, 11 of 4 did not come within 0.5 s" in text


@pytest.mark.parametrize(
    ("odd", "words"),
    [
        ({"size": 3}, r"size is 2 for rank 0 .* but 3 for rank 1|size is 3 for rank 1 .* but 2 for rank 0"),
        ({"ranks": [1, 0]}, r"ranks is"),
        ({"rank": 0}, "two processes claim rank 0"),
    ],
    ids=["size", "ranks", "rank"],
)
def test_members_that_disagree_are_told(odd: dict[str, Any], words: str) -> None:
    def program(rank: int) -> Any:
        asked = {"rank": rank, "size": 2, "timeout": 5, **(odd if rank else {})}
        return make(store, **asked)

    store = HashStore()
    for text in told(2, program, dist.RendezvousError):
        assert re.search(words, text), text


def test_a_forked_child_cannot_use_it_and_may_make_its_own() -> None:
    group = make(None, 0, 1)

    def begin_anew() -> None:
        with pytest.raises(dist.ForkedProcessError, match=r"forked from one that had called .*ProcessGroup.create"):
            dist.barrier(group)
        with pytest.raises(dist.ForkedProcessError, match="forked"):
            dist.split_group(group, [[0]])
        assert dist.get_pg_count() == 0
        dist.destroy_process_group(group)
        assert total(make(None, 0, 1)) == 1.0
        dist.init_process_group("local", rank=0, world_size=1)
        dist.barrier()

    with forked(begin_anew):
        pass
    assert total(group) == 1.0


def test_init_process_group_meets_in_any_store_too(tmp_path: Path) -> None:
    def program(rank: int) -> None:
        for _ in range(2):
            dist.init_process_group("local", store=store, rank=rank, world_size=2, timeout=20)
            dist.barrier()
            dist.destroy_process_group()

    store = Alien(str(tmp_path / "store"))
    on_ranks(2, program)
    assert store.list_keys() == ["life"]
    store.close()


def test_a_failed_beginning_leaves_nothing_behind() -> None:
    before = set(threading.enumerate())
    with pytest.raises(dist.DistTimeoutError):
        make(HashStore(), 0, 2, timeout=0.2)
    with pytest.raises(dist.BackendNotFoundError):
        make(HashStore(), 0, 1, backend="nothing_such")
    assert current().worlds() == [current()]
    for thread in set(threading.enumerate()) - before:  # it has been told to end
        thread.join(0.5)  # it would stay for longer if it had not
        assert not thread.is_alive()


@members(2)
def test_groups_with_a_parent_meet_and_end_with_it(store: HashStore, rank: int) -> None:
    parent = make(store, rank, 2, "parent")
    terms = {"backend": "local", "timeout": 20, "size": 2, "rank": rank}
    for _ in range(2):  # one of the same name, once the first has ended
        child = ProcessGroup.create(name="child", parent=parent, **terms)
        assert child.world is parent.world
        assert total(child) == 2.0
        with pytest.raises(ValueError, match="a group of that name"):
            ProcessGroup.create(name="child", parent=parent, **terms)
        dist.destroy_process_group(child)
        assert not child.is_open()
    alone = ProcessGroup.create(name="alone", parent=parent, rank=0, size=1, ranks=[rank], backend="local")
    for wrong in ({"store": store}, {"ranks": [5, 6]}, {"ranks": [0, 1], "rank": 1 - rank}):
        with pytest.raises(ValueError, match="create: group 'other'"):
            ProcessGroup.create(name="other", parent=parent, **{**terms, **wrong})
    assert total(alone) == 1.0
    dist.destroy_process_group(parent)
    assert not alone.is_open()
    with pytest.raises(ValueError, match=r"its parent .* has been destroyed"):
        ProcessGroup.create(name="late", parent=parent, **terms)
