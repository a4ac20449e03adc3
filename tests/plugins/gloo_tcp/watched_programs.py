"""What ranks do in `test_watching.py`."""

from __future__ import annotations

import os
import signal
import time
from typing import Any

import numpy as np
from failing import Heard, heard, logged

import rankwise as dist
from rankwise.groups.world import current


def begin(timeout_s: float = 30.0) -> int:
    """Join the world, and do one thing together."""
    dist.init_process_group("gloo", timeout=timeout_s)
    dist.all_reduce(np.zeros(1))
    return dist.get_rank()


def standing_still(leaving: bool) -> list[str]:
    """Let rank 1 keep the others waiting, who may be leaving; return what was logged meanwhile."""
    rank = begin()
    with logged() as records:
        if rank == 1:
            time.sleep(1.5)
        dist.barrier(async_op=leaving)
        dist.destroy_process_group()
    return records


def death_while_meeting() -> Heard | None:
    """Let rank 2 die while the others wait for it in `new_group`."""
    if begin() == 2:
        time.sleep(0.3)
        os.kill(os.getpid(), signal.SIGKILL)
    told = heard(dist.new_group)
    dist.destroy_process_group()
    return told


def death_in_one_group() -> tuple[Any, ...] | None:
    """Let rank 2 die, which is in two of three groups."""
    rank = begin()
    with_it, without = dist.new_group([0, 1, 2]), dist.new_group([0, 1])
    if rank == 2:
        os.kill(os.getpid(), signal.SIGKILL)
    told = heard(dist.barrier, group=with_it)
    again = heard(dist.barrier)
    array = np.ones(1)
    dist.all_reduce(array, group=without)
    dist.destroy_process_group()
    return told, again, array[0]


def leaving_without_a_word() -> Heard | None:
    """Let rank 1 leave in good order and exit with an error of its own; the others' group of two goes on."""
    rank = begin()
    pair = dist.new_group([0, 2])
    dist.barrier()
    if rank == 1:
        dist.destroy_process_group()
        os._exit(3)
    array = np.ones(1)
    for _ in range(100):
        dist.all_reduce(array, group=pair)
        time.sleep(0.01)
    told = heard(dist.barrier)
    dist.destroy_process_group()
    return told


def abort_of_one() -> Heard:
    """Give the group up on rank 1 while the others wait."""
    rank = begin()
    group = dist.group.WORLD
    assert group is not None
    if rank == 1:
        time.sleep(0.2)
        group.abort("as it was told to")
    told = heard(dist.barrier)
    dist.destroy_process_group()
    return told


def chain_of_waits() -> Heard | None:
    """Let rank 0 wait for rank 1, which waits for rank 2, which does something else."""
    rank = begin()
    dist.broadcast(np.zeros(1), 0)
    told = None
    if rank == 0:
        time.sleep(0.5)
        told = heard(dist.recv, np.zeros(1), 1, timeout=1.0)
    elif rank == 1:
        heard(dist.recv, np.zeros(1), 2, timeout=3.0)
    else:
        time.sleep(2.5)
    dist.monitored_barrier()
    dist.destroy_process_group()
    return told


def fork_with_a_group() -> list[str]:
    """Use the group in a forked child, which must be told off, and then in the parent."""
    begin()
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            told = heard(dist.all_reduce, np.zeros(1))[0]
            dist.destroy_process_group()
            os.write(write, told.encode())
        finally:
            os._exit(0)
    os.close(write)
    said = os.read(read, 100).decode()
    os.close(read)
    os.waitpid(child, 0)
    array = np.ones(1)
    dist.all_reduce(array)
    assert current().watcher is not None
    dist.destroy_process_group()
    return [said, str(array[0])]
