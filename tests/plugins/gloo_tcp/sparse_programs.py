"""What the ranks of the tests of sparse arrays run."""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.sparse
from failing import error_of
from programs import begin, end

import rankwise as dist


def share(rank: int, shape: tuple[int, int], dtype: Any, density: float) -> Any:
    """Return a rank's dense contribution: mostly zeros, and of the same values on every machine."""
    random = np.random.default_rng(rank)
    dense = random.integers(1, 9, shape).astype(dtype)
    if np.dtype(dtype).kind == "c":
        dense = dense * (1 + 2j)
    return np.where(random.random(shape) < density, dense, np.zeros((), dtype)).astype(dtype)


def summed(form: str, shape: tuple[int, int], dtype: str, density: float, async_op: bool) -> None:
    """Sum one sparse array of each rank, in place and of the same format."""
    rank, size = begin()
    make = getattr(scipy.sparse, form)
    array = make(share(rank, shape, dtype, density * (rank + 1)))
    before = type(array)
    work = dist.all_reduce(array, async_op=async_op)
    if async_op:
        assert work is not None
        assert work.result() is array
    wanted = sum((share(peer, shape, dtype, density * (peer + 1)) for peer in range(size)), np.zeros(shape, dtype))
    assert type(array) is before
    assert array.dtype == np.dtype(dtype)
    assert array.shape == shape
    assert np.array_equal(array.toarray(), wanted.astype(dtype))
    # It is as sound as scipy's own.
    assert np.array_equal((array + make(np.eye(*shape, dtype=dtype))).toarray(), wanted + np.eye(*shape, dtype=dtype))
    end()


def formats_differ() -> None:
    """Give each rank a format of its own."""
    rank, size = begin()
    form = ("csr_array", "csc_array", "coo_array")[rank % 3]
    array = getattr(scipy.sparse, form)(share(rank, (7, 5), "f8", 0.4))
    dist.all_reduce(array)
    assert type(array).__name__ == form
    assert np.array_equal(array.toarray(), sum(share(peer, (7, 5), "f8", 0.4) for peer in range(size)))
    end()


def odd_structures() -> tuple[list[float], list[int]]:
    """Sum arrays with repeated places, unsorted ones, stored zeros, and room to spare; return the content."""
    rank, _ = begin()
    if rank == 0:  # twice the same place
        array = scipy.sparse.coo_array(([1.0, 2.0, 5.0], ([2, 2, 0], [1, 1, 0])), shape=(3, 4))
    elif rank == 1:  # unsorted, and longer than it says
        indptr, indices, data = [0, 0, 0, 2], [3, 1, 9, 9], [10.0, 20.0, np.nan, np.nan]
        array = scipy.sparse.csr_array((3, 4))
        array.indptr, array.indices, array.data = np.array(indptr), np.array(indices), np.array(data)
    else:  # what cancels the 5
        array = scipy.sparse.csc_array(([-5.0, 0.0], ([0, 1], [0, 2])), shape=(3, 4))
    dist.all_reduce(array)
    rows = array.tocoo() if array.format != "coo" else array
    order = np.lexsort((rows.col, rows.row))
    values, places = rows.data[order].tolist(), (rows.row * 4 + rows.col)[order].tolist()
    end()
    return values, places


def bits(count: int) -> list[bytes]:
    """Return the bytes of two sums of the same numbers, whose order matters."""
    rank, _ = begin()
    results = []
    for _ in range(2):
        random = np.random.default_rng(rank)
        array = scipy.sparse.random_array((40, 40), density=0.5, dtype=np.float32, rng=random, format="csr")
        array.data[:count] *= 1e6
        dist.all_reduce(array)
        results.append(array.toarray().tobytes())
    end()
    return results


def wide_indices() -> str:
    """Sum arrays of so many places that 32 bits do not number them."""
    rank, size = begin()
    shape = (3_000_000_000, 2_000_000_000)
    array = scipy.sparse.coo_array(([1.0 + rank], ([2_999_999_999], [rank])), shape=shape)
    dist.all_reduce(array)
    assert array.nnz == size
    assert array.data.tolist() == [1.0 + peer for peer in range(size)]
    try:
        dist.all_reduce(scipy.sparse.coo_array((2**40, 2**40)))
    except ValueError as error:
        return str(error)
    finally:
        end()
    return "no error"


def mistakes(what: str) -> str:
    """Make a call that does not fit those of the others, and go on; return the error."""
    rank, size = begin()
    array: Any = scipy.sparse.csr_array(np.eye(3, dtype=np.float32))
    if rank == 1:
        array = {
            "shape": lambda: scipy.sparse.csr_array(np.eye(3, 4, dtype=np.float32)),
            "dtype": lambda: array.astype(np.float64),
            "dense": lambda: array.toarray(),
        }[what]()
    said = str(error_of(lambda: dist.all_reduce(array)))
    array = scipy.sparse.csr_array(np.eye(3))
    dist.all_reduce(array)
    assert array.toarray().tolist() == (size * np.eye(3)).tolist()
    end()
    return said


def refusals() -> list[str]:
    """Make every call that sparse arrays are not for, and return what each was told."""
    rank, size = begin()
    array = scipy.sparse.csr_array(np.eye(3))
    parts = [array] * size
    calls = [
        lambda: dist.broadcast(array, 0),
        lambda: dist.reduce(array, 0),
        lambda: dist.all_gather(parts, array),
        lambda: dist.gather(array, parts if rank == 0 else None),
        lambda: dist.scatter(array, parts if rank == 0 else None),
        lambda: dist.reduce_scatter(array, parts),
        lambda: dist.all_to_all(parts, parts),
        lambda: dist.send(array, 1 - min(rank, 1)),
        lambda: dist.recv(array),
        lambda: dist.all_reduce_multigpu([array]),
        lambda: dist.all_reduce(array, dist.ReduceOp.MAX),
    ]
    said = [str(error_of(call)) for call in calls]
    dist.barrier()
    end()
    return said
