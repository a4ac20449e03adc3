"""The two collectives that programs call most, at their shortest, for ranks that meet at a gate.

An array of a megabyte that goes through the caches leaves nothing of Python's in them, and then each attribute, frame
and C function that a call touches costs a third of a microsecond. So these are closures, which have what they need at
hand, and say in line what `MpiCommunicator` says once for all its calls. What is out of the ordinary goes its way:
asynchronous calls, groups that have failed, arrays in pieces, ranks that are late.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np
from mpi4py import MPI

from rankwise.arrays import Array
from rankwise.reduce_op import ReduceOp
from rankwise.work import COMPLETED, Work
from rankwise_mpi.gate import Gate
from rankwise_mpi.reductions import KERNELS

if TYPE_CHECKING:
    from rankwise_mpi.communicator import MpiCommunicator

__all__ = ["shortest_all_reduce", "shortest_broadcast"]

_IN_PLACE, _BYTE = MPI.IN_PLACE, MPI.BYTE


def shortest_all_reduce(group: MpiCommunicator, gate: Gate) -> Callable[..., Work]:
    """Return `group.all_reduce`, short for what is plain."""
    usual, native, turn, come, limit = group.all_reduce, group.natives["all_reduce"], group.turn, gate.come, group.limit
    block, double = native.block, np.dtype(np.float64)
    # What was asked for last; in one tuple, lest another thread sees half of it.
    known = ReduceOp.SUM, double, KERNELS["SUM", double]

    def all_reduce(array: Array, op: ReduceOp, timeout_s: float, async_op: bool = False) -> Work:
        nonlocal known
        known_op, dtype, how = known
        if op is not known_op or array.dtype is not dtype:
            how = KERNELS[op.name, array.dtype]
            known = op, array.dtype, how
        if async_op or not how.plain or (count := array.size) > limit or group.failure is not None:
            return usual(array, op, timeout_s, async_op)
        args = _IN_PLACE, (array, count, how.datatype), how.op
        request = None
        try:
            try:
                number = turn.pop()
            except IndexError:
                number = group.await_turn("all_reduce", timeout_s)
            try:
                if come(number):
                    block(*args)
                else:
                    request = group.make_after_meeting(native, args, timeout_s, number)
            finally:
                turn.append(number + 1)
            if request is not None:
                group.look_on("all_reduce", request, args, timeout_s, number)
        except BaseException as stop:
            group.stopped("all_reduce", request, args, stop)
        return COMPLETED

    return all_reduce


def shortest_broadcast(group: MpiCommunicator, gate: Gate) -> Callable[..., Work]:
    """Return `group.broadcast`, short for what is plain."""
    usual, native, turn, come, limit = group.broadcast, group.natives["broadcast"], group.turn, gate.come, group.limit
    begin, block, blocks_from, looks = native.begin, native.block, native.blocks_from, group.first_looks

    def broadcast(array: Array, root: int, timeout_s: float, async_op: bool = False) -> Work:
        if async_op or (nbytes := array.nbytes) > limit or group.failure is not None:
            return usual(array, root, timeout_s, async_op)
        args = (array, nbytes, _BYTE), root
        request = None
        try:
            try:
                number = turn.pop()
            except IndexError:
                number = group.await_turn("broadcast", timeout_s)
            try:
                if nbytes < blocks_from:
                    request = begin(*args)
                elif come(number):
                    block(*args)
                else:
                    request = group.make_after_meeting(native, args, timeout_s, number)
            finally:
                turn.append(number + 1)
            if request is not None:
                test = request.Test
                for _ in looks:
                    if test():
                        break
                else:
                    group.look_on("broadcast", request, args, timeout_s, number)
        except BaseException as stop:
            group.stopped("broadcast", request, args, stop)
        return COMPLETED

    return broadcast
