"""Reduce ops of torch as those of rankwise."""

from __future__ import annotations

from typing import Any

import torch
import torch.distributed as c10d

import rankwise

__all__ = ["operator_of"]

_OPS: dict[Any, rankwise.ReduceOp] = {
    getattr(c10d.ReduceOp, name): getattr(rankwise.ReduceOp, name)
    for name in ("SUM", "AVG", "PRODUCT", "MIN", "MAX", "BAND", "BOR", "BXOR")
}


_SUM: Any = c10d.ReduceOp.SUM


def operator_of(op: Any) -> rankwise.ReduceOp:
    """Return the op that `opts.reduceOp` stands for, with its factor if it has one."""
    if op == _SUM:  # almost always, and a third of the time that the table takes
        return rankwise.ReduceOp.SUM
    found = _OPS.get(getattr(op, "op", op))
    return _scaled(op) if found is None else found


def _scaled(op: Any) -> rankwise.ReduceOp:
    # Only its pickled state tells the factor.
    factor = op.__getstate__()[1]
    return rankwise.ReduceOp.PREMUL_SUM(factor.item() if isinstance(factor, torch.Tensor) else factor)
