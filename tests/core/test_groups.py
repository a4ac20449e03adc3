"""Groups: made, asked, destroyed and made again, on threads."""

import gc
import os
import re
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta

import numpy as np
import pytest
from tests.processes import forked, wait_until
from tests.threads import at_once, none_left, on_ranks, run_local, soon, within

import rankwise as dist
from rankwise import GroupMember, HashStore
from rankwise.groups.world import World, current, use
from rankwise_local import LocalCommunicator

PATIENCE_S = 60.0
LEEWAY_S = 2.0


def total(group=None, value=1.0):
    array = np.array([value])
    dist.all_reduce(array, group=group)
    return array[0]


@on_ranks(4)
def test_members_may_stand_in_any_order():
    rank = dist.get_rank()
    group = dist.new_group([3, 0, 2], sort_ranks=False)
    if rank == 1:
        assert group == GroupMember.NON_GROUP_MEMBER == -100
        assert dist.get_rank(group) == dist.get_world_size(group) == -1
        return
    assert dist.get_process_group_ranks(group) == [3, 0, 2]
    assert dist.get_rank(group) == group.rank() == [3, 0, 2].index(rank)
    assert dist.get_global_rank(group, 0) == 3
    assert dist.get_group_rank(group, 3) == 0
    array = np.array([rank])
    dist.broadcast(array, src=3, group=group)
    other = np.array([rank])
    dist.broadcast(other, group_src=2, group=group)
    assert (array[0], other[0]) == (3, 2)


@on_ranks(2)
def test_a_non_member_warns_and_gets_none():
    group = dist.new_group([0])
    if dist.get_rank() == 1:
        with pytest.warns(UserWarning, match="not a member"):
            assert dist.all_reduce(np.ones(1), group=group) is None
        with pytest.warns(UserWarning, match="recv does nothing"):
            assert dist.recv(np.ones(1), group=group) == -1


def test_sorted_unless_told_otherwise_and_named():
    def program():
        group = dist.new_group([1, 0], group_desc="pair", timeout=timedelta(seconds=7))
        assert group.ranks == (0, 1)
        assert (group.group_desc, group.timeout, group.backend) == ("pair", timedelta(seconds=7), "local")
        assert "pair" in repr(group)
        group.set_timeout(3)
        assert group.timeout == timedelta(seconds=3)
        return group.name

    names = run_local(2, program)
    assert names[0] == names[1]


@pytest.mark.parametrize(
    ("ranks", "error", "words"),
    [
        ([0, 0], ValueError, "twice"),
        ([0, 5], ValueError, r"\[5\] are not in a world of 2"),
        ([], ValueError, "at least one"),
        ([0.5], TypeError, "integer"),
        (3, TypeError, "list of integer ranks"),
    ],
)
@on_ranks(2)
def test_wrong_members_are_refused_before_anything_is_made(ranks, error, words):
    with pytest.raises(error, match=words):
        dist.new_group(ranks)
    assert total() == 2.0


@pytest.fixture
def other(own_backends):
    """A backend `other` for the processor, and `gpu` for devices."""
    dist.register_backend("other", LocalCommunicator, extended_api=True)
    dist.register_backend("gpu", LocalCommunicator, extended_api=True, devices="cuda")


@pytest.mark.usefixtures("other")
@on_ranks(2)
def test_groups_of_different_backends_live_side_by_side():
    group = dist.new_group(backend="other")
    assert dist.get_backend() == "local"
    assert dist.get_backend(group) == "other"
    assert dist.get_backend_config(group) == "cpu:other"
    assert total() == total(group) == 2.0


@pytest.mark.usefixtures("other")
@on_ranks(2, backend="cpu:local,cuda:gpu")
def test_one_group_has_a_backend_for_each_device():
    assert dist.get_backend() == "cpu:local,cuda:gpu"
    served = [communicator.context.devices for communicator in dist.group.WORLD.communicators()]
    assert served == [("cpu",), ("cuda",)]
    assert total() == 2.0


