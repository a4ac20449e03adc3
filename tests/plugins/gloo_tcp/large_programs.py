"""What ranks do in `test_large_groups.py`: a few that take their group for a large one."""

from __future__ import annotations

import os
import signal
import time

import numpy as np
from failing import Heard, heard
from programs import wait_for
from watched_programs import begin

import rankwise as dist
from rankwise_gloo_tcp import communicator
from rankwise_gloo_tcp.setup import joining_board
from rankwise_watch import watcher


def begin_large(behind: int) -> int:
    """Join the world as one of so many ranks that nobody looks after all others, but only after the next few."""
    communicator.MAX_RANKS = joining_board.MAX_RANKS = watcher._ALL_WATCHED = 2
    communicator._BEHIND = watcher._OBSERVED = behind
    return begin()


def death_at_the_board(doomed: int, behind: int) -> Heard | None:
    """Let a rank die while all others wait for it in a barrier."""
    if begin_large(behind) == doomed:
        time.sleep(0.3)
        os.kill(os.getpid(), signal.SIGKILL)
    told = heard(dist.barrier)
    dist.destroy_process_group()
    return told


def death_before_a_message(doomed: int) -> Heard | None:
    """Let a rank die from which another waits for a message."""
    rank = begin_large(1)
    if rank == doomed:
        time.sleep(0.3)
        os.kill(os.getpid(), signal.SIGKILL)
    told = heard(dist.recv, np.zeros(1), doomed)
    dist.destroy_process_group()
    return told


def leaving_early() -> Heard | None:
    """Let rank 3 leave in good order, for which the others wait."""
    rank = begin_large(1)
    if rank == 3:
        dist.destroy_process_group()
        return None
    told = heard(dist.barrier)
    dist.destroy_process_group()
    return told


def everything() -> list[float]:
    """Call some collectives and exchange messages between all pairs."""
    rank, size = begin_large(1), dist.get_world_size()
    array = np.full(1 << 18, rank + 1.0)
    dist.all_reduce(array)
    parts = [np.zeros(3) for _ in range(size)]
    dist.all_gather(parts, np.full(3, float(rank)))
    works = [dist.isend(np.full(5, float(rank)), peer) for peer in range(size) if peer != rank]
    heard_of = []
    for peer in range(size):
        if peer != rank:
            room = np.zeros(5)
            dist.recv(room, peer)
            heard_of.append(room[0])
    wait_for(works)
    dist.destroy_process_group()
    return [array[0], *(part[0] for part in parts), *heard_of]
