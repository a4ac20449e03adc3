"""Two ranks over gloo, by TCP."""

import platform

import numpy as np

import rankwise as dist

dist.init_process_group("gloo", timeout=20)
rank = dist.get_rank()
array = np.full(1 << 18, rank + 1.0)
dist.all_reduce(array)
assert set(array) == {3.0}

small, large = np.zeros(5), np.zeros(300_000)
if rank == 0:
    dist.send(np.arange(5.0), 1)
    assert dist.recv(large) == 1
    assert large.sum() == large.size
else:
    dist.recv(small, 0)
    assert small.tolist() == [0, 1, 2, 3, 4]
    dist.send(large + 1, 0)

works = [dist.all_reduce(np.ones(10), async_op=True) for _ in range(5)]
assert [work.wait() for work in works] == [True] * 5
objects = [None, None]
dist.all_gather_object(objects, {"rank": rank})
assert objects == [{"rank": 0}, {"rank": 1}]
dist.barrier()
dist.destroy_process_group()
print(f"rank {rank} on {platform.system()}")
