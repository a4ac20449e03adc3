"""Calls on more elements than one call of MPI takes, with the limit set to something that a test can afford."""

from __future__ import annotations

from typing import Any

import numpy as np

import rankwise as dist
from rankwise import ReduceOp
from rankwise_mpi.group import endpoint
from rankwise_mpi.library import counts

LIMIT = 1000
endpoint.largest_count = lambda: LIMIT  # type: ignore[assignment]
counts._BLOCK = 256

dist.init_process_group("mpi", timeout=30)
rank, size = dist.get_rank(), dist.get_world_size()


def main(async_op: bool) -> None:
    def done(work: Any) -> None:
        if async_op:
            work.wait()

    count = 3 * LIMIT + 17
    mine: Any = np.arange(count, dtype=np.float64) * (rank + 1)
    each = [np.arange(count, dtype=np.float64) * (i + 1) for i in range(size)]

    array = mine.copy()
    done(dist.broadcast(array, 1, async_op=async_op))
    assert (array == each[1]).all()

    array = mine.copy()
    done(dist.all_reduce(array, async_op=async_op))
    assert (array == sum(each)).all()

    array = mine.copy()
    done(dist.reduce(array, 0, ReduceOp.AVG, async_op=async_op))
    assert (array == (sum(each) / size if rank == 0 else mine)).all()

    outs = [np.zeros(count) for _ in range(size)]
    done(dist.all_gather(outs, mine, async_op=async_op))
    assert all((out == want).all() for out, want in zip(outs, each, strict=True))

    flat = np.zeros(count * size)
    done(dist.gather(mine, list(flat.reshape(size, count)) if rank == 0 else None, async_op=async_op))
    assert (flat == (np.concatenate(each) if rank == 0 else 0)).all()

    # Parts that are no neighbours: nothing but their size is common to them.
    apart = [np.zeros(count + 8)[8:] for _ in range(size)] if rank == 0 else None
    done(dist.gather(mine, apart, async_op=async_op))
    assert apart is None or all((out == want).all() for out, want in zip(apart, each, strict=True))

    array = np.zeros(count)
    done(dist.scatter(array, each if rank == 0 else None, async_op=async_op))
    assert (array == each[rank]).all()

    done(dist.all_to_all(outs, [mine + i for i in range(size)], async_op=async_op))
    assert all((out == want + rank).all() for out, want in zip(outs, each, strict=True))

    out = np.zeros(count)
    done(dist.reduce_scatter(out, [mine + i for i in range(size)], async_op=async_op))
    assert (out == sum(each) + size * rank).all()

    right, left = (rank + 1) % size, (rank - 1) % size
    got = np.zeros(count + 5)
    works = [dist.irecv(got, left), dist.isend(mine, right)]
    for work in works:
        assert work is not None
        work.wait()
    assert (got[:count] == each[left]).all()
    assert not got[count:].any()


main(False)
main(True)
dist.destroy_process_group()
print("fine", flush=True)
