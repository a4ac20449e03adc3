"""The test that a library's reductions must pass catches what libraries get wrong."""

from __future__ import annotations

import subprocess
import sys

import pytest

PATIENCE_S = 60.0

PREFACE = """
import numpy as np
from mpi4py import MPI
from rankwise_mpi.library.selftest import reduces_as

def lying(dtype, lie):
    def combine(left, right, datatype):
        left, right = np.frombuffer(left, dtype), np.frombuffer(right, dtype)
        with np.errstate(all="ignore"):
            lie(left, right)
    return MPI.Op.Create(combine)

def saturates_in_whole_vectors(left, right):
    exact = left.astype(np.int64) + right
    wrapped = left + right
    whole = len(right) // 16 * 16
    right[:] = wrapped
    right[:whole] = np.clip(exact[:whole], np.iinfo(right.dtype).min, np.iinfo(right.dtype).max)

def multiplies_by_floats(left, right):
    right[:] = (left.astype(np.float64) * right).astype(right.dtype)

def compares_as_signed(left, right):
    right[:] = np.minimum(left.view(np.int64), right.view(np.int64)).view(np.uint64)

def ignores_nan(left, right):
    right[:] = np.fmax(left, right)

def loses_the_last(left, right):
    right[:-1] = (left + right)[:-1]

def loses_signs_of_zeros(left, right):
    right[:] = left + right + 0.0

def adds_bools(left, right):
    right.view(np.uint8)[:] = left.view(np.uint8) + right.view(np.uint8)
"""

LIES = [
    ("saturates_in_whole_vectors", "np.add", "INT8_T", "int8"),
    ("multiplies_by_floats", "np.multiply", "INT64_T", "int64"),
    ("compares_as_signed", "np.minimum", "UINT64_T", "uint64"),
    ("ignores_nan", "np.maximum", "DOUBLE", "float64"),
    ("loses_the_last", "np.add", "FLOAT", "float32"),
    ("loses_signs_of_zeros", "np.add", "DOUBLE", "float64"),
    ("adds_bools", "np.add", "UINT8_T", "bool"),
]


@pytest.fixture
def python(clean_environment):
    def run(code: str) -> str:
        done = subprocess.run(
            [sys.executable, "-c", PREFACE + code],
            capture_output=True,
            text=True,
            timeout=PATIENCE_S,
            env=clean_environment(),
        )
        assert done.returncode == 0, done.stderr
        return done.stdout.strip()

    return run


@pytest.mark.parametrize(("lie", "ufunc", "datatype", "dtype"), LIES, ids=[lie[0] for lie in LIES])
def test_a_lie_is_found_out_and_the_truth_is_not_called_one(python, lie, ufunc, datatype, dtype):
    code = f"""
dtype = np.dtype(np.{dtype if dtype != "bool" else "bool_"})
truth = lying(dtype, lambda left, right: {ufunc}(left, right, out=right))
print(reduces_as({ufunc}, lying(dtype, {lie}), MPI.{datatype}, dtype),
      reduces_as({ufunc}, truth, MPI.{datatype}, dtype))
"""
    assert python(code) == "False True"


def test_what_one_rank_distrusts_no_rank_uses(python):
    code = """
from rankwise_mpi.library.reductions import Kernels
kernels, dtype = Kernels(), np.dtype(np.int32)
assert kernels["SUM", dtype].op == MPI.SUM

mine = kernels.trusted()
kernels.agree(mine + mine)
assert kernels["SUM", dtype].op == MPI.SUM
kernels.agree(mine + bytearray(len(mine)))  # the other rank distrusts all
print(kernels["SUM", dtype].op == MPI.SUM)
"""
    assert python(code) == "False"


def test_all_kernels_are_tested_in_a_few_milliseconds(python):
    code = """
from time import perf_counter
from rankwise_mpi.library.reductions import Kernels
times = []
for _ in range(5):
    begin = perf_counter()
    kernels = Kernels()
    kernels.agree(kernels.trusted())
    times.append(perf_counter() - begin)
print(min(times) < 0.02, min(times))
"""
    assert python(code).startswith("True")
