"""What ranks run with a reduce op and a collective that the product has not, added as docs/where-to-change.md tells."""

from __future__ import annotations

from typing import Any

import numpy as np

import rankwise as dist
from rankwise.basics.reduce_op import REDUCE_OP_TABLE, Op, ReduceOp
from rankwise.calls import check
from rankwise.calls.calling import carry_out, issued
from rankwise.collective.algorithms import Recv, Rounds, Send
from rankwise.collective.call import OPERATIONS, Call, Operation, same_shape
from rankwise.collective.described import Described, Steps
from rankwise.groups.world import resolve


def exclusive_or(backend: str) -> list[Any]:
    """Reduce with a new op in all three collectives that reduce, twice, as the first prepares the second."""
    REDUCE_OP_TABLE["LXOR"] = Op(np.logical_xor, frozenset({"bool", "int32", "float64"}))
    op = ReduceOp("LXOR")
    dist.init_process_group(backend, timeout=60)
    rank, told = dist.get_rank(), []
    for _ in range(2):
        for dtype in ("bool", "int32", "float64"):
            array = np.array([0, 0, 1, 1] if rank == 0 else [0, 5, 0, 5], dtype)
            summed = array.copy()
            dist.all_reduce(summed)
            everywhere, at_root, own = array.copy(), array.copy(), np.empty(2, dtype)
            dist.all_reduce(everywhere, op)
            dist.reduce(at_root, 1, op)
            dist.reduce_scatter_single(own, array, op)
            told += [everywhere.tolist(), at_root.tolist() if rank == 1 else None, own.tolist()]
    refused = ""
    try:
        dist.all_reduce(np.ones(1, np.int64), op)
    except dist.UnsupportedOperationError as error:
        refused = str(error)
    told.append(refused)
    dist.destroy_process_group()
    return told


def chain(rank: int, size: int) -> Rounds:
    """The rounds of a scan: each rank combines what comes from the one before, and hands it on."""
    if rank > 0:
        yield (Recv(rank - 1, range(1), combine=True, left=True),)
    if rank < size - 1:
        yield (Send(rank + 1, range(1)),)


def scan_in_steps(by: Steps, call: Call) -> None:
    assert call.reduce_op is not None
    total = by.accumulator(call.reduce_op, call.array)
    by.rounds(chain, [total], [total], call.reduce_op)
    by.finish(call.reduce_op, total, call.array)


def scan(
    tensor: Any, op: ReduceOp = ReduceOp.SUM, group: Any = None, async_op: bool = False, timeout: float | None = None
) -> Any:
    """The public function."""
    pg = resolve(group, "scan")
    assert pg is not None
    plain = "scan", tensor, op, -1, None, None
    if async_op:
        if (work := issued(pg, "described", tensor, timeout, *plain)) is not None:
            return work
    elif pg.shortcuts.described(*plain, timeout):
        return None
    array = check.output_array(pg, "scan", "tensor", tensor)
    call = Call("scan", array, check.reduce_op(pg, "scan", op, array))
    return carry_out(pg, call, tensor, async_op, timeout)


def add_scan() -> None:
    """One line of the table."""
    OPERATIONS["scan"] = Operation(same_shape, Described(scan_in_steps), reduces=True)


def scanned(backend: str = "") -> list[Any]:
    """Scan in all ways that a call may be made; then let the ranks disagree."""
    if backend:
        add_scan()
        dist.init_process_group(backend, timeout=60)
    rank, told = dist.get_rank(), []
    for terms_ in ({}, {"timeout": 30.0}, {"async_op": True}):
        array = np.arange(3.0) + 10**rank
        work = scan(array, **terms_)
        if work is not None:
            work.wait()
        told.append(array.tolist())
    array = np.array([rank + 1], np.int32)
    scan(array, ReduceOp.PRODUCT)
    told.append(array.tolist())
    if backend != "mpi":  # which has the feature `mismatch` with RANKWISE_DEBUG=detail alone
        try:
            scan(np.ones(1 + rank))
        except dist.CollectiveMismatchError as error:
            told.append("did not make the same call" in str(error))
    if backend:
        dist.destroy_process_group()
    return told
