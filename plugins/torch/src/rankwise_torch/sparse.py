"""`all_reduce` of sparse tensors, as the sparse arrays that rankwise sums."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import torch

import rankwise
from rankwise.backends import Array, Coordinates
from rankwise_torch.operators import operator_of
from rankwise_torch.tensors import read


class Summed(NamedTuple):
    """A sum that is going on, and the tensor that it is for."""

    tensor: torch.Tensor
    array: Coordinates

    def finish(self) -> None:
        """Give the tensor the places and elements of the sum."""
        data = self.array.data
        indices = torch.from_numpy(_indices(self.array.places, self.array.shape[: self.array.sparse_dims]))
        values = torch.empty(data.shape, dtype=self.tensor.dtype)
        read(values)[...] = data.reshape(-1)
        shape = self.tensor.shape
        whole = torch.sparse_coo_tensor(indices, values, shape, is_coalesced=True, check_invariants=False)
        with torch.no_grad():
            self.tensor.copy_(whole)


def summed(tensor: torch.Tensor, op: Any) -> Summed:
    """Return what is to be summed of a sparse tensor, which is written to only at the end."""
    if tensor.layout is not torch.sparse_coo or operator_of(op) != rankwise.ReduceOp.SUM:
        raise ValueError(f"all_reduce of a sparse tensor takes COO and SUM, not {tensor.layout} and {op}")
    mine = tensor.detach().coalesce()
    places = _places(mine.indices().numpy(), mine.shape)
    values = mine.values()
    data = read(values).reshape(tuple(values.shape))
    return Summed(tensor, Coordinates(tuple(mine.shape), mine.sparse_dim(), places, data))


def _places(indices: Array, shape: Sequence[int]) -> Array:
    """Return the place of each element, counted row by row, from its index in each sparse dimension."""
    places = np.zeros(indices.shape[1], np.int64)
    for length, row in zip(shape, indices, strict=False):  # those behind are dense
        places = places * length + row
    return places


def _indices(places: Array, shape: Sequence[int]) -> Array:
    """Return the index of each element in each dimension, from its place."""
    indices = np.empty((len(shape), places.size), np.int64)
    for row, length in zip(indices[::-1], shape[::-1], strict=True):
        places, row[:] = np.divmod(places, length)
    return indices
