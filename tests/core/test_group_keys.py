"""What groups leave in the store: nothing, once all their members have destroyed them."""

import os
import time
from unittest.mock import patch

import numpy as np
import pytest
from tests.ranks import pool_of

import rankwise as dist
from rankwise.groups import handshake
from rankwise.groups.world import current
from rankwise_stores import FileStore, TCPStore
from rankwise_testing import run_ranks

PATIENCE_S = 120.0
LEEWAY_S = 2.5

SIZE = 3


pool = pool_of(SIZE)


def keys():
    """Return all keys of the job's store, the same on all ranks."""
    dist.barrier()
    found = [key for key in current().store.underlying_store.scan() if "/beat/" not in key]
    dist.barrier()
    return sorted(found)


def use(group):
    if group != dist.GroupMember.NON_GROUP_MEMBER:
        dist.all_reduce(np.ones(1), group=group)
        dist.monitored_barrier(group)
        dist.destroy_process_group(group)


def make_and_destroy(address, lives):
    dist.init_process_group("gloo", address, rank=int(os.environ["RANK"]), world_size=SIZE, timeout=30)
    rank = dist.get_rank()
    before = keys()
    for _ in range(lives):
        use(dist.new_group())
        use(dist.new_group([1, 2]))  # without the host of the store
        if rank != 1:
            use(dist.new_group([0, 2], use_local_synchronization=True))
        if rank:
            use(dist.new_subgroups_by_enumeration([[1, 2]])[0])
        else:
            dist.new_group([1, 2])
        mine = dist.split_group(split_ranks=[[2, 0], [1]])
        use(mine)
    after = keys()
    remembered = len(current().stay_for)
    begin = time.monotonic()
    dist.destroy_process_group()
    return before, after, remembered, time.monotonic() - begin


def test_groups_leave_no_keys_behind(pool, address):
    for before, after, remembered, leaving_s in pool.run(make_and_destroy, address, 10, timeout=PATIENCE_S):
        assert after == before
        assert remembered <= 33
        assert leaving_s < LEEWAY_S  # nobody stays for counters that are gone with their group


def look_late(address):
    """Make a group of others, of whose outcome this rank learns only once they have used and destroyed it."""
    dist.init_process_group("gloo", address, rank=int(os.environ["RANK"]), world_size=SIZE, timeout=30)
    before, store, look = keys(), current().store.underlying_store, handshake._verdict

    def late(*args):
        found = look(*args)
        store.wait(["destroyed/1", "destroyed/2"], 20)
        return found

    if dist.get_rank() == 0:
        with patch.object(handshake, "_verdict", late):
            dist.new_group([1, 2], timeout=25)
    else:
        use(dist.new_group([1, 2], timeout=25))
        store.set(f"destroyed/{dist.get_rank()}", b"")
    dist.barrier()
    if dist.get_rank() == 0:
        store.delete_prefix("destroyed/")
    after = keys()
    dist.destroy_process_group()
    return before, after


def test_a_group_may_be_gone_before_a_rank_that_is_not_in_it_has_looked(pool, address):
    for before, after in pool.run(look_late, address, timeout=PATIENCE_S):
        assert after == before


def meet_often(address):
    dist.init_process_group("gloo", address, rank=int(os.environ["RANK"]), world_size=SIZE, timeout=30)
    for _ in range(12):
        dist.monitored_barrier()
    left = [key.partition("monitored/")[2] for key in keys() if "monitored/" in key]
    dist.destroy_process_group()
    return left


def test_a_loop_over_monitored_barriers_leaves_the_keys_of_the_last(pool, address):
    of_the_last = ["come", *(f"rank/{rank}" for rank in range(SIZE)), "told of the barrier", "verdict"]
    for left in pool.run(meet_often, address, timeout=PATIENCE_S):
        assert left == [f"12/{key}" for key in of_the_last]


def live_in_a_given_store(path, lives):
    rank = int(os.environ["RANK"])
    with FileStore(path, timeout=30) as store:
        for _ in range(lives):
            dist.init_process_group("gloo", store=store, rank=rank, world_size=SIZE, timeout=30)
            dist.all_reduce(np.ones(1))
            dist.monitored_barrier()
            dist.new_group([0, 1])  # ends with the world
            dist.destroy_process_group()
        store.barrier("all", SIZE)
        return store.list_keys()


def test_lives_in_a_given_store_leave_one_key_behind(pool, tmp_path):
    assert pool.run(live_in_a_given_store, str(tmp_path / "store"), 5, timeout=PATIENCE_S) == SIZE * [["life"]]


def destroy_where_the_host_is_gone(address):
    rank = int(os.environ["RANK"])
    dist.init_process_group("gloo", address, rank=rank, world_size=SIZE, timeout=30)
    group = dist.new_group([1, 2])
    dist.barrier()
    if rank == 0:
        current().owned_store.close()
        return 0.0
    with pytest.raises(dist.DistError):
        current().owned_store.get("never", timeout=10)
    begin = time.monotonic()
    dist.destroy_process_group(group)
    return time.monotonic() - begin


def test_a_group_can_be_destroyed_when_the_store_is_gone(tcp_address):
    assert max(run_ranks(destroy_where_the_host_is_gone, SIZE, tcp_address, timeout=PATIENCE_S)) < 2 * LEEWAY_S


def test_a_prefix_is_deleted_with_all_that_is_under_it(tmp_path):
    with TCPStore("127.0.0.1", is_master=True) as tcp, FileStore(tmp_path / "file") as file:
        for store in (tcp, file, dist.HashStore(), dist.PrefixStore("outer", tcp)):
            store.multi_set(["a/1", "a/2", "ab", "b/1"], 4 * [b"v"])
            store.queue_push("a/queue", b"v")
            store.queue_push("b/queue", b"v")
            store.barrier("a/barrier", 1)
            assert store.delete_prefix("a/") == 2
            assert store.list_keys() == ["ab", "b/1"]
            assert store.queue_len("a/queue") == 0
            assert store.queue_len("b/queue") == 1
            assert not [key for key in store.scan() if "a/barrier" in key]
            inner = dist.PrefixStore("b", store)
            assert inner.delete_prefix("") == 1
            assert store.list_keys() == ["ab"]
            assert store.delete_prefix("nothing") == 0


def test_a_view_has_a_time_out_of_its_own():
    with TCPStore("127.0.0.1", is_master=True, timeout=30) as store:
        for whole in (store, dist.PrefixStore("p", store)):
            view = whole.view(0.01)
            with pytest.raises(dist.DistTimeoutError):
                view.get("missing")
            view.set("key", "v")
            assert whole.get("key") == b"v"
            assert whole.timeout.total_seconds() == 30
