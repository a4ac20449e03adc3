"""Sparse arrays of scipy: all_reduce with SUM takes them, and nothing else does."""

from __future__ import annotations

import numpy as np
import pytest

pytest.importorskip("scipy", reason="sparse arrays are scipy's: pip install 'rankwise-gloo-tcp[sparse]'")

import scipy.sparse
import sparse_programs as programs

import rankwise as dist
from rankwise.backends import COLLECTIVES, IN_THREADS, BackendSpec, Capabilities, Device, derived, native
from rankwise.backends.registry import registry
from rankwise.errors import UnsupportedOperationError
from rankwise_local import LocalCommunicator, local_world
from rankwise_testing import RankPool

FORMATS = ["csr_array", "csc_array", "coo_array", "csr_matrix", "csc_matrix", "coo_matrix"]


@pytest.mark.parametrize("form", FORMATS)
@pytest.mark.parametrize("density", [0.0, 0.1, 0.3])
def test_the_sum_takes_the_place_of_each_ranks_array(pool: RankPool, form: str, density: float) -> None:
    pool.run(programs.summed, form, (13, 29), "float32", density, False)


@pytest.mark.parametrize("dtype", ["bool", "int8", "uint16", "int64", "float32", "float64", "complex64", "complex128"])
def test_each_dtype(pool: RankPool, dtype: str) -> None:
    pool.run(programs.summed, "csr_array", (6, 8), dtype, 0.3, True)


@pytest.mark.parametrize("shape", [(1, 1), (0, 5), (5, 0), (1, 1000), (1000, 1), (300, 400)])
@pytest.mark.parametrize("form", FORMATS[:3])
def test_each_shape(pool: RankPool, form: str, shape: tuple[int, int]) -> None:
    pool.run(programs.summed, form, shape, "float64", 0.2, False)


def test_each_rank_keeps_its_own_format(pool: RankPool) -> None:
    pool.run(programs.formats_differ)


def test_repeated_places_and_unsorted_ones_are_put_in_order_and_zeros_stay(pool: RankPool) -> None:
    wanted = ([0.0, 0.0, 23.0, 10.0], [0, 6, 9, 11])
    assert pool.run(programs.odd_structures) == [wanted] * 3


def test_all_ranks_have_the_same_bits_every_time(pool: RankPool) -> None:
    results = pool.run(programs.bits, 100)
    assert len({bits for both in results for bits in both}) == 1


def test_places_beyond_32_bits_are_numbered_and_those_beyond_64_are_refused(pool: RankPool) -> None:
    for text in pool.run(programs.wide_indices):
        assert "has more places than 64 bits count" in text


@pytest.mark.parametrize(("what", "words"), [("shape", "(3, 4)"), ("dtype", "float64 sparse"), ("dense", "sparse")])
def test_ranks_that_disagree_all_get_the_same_error_and_the_group_lives(pool: RankPool, what: str, words: str) -> None:
    first, *others = pool.run(programs.mistakes, what)
    assert others == [first, first]
    assert words in first
    assert "rank 1 called all_reduce(SUM" in first


def test_every_other_call_refuses(pool: RankPool) -> None:
    for said in pool.run(programs.refusals):
        assert len(said) == 11
        assert all("is a sparse array" in text for text in said)
        assert "reduced with SUM alone" in said[-1]


def test_formats_that_do_not_store_elements_one_by_one_are_refused() -> None:
    with local_world(1) as world:
        for form in ("lil", "dok", "bsr", "dia"):
            array = scipy.sparse.csr_array(np.eye(4)).asformat(form)
            with pytest.raises(ValueError, match=rf"format '{form}'.*\.tocsr\(\)"):
                world.run(dist.all_reduce, array)


def test_a_backend_without_the_feature_refuses_and_names_one_that_has_it() -> None:
    plain = Device({**native("send", "recv"), **derived(*COLLECTIVES)}, {**native("tags"), **derived("mismatch")})
    table = Capabilities("without", {"cpu": plain})
    registry.register(BackendSpec("without", 1, table, LocalCommunicator, launch=IN_THREADS), replace=True)

    def body() -> None:
        with pytest.raises(UnsupportedOperationError, match=r"'without'.*'sparse'.*gloo"):
            dist.all_reduce(scipy.sparse.csr_array(np.eye(3)))

    with local_world(2, backend="without") as world:
        world.run(body)


def test_the_table_has_it() -> None:
    assert dist.supports("sparse", "cpu", backend="gloo")
    assert not dist.supports("sparse", "cuda", backend="gloo")
