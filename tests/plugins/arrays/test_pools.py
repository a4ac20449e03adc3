"""Pools and channels, on each backend; and deaths, where the others can go on."""

from __future__ import annotations

import sys
from itertools import pairwise
from pathlib import Path

import pytest

import rankwise as dist
from rankwise_local import local_world
from rankwise_testing import RankPool

PATIENCE_S = 60.0

HERE = Path(__file__).parent
sys.path[:0] = [] if str(HERE) in sys.path else [str(HERE)]
import pool_programs as programs  # noqa: E402
from ways import PROCESSES, Ranks, pool_of  # noqa: E402


@pytest.mark.parametrize("size", [1, 2, 4])
def test_results_come_in_either_order(ranks: Ranks, size: int) -> None:
    ranks.run(size, programs.maps, size)


def test_tasks_and_results_are_of_any_size(ranks: Ranks) -> None:
    ranks.run(3, programs.arrays_travel)


@pytest.mark.parametrize("size", [2, 4])
@pytest.mark.parametrize("chunksize", [1, 8])
def test_a_source_without_end_is_asked_for_what_workers_have_at_a_time(ranks: Ranks, size: int, chunksize: int) -> None:
    ranks.run(size, programs.asks_for_few, size, chunksize)


def test_a_worker_gives_back_what_stands_behind_a_task_that_takes_long(ranks: Ranks) -> None:
    workers, *_ = ranks.run(3, programs.gives_back)
    assert sum(one != next_one for one, next_one in pairwise(workers)) >= 10


@pytest.mark.parametrize("size", [1, 3])
def test_a_failed_task_is_told_with_the_traceback_of_its_worker(ranks: Ranks, size: int) -> None:
    told, *rest = ranks.run(size, programs.says_where)
    assert rest == [None] * (size - 1)
    number, rank, text = told
    assert number == 5
    assert rank in range(min(1, size - 1), size)
    assert text.startswith(f"task 5 has failed on rank {rank}: Traceback")
    assert "in fails" in text
    assert "LookupError: no such thing" in text
    assert "in _done" not in text


@pytest.mark.parametrize("of_task", [True, False])
def test_what_does_not_travel_is_named(ranks: Ranks, of_task: bool) -> None:
    told, *_ = ranks.run(2, programs.does_not_travel, of_task)
    assert told.startswith("TypeError" if of_task else "TaskError: task 0 has failed on rank 1")
    assert "object" in told


def test_no_worker_waits_for_a_leader_that_has_left(ranks: Ranks) -> None:
    ranks.run(3, programs.the_leader_raises)


def test_pickles_go_where_they_are_asked_for(ranks: Ranks) -> None:
    assert ranks.run(2, programs.any_object_travels_as_a_pickle) == [[2, 8], []]


# ---------------------------------------------------------------------- deaths

GLOO = [way for way in PROCESSES if PROCESSES[way][0] == "gloo"]


@pytest.mark.parametrize("way", GLOO)
@pytest.mark.parametrize("tasks", [9, 19])
def test_tasks_of_the_dead_are_given_to_others(tmp_path: Path, way: str, tasks: int) -> None:
    with pool_of(way, 4) as pool:
        found = pool.run(programs.goes_on, str(tmp_path), tasks, timeout=PATIENCE_S, doomed=[1, 2, 3])
    lost = len([*tmp_path.iterdir()])
    assert lost == (tasks + 6) // 10
    assert found.count(None) == lost
    assert found[0] == ([*range(tasks)], lost, 4 - lost)


@pytest.mark.parametrize("victim", [1, 2])
def test_a_death_between_calls_is_found_by_the_next(victim: int) -> None:
    with RankPool(3) as pool:
        found = pool.run(programs.dies_between, victim, timeout=PATIENCE_S, doomed=[victim])
    assert found[0] == [0, 1, 4, 9, 16, 25]


def test_a_task_that_kills_is_given_up() -> None:
    with RankPool(4) as pool:
        told = pool.run(programs.is_given_up, 2, timeout=PATIENCE_S, doomed=[1, 2, 3])[0]
    assert told.startswith("TaskError: task 3 has failed on rank ")
    assert "2 workers have died of it" in told
    assert "SIGKILL" in told


def test_a_pool_whose_workers_have_all_died_says_so() -> None:
    with RankPool(3) as pool:
        told = pool.run(programs.is_given_up, 9, timeout=PATIENCE_S, doomed=[1, 2])[0]
    assert told.startswith("PeerDiedError: rank ")


def test_workers_name_a_leader_that_has_died() -> None:
    with RankPool(3) as pool:
        found = pool.run(programs.without_a_leader, timeout=PATIENCE_S, doomed=[0])
    assert found == [None, ("PeerDiedError", 0), ("PeerDiedError", 0)]


# ---------------------------------------------------------------------- channels


@pytest.mark.parametrize("size", [1, 2, 4])
def test_values_come_in_order(ranks: Ranks, size: int) -> None:
    for src in {0, size - 1}:
        ranks.run(size, programs.values_come, src, 20)


def test_a_reader_that_stops_takes_the_rest_when_it_closes(ranks: Ranks) -> None:
    assert ranks.run(3, programs.who_leaves_early_takes_the_rest) == [0, 2, 2]


def test_a_closed_channel_says_so(ranks: Ranks) -> None:
    writer, reader = ranks.run(2, programs.after_the_end)
    closed = "this channel has been closed"
    assert writer == ["ValueError: get: rank 0 writes in this channel", f"ValueError: put: {closed}"]
    assert reader == [
        "ValueError: put: rank 0 writes in this channel, and rank 1 reads",
        "EOFError: get: rank 0 has closed the channel",
        f"ValueError: get: {closed}",
    ]


@pytest.mark.parametrize("victim", [0, 1])
def test_a_dead_end_is_named(victim: int) -> None:
    with RankPool(3) as pool:
        found = pool.run(programs.a_dead_end, victim, timeout=PATIENCE_S, doomed=[victim])
    assert [each for each in found if each] == [("PeerDiedError", victim)] * 2


# ---------------------------------------------------------------------- mistakes


def test_mistakes_are_named() -> None:
    def all_say_so() -> None:
        outside = dist.new_group([0])
        with pytest.raises(ValueError, match="rank 5 is not in the group"):
            dist.channel(5)
        with pytest.raises(ValueError, match="0 attempts"):
            dist.pool(attempts=0)
        with pytest.raises(ValueError, match="a chunksize of 0"):
            dist.pool(chunksize=0)
        if dist.get_rank() == 1:
            for make in (dist.pool, dist.channel):
                with pytest.raises(ValueError, match="this rank is not in the group"):
                    make(group=outside)

    def two_at_once() -> None:
        with dist.pool() as pool:
            for _ in pool.map(abs, range(3)):
                with pytest.raises(ValueError, match="earlier call have not all been taken"):
                    next(iter(pool.map(abs, [1])))

    with local_world(2, timeout=PATIENCE_S) as world:
        world.run(all_say_so)
        world.run(two_at_once)
