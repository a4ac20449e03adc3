"""What a reduce op is, apart from the collectives that use it."""

from __future__ import annotations

import copy
import pickle

import ml_dtypes
import numpy as np
import pytest

import rankwise as dist
from rankwise.backends import REDUCE_OPS, accumulation_dtype

#: Those whose narrow floats are added or multiplied in float32, and the sums of what is scaled.
WIDE = {"SUM", "AVG", "PRODUCT", "PREMUL_SUM"}
SCALED = {"AVG", "PREMUL_SUM"}


def made(name: str) -> dist.ReduceOp:
    return dist.ReduceOp(name, 2.0 if name == "PREMUL_SUM" else None)


@pytest.mark.parametrize("name", REDUCE_OPS)
def test_narrow_floats_are_added_and_multiplied_in_float32(name: str) -> None:
    for narrow in (np.float16, ml_dtypes.bfloat16):
        assert accumulation_dtype(name, np.dtype(narrow)) == np.dtype(np.float32 if name in WIDE else narrow)
    for dtype in map(np.dtype, (np.float32, np.float64, np.int8, np.uint64, np.complex64)):
        assert accumulation_dtype(name, dtype) == dtype
        assert made(name).is_plain_on(dtype) == (name != "PREMUL_SUM")


@pytest.mark.parametrize("name", REDUCE_OPS)
def test_what_is_scaled_is_summed(name: str) -> None:
    assert made(name).base == (dist.ReduceOp.SUM if name in SCALED else made(name))
    assert pickle.loads(pickle.dumps(made(name))) == made(name)


@pytest.mark.parametrize("name", REDUCE_OPS - {"PREMUL_SUM"})
def test_there_is_one_object_of_each(name: str) -> None:
    """The compiled parts know ops by their identity; an equal one would be left to Python."""
    only = getattr(dist.ReduceOp, name)
    for other in (made(name), copy.deepcopy(only), pickle.loads(pickle.dumps(only))):
        assert other is only


def test_what_is_no_reduce_op_is_refused() -> None:
    with pytest.raises(ValueError, match=r"no such reduce op: 'MEAN' \(there are SUM, AVG,"):
        dist.ReduceOp("MEAN")
    with pytest.raises(ValueError, match="only PREMUL_SUM has a factor, not SUM"):
        dist.ReduceOp("SUM", 2)
    with pytest.raises(TypeError, match="PREMUL_SUM needs a factor"):
        dist.ReduceOp.PREMUL_SUM(None)
