"""Ranks that end right after a collective, again and again: forked from one process, as starting Python takes long."""

from __future__ import annotations

import os
import sys
import traceback
from pathlib import Path

import numpy as np

import rankwise as dist
import rankwise_launch.ready  # so that not each child imports it

TURNS, SIZE = 18, 3
assert rankwise_launch.ready
#: So many turns are made at a time: ranks wait for each other, and compute little.
AT_ONCE = 3
OPS = ("barrier", "all_reduce", "broadcast")


def _call(op: str, rank: int, turn: int) -> None:
    array = np.full((10, 300_000)[turn // 9 % 2], rank + 1.0)
    if op == "barrier":
        dist.barrier()
    elif op == "all_reduce":
        dist.all_reduce(array)
        assert (array == 6.0).all()
    else:
        dist.broadcast(array, 1)
        assert (array == 2.0).all()


def one_rank(meet_at: str, rank: int, turn: int) -> None:
    dist.init_process_group("gloo", init_method=meet_at, rank=rank, world_size=SIZE, timeout=20)
    dist.barrier()
    _call(OPS[turn % 3], rank, turn)


def main(how: str, folder: str) -> None:
    """Print how many ranks could not complete a call that another had completed."""
    failed = 0
    for first in range(0, TURNS, AT_ONCE):
        children = []
        for turn in range(first, first + AT_ONCE):
            for rank in range(SIZE):
                child = os.fork()
                if not child:
                    _as_child(Path(folder) / str(turn), rank, turn, how)
                    return  # falls off the end
                children.append(child)
        failed += sum(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) != 0 for child in children)
    print(failed)


def _as_child(meet_at: Path, rank: int, turn: int, how: str) -> None:
    ends = turn // 3 % SIZE
    try:
        one_rank(f"file://{meet_at}", rank, turn)
    except BaseException:
        traceback.print_exc()
        sys.stderr.flush()
        os._exit(1)
    if how == "at once" or rank != ends:
        os._exit(0)


if __name__ == "__main__":
    main(*sys.argv[1:])
