"""A receive from anyone takes what older receives have no claim to, and leaves them the rest."""

from __future__ import annotations

import numpy as np

import rankwise as dist

dist.init_process_group("mpi", timeout=20)
rank = dist.get_rank()
for count in (1, 50_000):
    if rank == 0:
        first, second, third = np.zeros(count), np.zeros(count), np.zeros(count)
        works = [dist.irecv(first, 1, tag=5), dist.irecv(second, tag=5), dist.irecv(third, 1, tag=5)]
        for work in works:
            assert work is not None
        # Rank 1 sends only once this has come: it must not wait for the older receive.
        assert works[1].wait()
        assert works[1].source_rank() == 2
        dist.send(np.ones(1), 1)
        while not works[2].is_completed():
            pass
        works[0].wait()
        assert [first[0], second[0], third[0]] == [1, 2, 3]
    elif rank == 1:
        dist.recv(np.ones(1), 0)
        dist.send(np.full(count, 1.0), 0, tag=5)
        dist.send(np.full(count, 3.0), 0, tag=5)
    else:
        dist.send(np.full(count, 2.0), 0, tag=5)
dist.destroy_process_group()
print("fine", flush=True)
