"""Calls between hosts whose data goes along with the comparison are prepared once, up to the longest of them."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import pytest
from tests.python_calls import called

import rankwise as dist
from rankwise_gloo_tcp.collectives.opening import SMALL_NBYTES, inline_nbytes
from rankwise_testing import run_ranks

TCP = {"RANKWISE_GLOO_TRANSPORT": "tcp"}
TIMEOUT_S = 60.0
#: The lengths where a message is small, goes along, and does not, and those beside them.
LENGTHS = [4, SMALL_NBYTES - 8, SMALL_NBYTES, SMALL_NBYTES + 8, 32 << 10, inline_nbytes(2), inline_nbytes(2) + 8]


def names(call: Callable[[], Any]) -> set[str]:
    """Return the names of the Python functions that a call calls."""
    return {frame.f_code.co_name for frame in called(call)}


def prepare_once() -> None:
    dist.init_process_group("gloo")
    assert "new_kind" in names(partial(dist.all_reduce, np.zeros(3)))
    for nbytes in LENGTHS[:-1]:
        array = np.zeros(nbytes // 4, np.float32)
        outs = [np.empty_like(array) for _ in range(2)]
        calls: list[Callable[[], object]] = [
            partial(dist.all_reduce, array),
            partial(dist.broadcast, array, 1),
            partial(dist.all_gather, outs, array),
        ]
        for call in calls:
            call()
            assert "new_kind" not in names(call)
    dist.destroy_process_group()


def reduce_and_spread() -> None:
    dist.init_process_group("gloo")
    rank, size = dist.get_rank(), dist.get_world_size()
    for nbytes in LENGTHS:
        for turn in range(3):
            array = np.arange(nbytes // 4, dtype=np.int32) + rank + turn
            dist.all_reduce(array)
            assert (array == size * (np.arange(nbytes // 4) + turn) + sum(range(size))).all()
            array[:] = rank * 7 + turn
            dist.broadcast(array, turn % size)
            assert (array == turn % size * 7 + turn).all()
            outs = [np.empty((2, nbytes // 4), np.int32)[turn % 2] for _ in range(size)]
            dist.all_gather(outs, np.full(nbytes // 4, 10 * rank + turn, np.int32))
            assert all((out == 10 * peer + turn).all() for peer, out in enumerate(outs))
            array[:] = rank + turn
            outs[rank] = array  # as a program may have it that lets its own part lie where all are gathered
            dist.all_gather(outs, array)
            assert all((out == peer + turn).all() for peer, out in enumerate(outs))
    uneven = [np.empty(1 + peer) for peer in range(size)]  # which is not prepared
    dist.all_gather(uneven, np.full(1 + rank, float(rank)))
    assert all((out == peer).all() for peer, out in enumerate(uneven))
    longer = np.zeros(1000 + rank % 2)  # as the other ranks do not expect it
    with pytest.raises(dist.CollectiveMismatchError):
        dist.all_gather([np.empty_like(longer) for _ in range(size)], longer)
    with pytest.raises(dist.CollectiveMismatchError):
        dist.all_reduce(np.zeros(8000 + rank % 2, np.float32))
    dist.destroy_process_group()


def test_a_kind_of_call_is_prepared_once() -> None:
    # Compiled code has plans of its own, which test_counted.py is about.
    run_ranks(prepare_once, 2, env={**TCP, "RANKWISE_NATIVE": "off"}, timeout=TIMEOUT_S)


@pytest.mark.parametrize("size", [2, 3])
@pytest.mark.parametrize("native", ["on", "off"])
def test_results_are_right_at_every_threshold(size: int, native: str) -> None:
    run_ranks(reduce_and_spread, size, env={**TCP, "RANKWISE_NATIVE": native}, timeout=TIMEOUT_S)
