"""Mistakes that type checkers must find; an ignore that is not needed is an error to both, and nothing is ever run."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

import rankwise as dist


def lists(array: npt.NDArray[np.float64]) -> None:
    dist.all_reduce([1.0, 2.0])  # type: ignore[call-overload]
    dist.broadcast((1.0, 2.0), 0)  # type: ignore[call-overload]
    dist.all_gather([[0.0], [0.0]], array)  # type: ignore[list-item]
    dist.send([1.0], 1)  # type: ignore[arg-type]
    dist.isend([1.0], 1)  # type: ignore[call-overload]
    dist.recv(1.0)  # type: ignore[arg-type]
    dist.reduce_scatter(array, [1.0, 2.0])  # type: ignore[list-item]
    dist.all_reduce_multigpu([[1.0]])  # type: ignore[list-item]


def works(array: npt.NDArray[np.float64], later: bool) -> None:
    dist.all_reduce(array).wait()  # type: ignore[attr-defined]
    dist.all_reduce(array, async_op=later).wait()  # type: ignore[union-attr]
    dist.isend(array, 1, dist.GroupMember.NON_GROUP_MEMBER).wait()  # type: ignore[union-attr]


def names() -> None:
    print(dist.allreduce)  # type: ignore[attr-defined]
