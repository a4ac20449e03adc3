"""What the tests that need one process, or two, run there."""

from __future__ import annotations

import os
import threading
from typing import Any

import numpy as np

import rankwise as dist
from rankwise_elastic.membership import leave


def begin() -> None:
    dist.init_process_group("gloo", enable_reconfigure=True, timeout=60)


def usage() -> tuple[int, list[str]]:
    """Return how many descriptors and threads this process has, but for those that wait a moment for more to do."""
    threads = [thread.name for thread in threading.enumerate() if thread.name != "rankwise meeting"]
    return len(os.listdir("/proc/self/fd")), sorted(threads)


def regroups(times: int) -> list[tuple[int, list[str]]]:
    """Return what this process has after some epochs and after many, each the least of a few."""
    begin()
    early, late = [], []
    for number in range(times):
        assert dist.elastic.regroup().size == 2
        array = np.ones(1000)
        dist.all_reduce(array)
        assert (array == 2).all()
        if 5 <= number < 10:
            early.append(usage())
        elif number >= times - 5:
            late.append(usage())
    dist.destroy_process_group()
    return [min(early), min(late)]


def remade() -> dict[str, Any]:
    """Return what becomes of a subgroup in the next epoch."""
    begin()
    dist.elastic.regroup()
    trio = dist.new_group([1, 2, 0], sort_ranks=False, group_desc="trio")
    array = np.ones(1)
    dist.all_reduce(array, group=trio)
    rank = dist.get_rank()
    if rank == 2:  # rank 0 serves the store
        leave()  # as after a notice; the process goes on by itself
        dist.destroy_process_group()
        return {}
    epoch = dist.elastic.regroup()
    try:
        dist.all_reduce(array, group=trio)
    except ValueError as error:
        said = str(error)
    again = dist.elastic.remake(trio)
    both = np.array([10.0**rank])
    dist.all_reduce(both, group=again)
    ranks = dist.get_process_group_ranks(again)
    dist.destroy_process_group()
    return {"epoch": epoch.size, "said": said, "sum": both[0], "ranks": ranks, "name": again.group_desc}


def states() -> list[Any]:
    """Return what a state of odd values is after a restore, and after it was synchronised."""
    begin()
    dist.elastic.regroup()
    rank = dist.get_rank()
    state = dist.elastic.State(
        turned=np.asfortranarray(np.full((3, 4), float(rank))),
        dates=np.array(["2026-01-01"], "M8[D]"),
        empty=np.zeros(0),
    )
    turned = state.turned
    state.words = {"rank": rank}
    state.sync()
    assert state.turned is turned or rank > 0
    assert (state.turned == 0).all(), "rank 0's count where nobody has committed anything"
    assert state.words == {"rank": 0}
    state.turned[...] = 7
    state.later = 1
    state.commit()
    state.turned[...] = 8
    state.words = None
    state.even_later = 2
    state.restore()
    assert (state.turned == 7).all()
    assert state.words == {"rank": 0}
    assert sorted(state) == ["dates", "empty", "later", "turned", "words"]
    assert state.commits == 1
    dist.destroy_process_group()
    return sorted(state)
