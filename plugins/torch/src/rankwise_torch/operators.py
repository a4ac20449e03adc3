"""Reduce ops of torch as those of rankwise."""

from __future__ import annotations

from typing import Any

import torch
import torch.distributed as c10d

import rankwise
from rankwise.backends import REDUCE_OP_TABLE as OPS
from rankwise_torch.tensors import Averaged, Ending

_OPS: dict[Any, rankwise.ReduceOp] = {
    getattr(c10d.ReduceOp, name): rankwise.ReduceOp(name)
    for name in OPS
    if name != "PREMUL_SUM" and hasattr(c10d.ReduceOp, name)
}


_SUM: Any = c10d.ReduceOp.SUM


def operator_of(op: Any) -> rankwise.ReduceOp:
    """Return the op that `opts.reduceOp` stands for, with its factor if it has one."""
    if op == _SUM:  # almost always, and a third of the time that the table takes
        return rankwise.ReduceOp.SUM
    found = _OPS.get(getattr(op, "op", op))
    return _scaled(op) if found is None else found


def averaging(op: rankwise.ReduceOp, array: Any, count: int, copies: list[Ending]) -> rankwise.ReduceOp:
    """Return the op that gives `op` of an array of so many ranks, with what is left to do in the end before `copies`.

    rankwise has no average of integers, whose result depends on how one rounds; torch's programs know NCCL's.
    """
    if op.name != "AVG" or array.dtype.kind not in "iu":
        return op
    copies.insert(0, Averaged(array, count))
    return rankwise.ReduceOp.SUM


def _scaled(op: Any) -> rankwise.ReduceOp:
    # Only its pickled state tells the factor.
    factor = op.__getstate__()[1]
    return rankwise.ReduceOp.PREMUL_SUM(factor.item() if isinstance(factor, torch.Tensor) else factor)