@on_ranks(1)
def test_a_device_without_a_backend_is_refused():
    class Remote:
        __module__ = "cupy.fake"
        dtype = np.dtype("f4")

    with pytest.raises(ValueError, match="no backend for cuda arrays"):
        dist.group.WORLD.lane(Remote(), "all_reduce")


@on_ranks(3)
def test_only_members_call_with_local_synchronization():
    if dist.get_rank() == 1:
        return
    group = dist.new_group([0, 2], use_local_synchronization=True)
    again = dist.new_group([0, 2], use_local_synchronization=True)
    assert group.name != again.name
    assert total(group) + total(again) == 4.0


@on_ranks(4)
def test_split_and_subgroups():
    half = dist.split_group(split_ranks=[[0, 1], [3, 2]])
    assert dist.get_process_group_ranks(half) == ([0, 1] if dist.get_rank() < 2 else [3, 2])
    nothing = dist.split_group(half, split_ranks=[[0]])
    assert (nothing is None) == (half.rank() == 1)
    mine, everyone = dist.new_subgroups(2)
    assert len(everyone) == 2
    assert dist.get_process_group_ranks(mine) == ([0, 1] if dist.get_rank() < 2 else [2, 3])
    odd, _ = dist.new_subgroups_by_enumeration([[0, 2], [1]])
    assert total(half) == total(mine) == 2
    assert (None if odd is None else total(odd)) == [2, 1, 2, None][dist.get_rank()]


@on_ranks(2)
def test_overlapping_subgroups_are_refused_before_anything_is_made():
    made = dist.get_pg_count()
    with pytest.raises(ValueError, match=r"\[1\] are in more than one"):
        dist.new_subgroups_by_enumeration([[0, 1], [1]])
    with pytest.raises(ValueError, match="more than one"):
        dist.split_group(split_ranks=[[0], [0]])
    with pytest.raises(ValueError, match="cannot be cut"):
        dist.new_subgroups(3)
    assert dist.get_pg_count() == made


@on_ranks(3)
def test_members_that_disagree_about_a_group_are_told():
    wanted = [[0, 1], [0, 1], [0, 2]][dist.get_rank()]
    with pytest.raises((dist.RendezvousError, dist.DistTimeoutError), match=r"ranks.*\[0, 2\]|\[0, 2\].*ranks"):
        dist.new_group(wanted, timeout=2)


@on_ranks(3)
def test_shrinking_leaves_the_survivors_a_working_group():
    if dist.get_rank() == 1:
        return
    group = dist.shrink_group([1])
    assert group.ranks == (0, 2)
    assert total(group) == 2.0


@pytest.mark.parametrize(
    ("excluded", "words"), [([9], "not in"), ([0], "names this rank"), ([], "at least one"), ([1, 1], "twice")]
)
@on_ranks(2)
def test_shrinking_by_the_wrong_ranks_is_refused(excluded, words):
    if dist.get_rank() == 0:
        with pytest.raises(ValueError, match=words):
            dist.shrink_group(excluded)


@on_ranks(2)
def test_an_abort_ends_a_call_that_waits_in_another_thread():
    pg = dist.group.WORLD
    if dist.get_rank() == 1:
        return
    soon(dist.abort_process_group, pg)
    with pytest.raises(dist.GroupAbortedError, match="rank 0 by abort_process_group"):
        dist.barrier()
    with pytest.raises(dist.GroupAbortedError):
        dist.all_reduce(np.ones(1))
    with pytest.raises(dist.GroupAbortedError):
        dist.isend(np.ones(1), dst=1)


@on_ranks(2)
def test_destroying_one_group_leaves_the_others():
    one, two = dist.new_group(), dist.new_group()
    dist.destroy_process_group(one)
    with pytest.raises(ValueError, match="destroyed"):
        dist.all_reduce(np.ones(1), group=one)
    with pytest.raises(ValueError, match="destroyed before"):
        dist.destroy_process_group(one)
    dist.destroy_process_group(GroupMember.NON_GROUP_MEMBER)
    assert total(two) + total() == 4.0


@on_ranks(2)
def test_destroy_finishes_what_was_issued():
    arrays = [np.ones(3) for _ in range(20)]
    works = [dist.all_reduce(array, async_op=True) for array in arrays]
    dist.destroy_process_group()
    assert all(work.is_success() for work in works)
    assert all((array == 2).all() for array in arrays)


