"""Programs that make errors of warnings and of what NumPy warns of: none may come from inside an operation."""

import warnings

import numpy as np
import pytest
from tests.threads import on_ranks

import rankwise as dist
from rankwise import ReduceOp
from rankwise.basics.reduce_op import REDUCE_OPS
from rankwise_local import local_world

DTYPES = ["f2", "f4", "f8", "c8", "i1", "u8", "m8[s]", ">f4"]
DEFINED = [(name, dtype) for name in REDUCE_OPS for dtype in DTYPES if ReduceOp(name).defined_for(np.dtype(dtype))]


def extremes(dtype):
    """Return numbers of which sums, products and scalings overflow, or are not defined."""
    dtype = np.dtype(dtype)
    if dtype.kind == "m":
        return np.array(["NaT", 2**62, -(2**62)], dtype)
    if dtype.kind in "iu":
        return np.array([np.iinfo(dtype).max, np.iinfo(dtype).min, 3], dtype)
    largest = np.finfo(dtype).max
    return np.array([largest, -largest, np.inf, -np.inf, np.nan, np.finfo(dtype).tiny], dtype)


def reduce_op(name):
    if name == "PREMUL_SUM":
        return ReduceOp.PREMUL_SUM(1e300 if dist.get_rank() else -np.inf)
    return getattr(ReduceOp, name)


@pytest.mark.parametrize("size", [2, 5])
@pytest.mark.parametrize(("name", "dtype"), DEFINED)
def test_no_rank_alone_fails_over_a_number(size, name, dtype):
    def program():
        with np.errstate(all="raise"):
            op, ends = reduce_op(name), []
            for call in (dist.all_reduce, lambda a, op: dist.reduce(a, 1, op)):
                array = extremes(dtype)
                call(array, op)
                ends.append(array.tobytes())
            out = extremes(dtype)
            dist.reduce_scatter(out, [extremes(dtype)] * size, op)
            dist.barrier()
            return ends[0], out.tobytes()

    with local_world(size) as ranks, warnings.catch_warnings():
        warnings.simplefilter("error")
        assert len(set(ranks.run(program))) == 1


@pytest.mark.parametrize("dtype", ["f2", "f4", "f8", "c8"])
@on_ranks(2)
def test_a_factor_that_no_float_holds_is_refused_before_anything_is_sent(dtype):
    array = np.ones(3, dtype)
    if dist.get_rank() == 0:
        with pytest.raises(ValueError, match=r"all_reduce on rank 0: op: the factor is too large for "):
            dist.all_reduce(array, ReduceOp.PREMUL_SUM(10**400))
    dist.all_reduce(array, ReduceOp.PREMUL_SUM(2))
    assert array[0] == 4


@pytest.mark.parametrize("factor", ["2", None, np.timedelta64(2, "s"), 2j])
@on_ranks(1)
def test_what_is_no_factor_is_refused(factor):
    op = ReduceOp("PREMUL_SUM") if factor is None else ReduceOp.PREMUL_SUM(factor)
    with pytest.raises(TypeError, match="factor"):
        dist.all_reduce(np.ones(3), op)
