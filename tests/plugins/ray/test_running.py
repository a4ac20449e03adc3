"""Jobs of ranks: placed together, streamed, their results, the cause of a failure, and their end."""

import os
import time

import numpy as np
import pytest

import rankwise as dist
import rankwise_ray
from rankwise_ray import RankFailedError

PATIENCE_S = 60.0


def free(cluster):
    return cluster.available_resources().get("CPU", 0)


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
    with pytest.raises(ValueError, match="at least one rank"):
        rankwise_ray.run(print, ranks=0)
