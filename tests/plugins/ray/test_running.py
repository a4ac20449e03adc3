"""Jobs of ranks: placed together, streamed, their results, the cause of a failure, and their end."""

import math
import os
import pickle
import time

import numpy as np
import pytest
import ray
from ray import cloudpickle

import rankwise as dist
import rankwise_ray
from rankwise_ray import RankFailedError, running
from rankwise_ray.group import ArgumentError

PATIENCE_S = 60.0


def free(cluster):
    return cluster.available_resources().get("CPU", 0)


def places():
    """Return the places that are reserved, or are to be."""
    return [each for each in ray.util.placement_group_table().values() if each["state"] != "REMOVED"]


def until(condition):
    """Wait until a condition holds."""
    deadline = time.monotonic() + PATIENCE_S
    while not condition():
        assert time.monotonic() < deadline, "it has not come about"
        time.sleep(0.05)


def settled(cluster, cpus):
    until = time.monotonic() + PATIENCE_S
    while free(cluster) < cpus:
        assert time.monotonic() < until, f"{free(cluster)} of {cpus} CPUs are free"
        time.sleep(0.05)


def test_it_returns_what_each_rank_has_returned_and_streams_what_they_print(cluster, capfd):
    def program(factor):
        array = np.full(3, dist.get_rank() + 1.0)
        dist.all_reduce(array)
        print(f"line of {dist.get_rank()}")
        return dist.get_rank(), factor * float(array[0])

    before = free(cluster)
    assert rankwise_ray.run(program, (10,), ranks=3) == [(0, 60), (1, 60), (2, 60)]
    settled(cluster, before)
    told, until = "", time.monotonic() + PATIENCE_S
    while not all(f"line of {rank}" in told for rank in range(3)):
        assert time.monotonic() < until, told
        told += "".join(capfd.readouterr())
        time.sleep(0.05)
    for rank in range(3):
        line = next(line for line in told.splitlines() if f"line of {rank}" in line)
        assert f"(rank {rank} pid=" in line


def test_the_rank_whose_fault_it_is_is_named_with_its_traceback(cluster):
    def program():
        if dist.get_rank() == 1:
            raise KeyError("no such thing")
        dist.barrier()

    before = free(cluster)
    with pytest.raises(RankFailedError, match=r"rank 1 has failed(?s:.*)raise KeyError") as told:
        rankwise_ray.run(program, ranks=3)
    assert told.value.rank == 1
    assert isinstance(told.value.__cause__, KeyError)
    settled(cluster, before)


def test_a_rank_whose_process_dies_is_named(cluster):
    def program():
        if dist.get_rank() == 2:
            os.kill(os.getpid(), 9)
        dist.barrier()

    with pytest.raises(RankFailedError, match="rank 2") as told:
        rankwise_ray.run(program, ranks=3)
    assert told.value.rank == 2


def test_a_job_is_cancelled(cluster):
    def program():
        dist.barrier()
        time.sleep(600)

    before = free(cluster)
    with rankwise_ray.start(program, ranks=2) as job, pytest.raises(dist.DistTimeoutError, match="still at work"):
        job.result(timeout=0.2)
    settled(cluster, before)
    job.cancel()


def test_no_room_is_told(cluster):
    with pytest.raises(dist.DistTimeoutError, match=r"no room for 2 ranks with \{'CPU': 1000\}"):
        rankwise_ray.run(print, ranks=2, resources={"CPU": 1000}, placement_timeout=0.5)


#: What no number of a job may be.
NO_NUMBERS = [(True, TypeError), ("1", TypeError), (math.nan, ValueError), (-1, ValueError)]


