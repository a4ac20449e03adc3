"""`all_reduce` of sparse tensors: gather what is not zero, and add it up."""

from __future__ import annotations

from itertools import accumulate, pairwise
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

import rankwise
from rankwise_torch.errors import as_torch_raises
from rankwise_torch.operators import operator_of
from rankwise_torch.tensors import read
from rankwise_torch.works import Done

if TYPE_CHECKING:
    from rankwise_torch.issuing import Issuer

__all__ = ["all_reduce_sparse"]


def all_reduce_sparse(issuer: Issuer, tensor: torch.Tensor, opts: Any) -> Done:
    """Sum a sparse tensor of all ranks into each. It has ended when it returns, even if the caller would not wait."""
    if tensor.layout is not torch.sparse_coo or operator_of(opts.reduceOp) != rankwise.ReduceOp.SUM:
        raise ValueError(f"all_reduce of a sparse tensor takes COO and SUM, not {tensor.layout} and {opts.reduceOp}")
    mine = tensor.coalesce()
    with as_torch_raises():
        counts = np.empty(issuer.under.size(), np.int64)
        rankwise.all_gather_single(counts, np.array([mine._nnz()]), group=issuer.under)
        places = _gathered(issuer, mine.indices().t(), counts)
        values = _gathered(issuer, mine.values(), counts)
    issuer.sequence += 1
    whole = torch.sparse_coo_tensor(places.t(), values, mine.shape, check_invariants=False).coalesce()
    with torch.no_grad():
        tensor.copy_(whole)  # which gives this very tensor other places and values
    return Done([tensor])


def _gathered(issuer: Issuer, rows: torch.Tensor, counts: np.ndarray[Any, Any]) -> torch.Tensor:
    """Return the rows of all ranks, each of which has as many as `counts` says."""
    whole = rows.new_empty((int(counts.sum()), *rows.shape[1:]))
    parts = [read(whole[begin:end]) for begin, end in pairwise(accumulate(counts.tolist(), initial=0))]
    rankwise.all_gather(parts, read(rows.detach()), group=issuer.under)
    return whole
