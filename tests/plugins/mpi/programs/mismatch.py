"""With RANKWISE_DEBUG=detail, ranks that disagree all get one error that names the odd one; then they go on."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

import rankwise as dist
from rankwise import ReduceOp

dist.init_process_group("mpi", timeout=20)
rank, size = dist.get_rank(), dist.get_world_size()
odd = rank == 1

CALLS: list[Callable[[], object]] = [
    lambda: dist.all_reduce(np.ones(5 if odd else 4)),
    lambda: dist.all_reduce(np.ones(4, np.float32 if odd else np.float64)),
    lambda: dist.all_reduce(np.ones(4), ReduceOp.MAX if odd else ReduceOp.SUM),
    lambda: dist.broadcast(np.ones(4), 1 if odd else 0),
    lambda: dist.broadcast(np.ones(4), 0) if odd else dist.all_reduce(np.ones(4)),
    lambda: dist.barrier() if odd else dist.all_reduce(np.ones(100_000)),
    lambda: dist.all_reduce(np.ones(5 if odd else 4), async_op=True).wait(),  # type: ignore[union-attr]
]
for call in CALLS:
    with pytest.raises(dist.CollectiveMismatchError) as caught:
        call()
    assert caught.value.odd_ranks == (1,), caught.value
    array = np.ones(3)
    dist.all_reduce(array)
    assert (array == size).all()
work = dist.all_reduce(array, async_op=True)
dist.all_reduce(np.ones(2))
assert work is not None
work.wait()
dist.destroy_process_group()
print("fine", flush=True)