def test_without_a_group_calls_say_what_to_do():
    for call in (lambda: dist.all_reduce(np.ones(1)), dist.get_rank, dist.barrier, lambda: dist.new_group([0])):
        with pytest.raises(ValueError, match="init_process_group"):
            call()
    with pytest.raises(ValueError, match="destroyed before"):
        dist.destroy_process_group()
    assert not dist.is_initialized()
    assert dist.group.WORLD is GroupMember.WORLD is None


def test_what_is_no_group_is_refused():
    with pytest.raises(TypeError, match="must be a ProcessGroup"):
        dist.barrier(group="world")


def test_a_world_of_one_needs_no_store_and_no_environment():
    dist.init_process_group("local", rank=0, world_size=1)
    assert total() == 1.0
    assert dist.group.WORLD is GroupMember.WORLD
    with pytest.raises(ValueError, match="already there"):
        dist.init_process_group("local", rank=0, world_size=1)
    dist.destroy_process_group()
    with pytest.raises(ValueError, match="not both"):
        dist.init_process_group("local", rank=0, world_size=1, store=HashStore(), init_method="env://")


@pytest.mark.parametrize(
    ("timeout", "error"), [("5", TypeError), (-1, ValueError), (float("nan"), ValueError), (True, TypeError)]
)
def test_a_timeout_is_a_timedelta_or_seconds(timeout, error):
    with pytest.raises(error, match="timeout"):
        dist.init_process_group("local", rank=0, world_size=1, timeout=timeout)
    assert not dist.is_initialized()


def init_all(arguments, timeout=5.0):
    """Call init_process_group with each of the arguments, all at once; return what came of each."""
    store = HashStore()

    def program(kwargs):
        use(World())
        try:
            dist.init_process_group(**{"backend": "local", "store": store, "timeout": timeout, **kwargs})
            dist.destroy_process_group()
        except Exception as error:
            return error

    return at_once(program, arguments, PATIENCE_S)


def test_two_processes_that_claim_one_rank_are_both_named_to_all():
    for error in init_all([{"rank": r, "world_size": 3} for r in (0, 1, 1)]):
        assert isinstance(error, dist.RendezvousError)
        assert str(error).count(f"rank 1 (host {os.uname().nodename}, pid {os.getpid()}") == 2


def test_a_duplicate_that_comes_when_all_is_settled_is_refused():
    from rankwise.basics.deadline import Deadline
    from rankwise.groups.handshake import meet

    store = HashStore()
    at_once(lambda rank: meet(store, rank, (0, 1), {}, "init", Deadline(5)), (0, 1), PATIENCE_S)
    with pytest.raises(dist.RendezvousError, match="two processes claim rank 1"):
        meet(store, 1, (0, 1), {}, "init", Deadline(5))


@pytest.mark.parametrize(
    ("odd", "words"),
    [
        ({"world_size": 3}, "world_size is (2 for rank 0|3 for rank 1)"),
        ({"backend": "other"}, "backend is 'local'.*'other'|backend is 'other'.*'local'"),
    ],
)
def test_what_processes_disagree_about_is_named_to_all(odd, words, other):
    for error in init_all([{"rank": 0, "world_size": 2}, {"rank": 1, "world_size": 2, **odd}]):
        assert isinstance(error, dist.RendezvousError)
        assert re.search(words, str(error))


def test_missing_ranks_are_named_when_the_time_is_up():
    with within(LEEWAY_S):
        outcomes = init_all([{"rank": r, "world_size": 5} for r in (0, 1, 4)], timeout=0.5)
    for error in outcomes:
        assert isinstance(error, dist.DistTimeoutError)
        assert "ranks 2, 3 of 5 did not come within 0.5 s" in str(error)


def test_a_member_that_cannot_make_its_part_is_named_to_all(own_backends):
    def create(context):
        if context.rank == 1:
            raise OSError("its card is broken")
        return LocalCommunicator(context)

    dist.register_backend("fragile", create, extended_api=True)
    outcomes = init_all([{"rank": r, "world_size": 3, "backend": "fragile"} for r in range(3)])
    assert isinstance(outcomes[1].__cause__, OSError)
    for error in outcomes:
        assert isinstance(error, dist.DistBackendError)
        assert "on rank 1: backend 'fragile', from this process, cannot connect: its card is broken" in str(error)


