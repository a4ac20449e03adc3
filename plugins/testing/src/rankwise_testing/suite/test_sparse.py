"""Sparse arrays of scipy: `all_reduce` sums them, and each rank keeps its own format."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import rankwise as dist
from rankwise.errors import CollectiveMismatchError
from rankwise_testing.suite.expect import error_of, settled, still_usable
from rankwise_testing.suite.plugin import Kit, needs

pytestmark = needs("all_reduce", "sparse")


@pytest.fixture(autouse=True)
def _scipy(kit: Kit) -> None:
    pytest.importorskip("scipy.sparse", reason="sparse arrays are scipy's")
    kit.require("float64", "all_reduce", reduce="SUM")


@pytest.mark.parametrize("size", [1, 2, 3])
def test_arrays_of_any_number_of_elements_are_summed(kit: Kit, size: int) -> None:
    kit.run(size, summed)


def summed() -> None:
    import scipy.sparse

    rank, size = dist.get_rank(), dist.get_world_size()
    for form in ("csr_array", "csc_array", "coo_array"):
        for least in (0, 1, size):  # from nothing on the first rank to nothing on any
            shares = [_share(r, r >= least) for r in range(size)]
            array = getattr(scipy.sparse, form)(shares[rank])
            dist.all_reduce(array)
            assert type(array).__name__ == form
            assert np.array_equal(array.toarray(), sum(shares)), f"{form}: {array}"


def _share(rank: int, is_filled: bool) -> Any:
    places = np.arange(35).reshape(5, 7)
    return np.where(places % (rank + 2) == 0, rank + 1.5, 0.0) * is_filled


@needs("mismatch")
def test_a_sparse_and_a_dense_array_do_not_fit(kit: Kit) -> None:
    kit.run(2, mixed)


def mixed() -> None:
    from scipy.sparse import csr_array

    dense = np.eye(3)
    error_of(CollectiveMismatchError, settled, dist.all_reduce, csr_array(dense) if dist.get_rank() else dense)
    still_usable()
