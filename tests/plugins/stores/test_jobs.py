"""Jobs whose ranks meet in a Redis or an etcd: they begin, lose a rank, and outlive a restart of the server."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from multiprocessing import get_context

import numpy as np
import pytest
from tests.servers import Server

import rankwise as dist
from rankwise_stores import EtcdStore, RedisStore
from rankwise_testing import RankPool, run_ranks

PATIENCE_S = 120.0
TIMEOUT_S = 60.0
SIZE = 3


@pytest.fixture(scope="module")
def pool() -> Iterator[RankPool]:
    with RankPool(SIZE) as made:
        yield made


def begin(url: str) -> None:
    """Begin a world; rank and size come from the environment."""
    dist.init_process_group("gloo", url, timeout=TIMEOUT_S)


def lives(url: str, count: int) -> list[float]:
    sums = []
    for _ in range(count):
        begin(url)
        array = np.full(4, dist.get_rank() + 1.0)
        dist.all_reduce(array)
        pair = dist.new_group([0, 1])
        if dist.get_rank() < 2:
            dist.barrier(pair)
        sums.append(float(array[0]))
        dist.destroy_process_group()
    return sums


def test_one_life_after_the_other_begins_under_one_prefix_and_nothing_stays(
    pool: RankPool, server: Server, prefix: str
) -> None:
    assert pool.run(lives, server.url(prefix), 3, timeout=PATIENCE_S) == SIZE * [[6.0, 6.0, 6.0]]
    assert [key for key in server.stored_keys() if key.startswith(prefix)] == []


def in_a_given_store(url: str, count: int) -> int:
    rank = int(os.environ["RANK"])
    kind = RedisStore if url.startswith("redis") else EtcdStore
    with kind(url, SIZE, TIMEOUT_S, rank=rank) as store:
        for _ in range(count):
            dist.init_process_group("gloo", store=store, rank=rank, world_size=SIZE, timeout=TIMEOUT_S)
            dist.all_reduce(np.ones(2))
            dist.destroy_process_group()
        store.barrier("all", SIZE)
        left = [key for key in store.scan() if not key.startswith("\0")]
        store.barrier("seen", SIZE)
        return len(left)


def test_lives_in_a_given_store_leave_one_key_behind(pool: RankPool, server: Server, prefix: str) -> None:
    assert max(pool.run(in_a_given_store, server.url(prefix), 3, timeout=PATIENCE_S)) <= 1


def lose_rank_1(url: str) -> tuple[str, int]:
    begin(url)
    dist.barrier()
    if dist.get_rank() == 1:
        os._exit(9)
    try:
        dist.barrier()
    except dist.PeerDiedError as error:
        return type(error).__name__, error.rank
    finally:
        dist.destroy_process_group()
    return "none", -1


def run_where_one_dies(function: object, size: int, *args: object) -> list[object]:
    """Run a function on ranks of which rank 1 dies, and return what the others return."""
    context = get_context("spawn")
    results = context.SimpleQueue()
    ranks = [context.Process(target=as_rank, args=(rank, size, results, function, args)) for rank in range(size)]
    try:
        for each in ranks:
            each.start()
        for each in ranks:
            each.join(PATIENCE_S)
        assert [each.exitcode for each in ranks] == [0, 9, *(0 for _ in ranks[2:])]
        return [results.get() for _ in range(size - 1)]
    finally:
        for each in ranks:
            each.kill()


def as_rank(rank: int, size: int, results: object, function: object, args: tuple[object, ...]) -> None:
    os.environ.update(RANK=str(rank), WORLD_SIZE=str(size))
    results.put(function(*args))


@pytest.mark.parametrize("size", [2, 4])
def test_the_survivors_of_a_death_name_it(server: Server, prefix: str, size: int) -> None:
    told = run_where_one_dies(lose_rank_1, size, server.url(prefix))
    assert told == (size - 1) * [("PeerDiedError", 1)]


def go_on(url: str) -> float:
    begin(url)
    dist.barrier()
    store = dist.PrefixStore("test", RedisStore(url) if url.startswith("redis") else EtcdStore(url))
    store.set(f"{dist.get_rank()} has come", "")
    store.get("go", timeout=TIMEOUT_S)  # the server is started again meanwhile
    group = dist.new_group([0, 1], timeout=TIMEOUT_S)
    array = np.ones(2)
    if dist.get_rank() < 2:
        dist.all_reduce(array, group=group)
    dist.barrier()
    store.underlying_store.close()
    dist.destroy_process_group()
    return float(array[0])


def test_a_job_outlives_a_restart_of_its_server(pool: RankPool, own_server: Server, prefix: str) -> None:
    url = own_server.url(prefix)
    found: list[object] = []
    running = threading.Thread(target=lambda: found.append(pool.run(go_on, url, timeout=PATIENCE_S)))
    running.start()
    with (RedisStore if url.startswith("redis") else EtcdStore)(url, timeout=TIMEOUT_S) as store:
        store.wait([f"test/{rank} has come" for rank in range(SIZE)], TIMEOUT_S)
        own_server.stop()
        own_server.start()
        store.set("test/go", "")
        running.join(PATIENCE_S)
    assert found == [[2.0, 2.0, 1.0]]


def too_few(url: str) -> str:
    with pytest.raises(dist.DistTimeoutError) as caught:
        dist.init_process_group("gloo", url, rank=int(os.environ["RANK"]), world_size=3, timeout=1.0)
    return str(caught.value)


def test_a_rank_that_does_not_come_is_named(server: Server, prefix: str) -> None:
    told = run_ranks(too_few, 2, server.url(prefix), timeout=PATIENCE_S)
    assert all("rank 2 of 3 did not come" in text for text in told)
