"""Arrays that lie in other memory orders than C's, the same on all ranks or not, synchronously and not."""

from __future__ import annotations

import numpy as np

import rankwise as dist

dist.init_process_group("mpi", timeout=20)
rank, size = dist.get_rank(), dist.get_world_size()


def content(of: int) -> np.ndarray:
    return np.arange(96 * 200.0).reshape(96, 200) + of


total = np.sum([content(each) for each in range(size)], axis=0)
for orders in ("FFF", "CFF", "FCC", "CCC"):
    for terms in ({}, {"async_op": True}, {"timeout": 10}):
        for name, want in (("all_reduce", total), ("broadcast", content(1)), ("reduce", total)):
            array = np.array(content(rank), order=orders[rank])  # type: ignore[call-overload]
            work = getattr(dist, name)(array, *(() if name == "all_reduce" else (1,)), **terms)
            if work is not None:
                work.wait()
            assert np.array_equal(array, content(rank) if name == "reduce" and rank != 1 else want), (orders, name)
dist.destroy_process_group()
print("fine", flush=True)
