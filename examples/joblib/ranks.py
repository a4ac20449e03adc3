"""Tasks of joblib that talk to each other: each of its worker processes becomes a rank.

    python examples/joblib/ranks.py

All ranks have to run at once, so there are as many workers as ranks, and none gets two tasks in one batch.
"""

import numpy as np
from joblib import Parallel, delayed

import rankwise as dist

SIZE = 3


def rank_main(rank, size, port, secret):
    """Be one rank: sum an array over all of them."""
    store = dist.TCPStore("127.0.0.1", port, secret=secret)
    group = dist.ProcessGroup.create(store=store, rank=rank, size=size, name="sum", backend="gloo", timeout=60)
    array = np.full(4, rank + 1.0)
    dist.all_reduce(array, group=group)
    dist.destroy_process_group(group)
    store.close()
    return array


def main():
    """Serve the store where the ranks meet, and start them."""
    secret = dist.secret.new()
    store = dist.TCPStore("127.0.0.1", is_master=True, wait_for_workers=False, secret=secret)
    with Parallel(n_jobs=SIZE, batch_size=1, pre_dispatch="all") as parallel:
        sums = parallel(delayed(rank_main)(rank, SIZE, store.port, secret) for rank in range(SIZE))
    store.close()
    assert all((array == SIZE * (SIZE + 1) / 2).all() for array in sums)
    print(f"{len(sums)} ranks have {sums[0].tolist()}")


if __name__ == "__main__":
    main()
