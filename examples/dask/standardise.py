"""Columns of a Dask array with mean 0 and deviation 1: by ranks that exchange sums, and by dask.array's own means.

    python examples/dask/standardise.py

The ranks compute on the chunks where these lie; all that moves is three rows of numbers. Prints how far the two differ.
"""

import dask.array as da
import numpy as np
from distributed import Client

import rankwise as dist
import rankwise_dask


def standardised(group, chunks):
    """Be one rank: return the chunks with the mean of all ranks' columns taken away, in units of their deviation."""
    sums = sum(chunk.sum(axis=0) for chunk in chunks)
    squares = sum((chunk**2).sum(axis=0) for chunk in chunks)
    moments = np.stack([np.full_like(sums, sum(len(chunk) for chunk in chunks)), sums, squares])
    dist.all_reduce(moments, group=group)
    count, sums, squares = moments
    mean = sums / count
    deviation = np.sqrt(squares / count - mean**2)
    return [(chunk - mean) / deviation for chunk in chunks]


def main():
    """Run both, and compare."""
    with Client(n_workers=2, threads_per_worker=1, dashboard_address=":0") as client:
        numbers = client.persist(da.random.default_rng(7).normal(5, 3, size=(4000, 8), chunks=(1000, 8)))
        ours = rankwise_dask.map_ranks(standardised, numbers)
        theirs = (numbers - numbers.mean(axis=0)) / numbers.std(axis=0)
        apart = float(abs(ours - theirs).max().compute())
        assert apart < 1e-9, apart
        print(f"{ours.shape[0]} rows on {len(client.nthreads())} workers: the two differ by less than 1e-9")


if __name__ == "__main__":
    main()