@pytest.mark.parametrize(
    ("options", "error", "words"),
    [
        *(({"ranks": value}, TypeError, "ranks must be a whole number") for value in (1.5, True, "2", math.nan, None)),
        *(({"ranks": value}, ValueError, "ranks must be at least 1") for value in (0, -1)),
        *(({"resources": {"CPU": value}}, error, "the amount of CPU") for value, error in NO_NUMBERS),
        *(({"resources": {"mine": value}}, error, "the amount of mine") for value, error in NO_NUMBERS),
        ({"resources": {"CPU": math.inf}}, ValueError, "finite"),
        ({"resources": {"CPU": 0}}, ValueError, "at least one resource"),
        ({"resources": {"GPU": 1.5}}, ValueError, "GPU"),
        ({"resources": {"CPU": 1e-9}}, ValueError, "precision"),
        ({"resources": {1: 1}}, TypeError, "a name must be a string"),
        ({"resources": 2}, TypeError, "resources must be a mapping"),
        *(({name: value}, error, name) for name in ("timeout", "placement_timeout") for value, error in NO_NUMBERS),
        ({"strategy": "SPREAD_OUT"}, ValueError, "strategy must be one of PACK"),
        ({"strategy": None}, TypeError, "strategy must be a string"),
        ({"backend": 1}, TypeError, "backend must be a string"),
        ({"runtime_env": 1}, TypeError, "runtime_env must be a mapping"),
        ({"args": "ab"}, TypeError, "args must be a sequence"),
        ({"function": None}, TypeError, "function must be callable"),
    ],
)
@pytest.mark.parametrize("call", [rankwise_ray.run, rankwise_ray.start])
def test_arguments_are_judged_before_the_cluster_is_asked(cluster, monkeypatch, call, options, error, words):
    monkeypatch.setattr(running, "_placed", lambda *_: pytest.fail("the cluster was asked"))
    with pytest.raises(error, match=words) as told:
        call(**{"function": print, "ranks": 1, **options})
    assert "\n" not in str(told.value)
    assert len(str(told.value)) < 200


def test_a_function_may_end_its_group_itself(cluster):
    def program():
        array = np.ones(3)
        dist.all_reduce(array)
        dist.destroy_process_group()
        return float(array[0])

    assert rankwise_ray.run(program, ranks=2) == [2, 2]


def test_the_place_of_ranks_that_have_ended_is_free(cluster):
    job = rankwise_ray.start(dist.get_rank, ranks=2)
    ray.wait(job._calls, num_returns=2, timeout=PATIENCE_S)
    until(lambda: not places())
    assert job.result() == job.result() == [0, 1]


def test_the_ranks_of_a_job_that_nobody_has_any_more_are_ended(cluster):
    job = rankwise_ray.start(time.sleep, (10 * PATIENCE_S,), ranks=2)
    keeping = job._keeping
    assert len(places()) == 1
    del job
    until(lambda: not places())
    until(lambda: not keeping.is_alive())


@pytest.mark.parametrize("end", ["killed", "cancelled", "returned"])
def test_a_caller_takes_the_place_of_its_job_along(cluster, end):
    @ray.remote(num_cpus=0, max_retries=0)
    def caller():
        job = rankwise_ray.start(time.sleep, (10 * PATIENCE_S,), ranks=2)
        return None if end == "returned" else job.result()

    call = caller.remote()
    if end == "returned":
        cluster.get(call)
    else:
        until(lambda: [place["state"] for place in places()] == ["CREATED"])
        ray.cancel(call, force=end == "killed")
    until(lambda: not places())
    until(lambda: not [a for a in ray.util.list_named_actors(all_namespaces=True) if a["name"].startswith("place ")])


@pytest.mark.parametrize("ways", [pickle, cloudpickle], ids=lambda ways: ways.__name__)
def test_errors_are_the_same_after_a_way_there_and_back(ways):
    made = [getattr(dist.errors, name) for name in dist.errors.__all__]
    plain = [kind("what has failed") for kind in made if kind.__init__ in (Exception.__init__, RuntimeError.__init__)]
    for error in [RankFailedError(1, KeyError("x")), ArgumentError("no"), dist.DistTimeoutError("it"), *plain]:
        error.more = 5
        back = ways.loads(ways.dumps(error))
        assert (type(back), str(back), vars(back)) == (type(error), str(error), vars(error))


def test_what_a_task_raises_of_ours_arrives_as_what_it_is(cluster):
    @ray.remote(num_cpus=0, max_retries=0)
    def raises(error):
        raise error

    for error in (
        dist.DistTimeoutError("late"),
        dist.PeerDiedError(2, "host", "killed"),
        RankFailedError(1, KeyError()),
    ):
        with pytest.raises(type(error)) as told:
            cluster.get(raises.remote(error))
        assert (str(told.value.cause), vars(told.value.cause)) == (str(error), vars(error))
