"""Calls that others do not join end at their time-out; what was only late is not lost."""

from __future__ import annotations

import contextlib
import signal
import threading
import time
from typing import Any

import numpy as np
import pytest
from mpi4py import MPI

import rankwise as dist
from rankwise.errors import DistError, DistTimeoutError, GroupAbortedError

SIDE = MPI.COMM_WORLD  # what the program does with mpi4py itself


def took(begin: float) -> float:
    return time.monotonic() - begin


def fresh(name: str) -> Any:
    return dist.new_group(timeout=20, group_desc=name)


def a_wait_that_ends_early_may_be_repeated(rank: int) -> None:
    if rank == 0:
        work = dist.all_reduce(np.ones(1), async_op=True)
        assert work is not None
        begin = time.monotonic()
        with pytest.raises(DistTimeoutError):
            work.wait(0.1)
        assert 0.09 < took(begin) < 2
        assert not work.is_completed()
        SIDE.Barrier()
        assert work.wait(20)
        assert work.is_completed()
    else:
        SIDE.Barrier()
        dist.all_reduce(np.ones(1))


def a_receive_that_ends_early_swallows_nothing(rank: int) -> None:
    array = np.zeros(4)
    if rank == 0:
        with pytest.raises(DistTimeoutError):
            dist.recv(array, 1, timeout=0.1)
        begun = dist.irecv(array, 1, tag=3)
        assert begun is not None
        with pytest.raises(DistTimeoutError):
            begun.wait(0.05)
        assert begun.cancel()
        SIDE.Barrier()
        assert dist.recv(array, 1, timeout=20) == 1
        assert array[0] == 7
        array[0] = 0
        assert dist.recv(array, 1, tag=3, timeout=20) == 1
        assert array[0] == 7
    else:
        SIDE.Barrier()
        dist.send(np.full(4, 7.0), 0)
        dist.send(np.full(4, 7.0), 0, tag=3)


def a_message_that_is_too_long_names_both_sizes(rank: int) -> None:
    for nbytes in (80, 800_000):  # eager, and by rendezvous
        if rank == 0:
            guarded = np.zeros(4096, np.uint8)
            with pytest.raises(DistError, match=rf"{nbytes} bytes from rank 1 .* receive of 40 bytes"):
                dist.recv(guarded[:40], 1)
            assert not guarded.any()
        else:
            dist.send(np.ones(nbytes, np.uint8), 0)
    dist.barrier()


def an_absent_rank_ends_a_collective(rank: int, call: Any) -> None:
    group = fresh("absent")
    if rank == 0:
        begin = time.monotonic()
        with pytest.raises(DistTimeoutError, match=r"rank 0: .*; not seen in it: rank 1"):
            call(group, timeout=0.2)
        assert took(begin) < 5
        with pytest.raises(DistTimeoutError):  # and so does whatever follows
            dist.barrier(group)
        SIDE.Barrier()
    else:
        SIDE.Barrier()
        # What rank 0 has sent before it gave up may be all that the first call needs.
        with contextlib.suppress(DistError):
            call(group, timeout=20)
        with pytest.raises(DistError, match="not done after"):
            call(group, timeout=20)
    SIDE.Barrier()


def an_interrupt_ends_a_collective(rank: int) -> None:
    group = fresh("interrupted")
    large = np.ones(200_000)
    if rank == 0:
        signal.signal(signal.SIGALRM, signal.default_int_handler)
        signal.setitimer(signal.ITIMER_REAL, 0.2)
        begin = time.monotonic()
        with pytest.raises(KeyboardInterrupt):
            dist.all_reduce(large, group=group)
        assert took(begin) < 5
        with pytest.raises(GroupAbortedError, match="KeyboardInterrupt"):
            dist.all_reduce(large, group=group)
        SIDE.Barrier()
    else:
        SIDE.Barrier()
        with contextlib.suppress(GroupAbortedError):  # as above
            dist.all_reduce(large, group=group)
        with pytest.raises(GroupAbortedError, match="KeyboardInterrupt"):
            dist.all_reduce(large, group=group)
    SIDE.Barrier()


def a_call_is_ended_from_another_thread(rank: int) -> None:
    group = fresh("aborted")
    if rank == 0:
        threading.Timer(0.1, dist.abort_process_group, [group]).start()
        with pytest.raises(GroupAbortedError, match="abort_process_group"):
            dist.all_reduce(np.ones(1), group=group)
    else:
        pending = dist.irecv(np.ones(3), 0, group)
        assert pending is not None
        begin = time.monotonic()
        with pytest.raises(GroupAbortedError, match="abort_process_group"):
            pending.wait()
        assert took(begin) < 5
    SIDE.Barrier()
    dist.destroy_process_group(group)


def main() -> None:
    dist.init_process_group("mpi", timeout=20)
    rank = dist.get_rank()
    a_wait_that_ends_early_may_be_repeated(rank)
    a_receive_that_ends_early_swallows_nothing(rank)
    a_message_that_is_too_long_names_both_sizes(rank)
    small, large = np.ones(1), np.ones(200_000)
    an_absent_rank_ends_a_collective(rank, lambda group, timeout: dist.all_reduce(small, group=group, timeout=timeout))
    an_absent_rank_ends_a_collective(rank, lambda group, timeout: dist.all_reduce(large, group=group, timeout=timeout))
    an_absent_rank_ends_a_collective(
        rank, lambda group, timeout: dist.all_reduce(large, group=group, timeout=timeout, async_op=True).wait()
    )
    an_interrupt_ends_a_collective(rank)
    a_call_is_ended_from_another_thread(rank)
    dist.barrier()
    dist.destroy_process_group()
    print("fine", flush=True)


main()
