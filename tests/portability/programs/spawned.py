"""Two ranks that `spawn` starts."""

import numpy as np

import rankwise as dist


def main(rank):
    dist.init_process_group("gloo", timeout=20)
    array = np.ones(3)
    dist.all_reduce(array)
    assert array.tolist() == [2.0] * 3
    dist.destroy_process_group()


if __name__ == "__main__":
    dist.spawn(main, nprocs=2)
    print("both have ended well")
