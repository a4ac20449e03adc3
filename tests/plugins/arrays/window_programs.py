"""What ranks run through windows: arrays that are large enough for one, of several pieces or shapes."""

from __future__ import annotations

from itertools import accumulate
from typing import Any

import numpy as np

import rankwise as dist
from rankwise_arrays.windows import HALF_NBYTES, window_of


def has_window() -> bool:
    """Tell whether the default group has a window."""
    return window_of(None) is not None


def large_scans() -> None:
    """Scan arrays of several pieces, whose parts are not all of one length, beside NumPy."""
    me, size = dist.get_rank(), dist.get_world_size()
    for dtype, op, combine in (("int64", "SUM", np.add), ("float32", "MIN", np.minimum), ("float16", "SUM", np.add)):
        count = 2 * HALF_NBYTES // np.dtype(dtype).itemsize + 7
        arrays = [np.random.default_rng(rank).integers(0, 9, (1, count)).astype(dtype) for rank in range(size)]
        before, meant = arrays[me].copy(), [*accumulate(arrays, combine)]
        np.testing.assert_array_equal(dist.functional.scan(arrays[me], dist.ReduceOp(op)), meant[me])
        np.testing.assert_array_equal(dist.functional.exscan(arrays[me], dist.ReduceOp(op)), [before, *meant][me])
        np.testing.assert_array_equal(arrays[me], before)


def large_transposes() -> None:
    """Transpose matrices of several pieces: by rows as they are shared, by others, and with gaps between rows."""
    me, size = dist.get_rank(), dist.get_world_size()
    for shape, dtype in (((901, 517), "float64"), ((40, 3001, 3), "int32"), ((5, 70_000), "float64")):
        whole = np.arange(np.prod(shape)).astype(dtype).reshape(shape)
        meant = np.array_split(whole.swapaxes(0, 1), size)[me]
        np.testing.assert_array_equal(dist.functional.transpose(np.array_split(whole, size)[me]), meant)
        np.testing.assert_array_equal(
            dist.functional.transpose(np.repeat(whole, 2, 0)[::2] if me == 0 else whole[:0]), meant
        )


def halos_of_several_shapes() -> None:
    """Exchange halos of ranks whose arrays have different lengths, small ones and such as no half has room for."""
    me, size = dist.get_rank(), dist.get_world_size()
    grid = dist.grid([size], periodic=True)
    for columns in (3, HALF_NBYTES // 8 + 1, 4, 3):
        rows = 3 + me
        mine = np.zeros((rows, columns))
        mine[1:-1] = np.arange(100 * me, 100 * me + rows - 2)[:, None]
        grid.exchange_halos(mine)
        before, after = (me - 1) % size, (me + 1) % size
        assert (mine[0] == 100 * before + before).all()
        assert (mine[-1] == 100 * after).all()


def differing_halos() -> list[str]:
    """Return what this rank hears where one rank exchanges, transposes and scans something else."""
    me, told = dist.get_rank(), []
    dtype = "float32" if me == 1 else "int32"
    calls: list[Any] = [
        lambda: dist.grid([dist.get_world_size()]).exchange_halos(np.zeros(4, dtype)),
        lambda: dist.functional.transpose(np.zeros((300, 400), dtype)),
        lambda: dist.functional.scan(np.zeros(100_000, dtype), dist.ReduceOp.SUM),
    ]
    for call in calls:
        try:
            call()
        except dist.CollectiveMismatchError as error:
            told.append(str(error))
    return told