def test_after_a_time_out_the_same_store_serves_again():
    store = HashStore()

    def program(rank, timeout):
        try:
            dist.init_process_group("local", store=store, rank=rank, world_size=2, timeout=timeout)
        except dist.DistTimeoutError:
            return "late"
        result = total()
        dist.destroy_process_group()
        return result

    ended = []

    def first_alone():
        use(World())
        alone = program(0, 0.1)
        ended.append(store.get("life"))
        return alone, program(0, PATIENCE_S)

    with ThreadPoolExecutor(1) as threads:
        alone = threads.submit(first_alone)
        # A rank that comes before anyone has come back is told that it was late, too.
        assert wait_until(lambda: ended and store.get("life") != ended[0], PATIENCE_S)
        assert program(1, PATIENCE_S) == 2.0
        assert alone.result(PATIENCE_S) == ("late", 2.0)


def test_a_failed_init_leaves_nothing_behind():
    store = HashStore()
    with pytest.raises(dist.DistTimeoutError):
        dist.init_process_group("local", store=store, rank=0, world_size=2, timeout=0.05)
    assert vars(current()) == vars(World(left_marks=current().left_marks, recorder=current().recorder))
    dist.init_process_group("local", store=store, rank=0, world_size=1)


def usage():
    gc.collect()
    with open("/proc/self/statm") as file:
        pages = int(file.read().split()[1])
    return len(os.listdir("/proc/self/fd")), pages * 4096


def test_hundreds_of_lives_leave_no_threads_descriptors_or_memory():
    def lives(store, rank, count):
        use(World())
        for _ in range(count):
            dist.init_process_group("local", store=store, rank=rank, world_size=2, timeout=20)
            dist.all_reduce(np.ones(100), async_op=True).wait()
            dist.new_group([1, 0])
            dist.destroy_process_group()

    def both(count):
        store = HashStore()  # the program's own: each life leaves some keys in it
        at_once(lambda rank: lives(store, rank, count), range(2), PATIENCE_S)

    both(50)
    descriptors, memory = usage()
    with none_left(PATIENCE_S):
        both(300)
    after = usage()
    assert after[0] == descriptors
    assert after[1] - memory < 4 << 20


def test_a_forked_child_gets_an_error_and_may_begin_anew():
    dist.init_process_group("local", rank=0, world_size=1)
    pg = dist.group.WORLD
    work = dist.irecv(np.empty(1), 0)

    def begin_anew():
        assert work.is_completed()
        for call in (lambda: dist.all_reduce(np.ones(1)), lambda: dist.barrier(group=pg), work.wait):
            with pytest.raises(dist.ForkedProcessError, match="fork"):
                call()
        dist.init_process_group("local", rank=0, world_size=1)
        assert total() == 1.0

    with forked(begin_anew):
        pass
    dist.isend(np.ones(1), 0)
    assert work.wait()
    assert total() == 1.0


@on_ranks(3)
def test_a_rank_whose_call_alone_was_refused_may_make_it_again():
    array = np.ones(3)
    array.flags.writeable = dist.get_rank() != 1
    if dist.get_rank() == 1:
        with pytest.raises(ValueError, match="read-only"):
            dist.all_reduce(array)
        array = array.copy()
    dist.all_reduce(array)
    dist.broadcast(array, 1)  # in step again
    assert array[0] == 3.0


@on_ranks(3)
def test_a_rank_that_passes_over_a_refused_call_is_told_where_the_calls_differ():
    if dist.get_rank() != 1:
        with pytest.raises(dist.CollectiveMismatchError):
            dist.broadcast(np.ones(3), src=0)
        return
    with pytest.raises(ValueError, match="rank"):
        dist.broadcast(np.ones(3), src=7)
    with pytest.raises(dist.CollectiveMismatchError):
        dist.all_reduce(np.ones(3))
