"""Beginnings that time out do so at their time-outs, and those that are tried again succeed, at every thread level."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable

import numpy as np
from mpi4py import MPI

import rankwise as dist

TIMEOUT_S = 1.0


def late(call: Callable[..., object], *args: object, **terms: object) -> str:
    """Make a call that must time out, when its time is up or before, and return what it says."""
    began, said = time.monotonic(), ""
    try:
        call(*args, **terms)
    except dist.DistTimeoutError as error:
        said = str(error)
    took_s = time.monotonic() - began
    assert said, "no DistTimeoutError"
    assert took_s < TIMEOUT_S + 3.0, f"{took_s:.1f} s: {said}"
    return said


def works(group: object = None) -> None:
    array = np.ones(3)
    dist.all_reduce(array, group=group)  # type: ignore[arg-type]
    assert array[0] == dist.get_world_size(group)  # type: ignore[arg-type]


def worlds(rank: int) -> None:
    """The first world: some ranks give up before the others come."""
    for late_one in (0, 1):
        if rank == late_one:
            MPI.COMM_WORLD.recv(source=1 - late_one)
        elif rank == 1 - late_one:
            for _ in range(2):
                late(dist.init_process_group, "mpi", timeout=TIMEOUT_S)
            MPI.COMM_WORLD.send("", dest=late_one)
        dist.init_process_group("mpi", timeout=30)
        works()
        dist.destroy_process_group()


def parts(rank: int) -> None:
    """A group of some: those that come first give up, then those that come late, and then all come."""
    dist.init_process_group("mpi", timeout=30)
    if rank < 2:
        for late_one in (0, 1):
            for turn in (1 - late_one, late_one):
                if rank == turn:
                    said = late(dist.new_group, [0, 1], timeout=TIMEOUT_S, use_local_synchronization=True)
                    assert turn == late_one or f" rank {late_one} " in said, said
                dist.recv(np.zeros(1), 1 - rank) if rank != turn else dist.send(np.zeros(1), 1 - rank)
            group = dist.new_group([0, 1], timeout=30, use_local_synchronization=True)
            works(group)
    works()
    dist.destroy_process_group()


if __name__ == "__main__":
    {"worlds": worlds, "parts": parts}[sys.argv[1]](MPI.COMM_WORLD.rank)
    print("fine", flush=True)
