"""What libraries get wrong about reductions; by reference. MPI begins where it is imported: in that process alone."""

from __future__ import annotations

from time import process_time

import numpy as np


def saturates(left, right):
    """Add with an end of the range in whole vectors alone."""
    whole = len(right) // 16 * 16
    exact = np.clip(left[:whole].astype(np.int64) + right[:whole], -128, 127)
    return np.append(exact.astype(np.int8), (left + right)[whole:])


#: What is done; and in whose place, with which datatype and dtype.
LIES = {
    "saturates_in_whole_vectors": (saturates, np.add, "INT8_T", "int8"),
    "multiplies_by_floats": (lambda left, right: left.astype(np.float64) * right, np.multiply, "INT64_T", "int64"),
    "compares_as_signed": (
        lambda left, right: np.minimum(left.view(np.int64), right.view(np.int64)).view(np.uint64),
        *(np.minimum, "UINT64_T", "uint64"),
    ),
    "ignores_nan": (np.fmax, np.maximum, "DOUBLE", "float64"),
    "loses_the_last": (lambda left, right: np.append((left + right)[:-1], right[-1:]), np.add, "FLOAT", "float32"),
    "loses_signs_of_zeros": (lambda left, right: left + right + 0.0, np.add, "DOUBLE", "float64"),
    "adds_bools": (
        lambda left, right: (left.view(np.uint8) + right.view(np.uint8)).view(bool),
        *(np.add, "UINT8_T", "bool"),
    ),
}


def judge(name):
    """Return whether a lie is taken for a reduction, and whether the truth is."""
    from mpi4py import MPI

    from rankwise_mpi.library.selftest import reduces_as

    lie, ufunc, datatype, dtype = LIES[name]

    def passes(function):
        def combine(left, right, datatype):
            left, right = np.frombuffer(left, dtype), np.frombuffer(right, dtype)
            with np.errstate(all="ignore"):
                right[:] = function(left, right).astype(dtype)

        return reduces_as(ufunc, MPI.Op.Create(combine), getattr(MPI, datatype), np.dtype(dtype))

    return passes(lie), passes(ufunc)


def distrust():
    """Return whether an op of MPI's is still used that another rank distrusts."""
    from mpi4py import MPI

    from rankwise_mpi.library.reductions import Kernels

    kernels, dtype = Kernels(), np.dtype(np.int32)
    assert kernels["SUM", dtype].op == MPI.SUM
    mine = kernels.trusted()
    kernels.agree(mine + mine)
    assert kernels["SUM", dtype].op == MPI.SUM
    kernels.agree(mine + bytearray(len(mine)))  # the other rank distrusts all
    return kernels["SUM", dtype].op == MPI.SUM


def time_all():
    """Return how many seconds of a processor the tests of all kernels take."""
    from rankwise_mpi.library.reductions import Kernels

    took_s = []
    for _ in range(5):
        began = process_time()
        kernels = Kernels()
        kernels.agree(kernels.trusted())
        took_s.append(process_time() - began)
    return min(took_s)
