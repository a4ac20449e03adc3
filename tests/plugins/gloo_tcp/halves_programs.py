"""What the ranks of the tests of 16-bit floats run: reductions of every value there is, beside NumPy's."""

from __future__ import annotations

import ml_dtypes
import numpy as np
from programs import begin

import rankwise as dist

_PATIENCE_S = 60.0
DTYPES = tuple(map(np.dtype, (np.float16, ml_dtypes.bfloat16)))
#: What adds nothing in the order in which ranks are taken: ranks from the third on give it.
_NEUTRAL = {"SUM": 0.0, "AVG": 0.0, "PRODUCT": 1.0, "MIN": np.inf, "MAX": -np.inf}
_EVERY = np.arange(1 << 16, dtype=np.uint16)


def _given(rank: int, op: str, dtype: np.dtype, shift: int) -> np.ndarray:
    if rank > 1:
        return np.full(_EVERY.size, _NEUTRAL[op]).astype(dtype)
    return (np.roll(_EVERY, shift) if rank else _EVERY).view(dtype)


def _expected(op: str, dtype: np.dtype, shift: int, size: int) -> np.ndarray:
    a, b = (_given(rank, op, dtype, shift).astype(np.float32) for rank in range(2))
    with np.errstate(all="ignore"):
        if op in ("MIN", "MAX"):
            return (np.minimum if op == "MIN" else np.maximum)(a, b).astype(dtype)
        total = a * b if op == "PRODUCT" else a + b
        return (total / np.float32(size) if op == "AVG" else total).astype(dtype)


def _differ(found: np.ndarray, expected: np.ndarray) -> int:
    """Return how many differ: all NaNs are alike, and zeros where it is open which of them is the least."""
    found32, expected32 = found.astype(np.float32), expected.astype(np.float32)
    nans = np.isnan(expected32)
    return int(np.count_nonzero(np.isnan(found32) != nans)) + int(np.count_nonzero(found32[~nans] != expected32[~nans]))


def _signs_differ(found: np.ndarray, expected: np.ndarray) -> int:
    zeros = expected.astype(np.float32) == 0
    return int(np.count_nonzero(found.view(np.uint16)[zeros] != expected.view(np.uint16)[zeros]))


def every_value(shifts: list[int]) -> dict[str, int]:
    """Reduce every value with others, by every operation; return for each how many results are wrong."""
    rank, size = begin(_PATIENCE_S)
    wrong: dict[str, int] = {}
    for dtype in DTYPES:
        for op in _NEUTRAL:
            for shift in shifts:
                _reduce(f"{dtype} {op}", dtype, op, shift, rank, size, wrong)
    return wrong


def _reduce(name: str, dtype: np.dtype, op: str, shift: int, rank: int, size: int, wrong: dict[str, int]) -> None:
    given, expected, reduce_op = _given(rank, op, dtype, shift), _expected(op, dtype, shift, size), dist.ReduceOp(op)
    count = given.size - given.size % size

    def judge(call: str, found: np.ndarray, right: np.ndarray) -> None:
        signs = 0 if op in ("MIN", "MAX") else _signs_differ(found, right)
        wrong[f"{call} {name}"] = wrong.get(f"{call} {name}", 0) + _differ(found, right) + signs

    for times in (1, 16):  # as one block that all reduce, and in shares
        whole = np.tile(given, times)
        dist.all_reduce(whole, reduce_op)
        judge("all_reduce", whole, np.tile(expected, times))
        root = shift % size
        whole = np.tile(given, times)
        dist.reduce(whole, root, reduce_op)
        if rank == root:
            judge("reduce", whole, np.tile(expected, times))
        else:
            wrong[f"left alone {name}"] = int(
                np.count_nonzero(whole.view(np.uint16) != np.tile(given, times).view(np.uint16))
            )
    part = np.empty(count // size, dtype)
    dist.reduce_scatter_single(part, given[:count].copy(), reduce_op)
    judge("reduce_scatter", part, expected[:count].reshape(size, -1)[rank])
