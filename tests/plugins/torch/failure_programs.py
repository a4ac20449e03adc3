"""What the ranks of `test_failures.py` do."""

import os
import signal
import time
from datetime import timedelta

import pytest
import torch
import torch.distributed as dist
import torch.distributed.checkpoint as checkpoint
from torch.distributed.checkpoint import CheckpointException

import rankwise


def mismatch(rank, size):
    """Call with different sizes: all ranks get one error that names the line of each camp."""
    first = mismatch.__code__.co_firstlineno
    with pytest.raises(dist.DistBackendError) as caught:
        if rank:
            dist.all_reduce(torch.ones(4))  # the fifth line after the first
        else:
            dist.all_reduce(torch.ones(5))  # the seventh
    assert isinstance(caught.value, rankwise.CollectiveMismatchError)
    assert all(f"failure_programs.py:{first + line}" in str(caught.value) for line in (5, 7)), caught.value
    tensor = torch.ones(1)
    dist.all_reduce(tensor)
    assert tensor.item() == size


def late(rank, size):
    """Wait for a rank that does not come."""
    group = dist.new_group(timeout=timedelta(seconds=2))
    other = dist.new_group()
    if rank == 0:
        for call in (lambda: dist.barrier(group), lambda: dist.all_reduce(torch.ones(1), group=group)):
            with pytest.raises(dist.DistBackendError, match="timed out") as caught:
                call()
            assert isinstance(caught.value, rankwise.DistError)
    dist.barrier(other)


def late_to_a_work(rank, size):
    """Wait for a work of a call that another rank does not make."""
    group = dist.new_group(timeout=timedelta(seconds=1))
    if rank == 0:
        work = dist.all_reduce(torch.ones(1), group=group, async_op=True)
        with pytest.raises(dist.DistBackendError, match="timed out") as caught:
            work.wait(timedelta(seconds=0.1))
        assert "it goes on" in str(caught.value)
        with pytest.raises(dist.DistBackendError, match="timed out") as caught:
            work.wait()
        assert "rank 1" in str(caught.value)
    dist.barrier()


def late_in_barrier(rank, size):
    """Ask who is missing."""
    if rank == 0:
        with pytest.raises(dist.DistBackendError, match="timed out") as caught:
            dist.group.WORLD.monitored_barrier(timedelta(seconds=1))
        assert "rank 1" in str(caught.value)
    dist.barrier()


def killed_in_backward(rank, size):
    """Let the last rank die in the middle of a backward pass."""
    layers = [torch.nn.Linear(256, 256) for _ in range(20)]
    model = torch.nn.parallel.DistributedDataParallel(torch.nn.Sequential(*layers), bucket_cap_mb=1)
    inputs = torch.ones(8, 256)
    model(inputs).sum().backward()
    if rank == size - 1:
        model.module[10].weight.register_hook(lambda _: os.kill(os.getpid(), signal.SIGKILL))
    loss = model(inputs).sum()
    dist.barrier()
    began = time.monotonic()
    with pytest.raises(RuntimeError, match=f"rank {size - 1}") as caught:
        loss.backward()
    took = time.monotonic() - began
    assert "PeerDiedError" in f"{caught.type.__mro__} {caught.value}"
    with pytest.raises(dist.DistBackendError) as caught:
        dist.all_reduce(torch.ones(1))
    assert isinstance(caught.value, rankwise.PeerDiedError)
    assert caught.value.rank == size - 1
    dist.distributed_c10d._abort_process_group()
    return took


def errors_of_works(rank, size):
    """Works tell their errors, in Python and to torch's C++, which goes on from futures."""
    if rank == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    work = dist.all_reduce(torch.ones(1 << 16), async_op=True)
    future = work.get_future().then(lambda ended: ended.value())
    with pytest.raises(dist.DistBackendError) as caught:
        work.wait()
    assert isinstance(caught.value, rankwise.PeerDiedError)
    assert work.is_completed()
    assert not work.is_success()
    assert isinstance(work.exception(), rankwise.PeerDiedError)
    with pytest.raises(RuntimeError, match="rank 1"):
        future.wait()
    dist.distributed_c10d._abort_process_group()


def a_checkpoint_tells_of_it(rank, size, folder):
    """One rank fails as it saves: all are told by torch, which sends errors from rank to rank."""
    small = dist.new_group(timeout=timedelta(seconds=1))

    class Writer(checkpoint.FileSystemWriter):
        def prepare_local_plan(self, plan):
            if rank == 1:
                dist.all_reduce(torch.ones(1), group=small)  # which the others do not call
            return super().prepare_local_plan(plan)

    with pytest.raises(CheckpointException) as caught:
        checkpoint.save({"x": torch.ones(2)}, storage_writer=Writer(folder))
    assert list(caught.value.failures) == [1]
    error, _ = caught.value.failures[1]
    assert isinstance(error, rankwise.DistTimeoutError)
    assert error.waited_for == (0,)
