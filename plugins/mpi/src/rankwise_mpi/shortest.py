"""The synchronous calls that programs make most, at their shortest.

An array of a megabyte that goes through the caches leaves nothing of Python's in them, and then each attribute, frame
and C function that a call touches costs a third of a microsecond. So these are closures, which have what they need at
hand, and say in line what `MpiCommunicator` says once for all its calls. What is out of the ordinary goes its way:
asynchronous calls, groups that have failed, arrays in pieces, tags of another page, ranks that are late.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np
from mpi4py import MPI

from rankwise.backends import COMPLETED, Array, ReduceOp, Work
from rankwise_mpi.gate import Gate
from rankwise_mpi.messages import SHORT_MESSAGE
from rankwise_mpi.reductions import KERNELS

if TYPE_CHECKING:
    from rankwise_mpi.communicator import MpiCommunicator

__all__ = ["shortest_collective", "shortest_recv", "shortest_send"]


def shortest_collective(group: MpiCommunicator, gate: Gate, name: str) -> Callable[..., Work]:
    """Return `group.all_reduce` or `group.broadcast`, for ranks that meet at a gate."""
    usual: Callable[..., Work] = getattr(group, name)
    native, turn, limit = group.natives[name], group.turn, group.limit
    came, heed, mine, others, looks = gate.view
    begin, block, blocks_from = native.begin, native.block, native.blocks_from
    reduces, in_place, byte, double = name == "all_reduce", MPI.IN_PLACE, MPI.BYTE, np.dtype(np.float64)
    # What was asked for last; in one tuple, lest another thread sees half of it.
    known = ReduceOp.SUM, double, KERNELS["SUM", double]

    def call(array: Array, op_or_root: Any, timeout_s: float, async_op: bool = False) -> Work:
        nonlocal known
        if reduces:
            known_op, dtype, how = known
            if op_or_root is not known_op or array.dtype is not dtype:
                how = KERNELS[op_or_root.name, array.dtype]
                known = op_or_root, array.dtype, how
            plain, count = how.plain, array.size
            args: tuple[Any, ...] = (in_place, (array, count, how.datatype), how.op)
        else:
            plain, count = True, array.nbytes
            args = ((array, count, byte), op_or_root)
        if async_op or not plain or count > limit or group.failure is not None:
            return usual(array, op_or_root, timeout_s, async_op)
        request = None
        try:
            try:
                number = turn.pop()
            except IndexError:
                number = group.await_turn(name, timeout_s)
            try:
                if count < blocks_from:  # never with all_reduce, whose count is not in bytes
                    request = begin(*args)
                else:
                    there = False
                    try:  # `Gate.come`
                        came[mine] = number
                        for other in others:
                            for _ in looks:
                                if came[other] >= number:
                                    break
                            else:
                                break
                        else:
                            there = not heed[0] or gate.settled
                    except BaseException as stop:
                        gate.interrupted(stop)
                    if there:
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
                    group.look_on(name, request, args, timeout_s, number)
        except BaseException as stop:
            group.stopped(name, request, args, stop)
        return COMPLETED

    return call


def shortest_send(group: MpiCommunicator) -> Callable[..., None]:
    """Return `group.send`."""
    usual, isend, last_tag, limit, looks = group.send, group.mpi.Isend, group.last_tag, group.limit, group.first_looks
    byte = MPI.BYTE

    def send(array: Array, dst: int, tag: int, timeout_s: float) -> None:
        if tag > last_tag or (nbytes := array.nbytes) > limit or group.failure is not None:
            return usual(array, dst, tag, timeout_s)
        request = None
        try:
            request = isend((array, nbytes, byte), dst, tag)
            test = request.Test
            for _ in looks:
                if test():
                    return None
            return group.look_on(f"send(dst={group.context.global_ranks[dst]})", request, array, timeout_s)
        except BaseException as stop:
            group.stopped("send", request, array, stop)

    return send


def shortest_recv(group: MpiCommunicator) -> Callable[..., int]:
    """Return `group.recv`."""
    usual, older, new_status, improbe = group.recv, group.receives.ages, MPI.Status, group.mpi.Improbe
    last_tag, limit, looks, short = group.last_tag, group.limit, group.first_looks, SHORT_MESSAGE
    byte, any_source = MPI.BYTE, MPI.ANY_SOURCE

    def recv(array: Array, src: int | None, tag: int, timeout_s: float) -> int:
        if older or tag > last_tag or (room := array.nbytes) > limit or group.failure is not None:
            return usual(array, src, tag, timeout_s)
        source = any_source if src is None else src
        # Made ready beforehand for a message that is as long as the array, as most are.
        status, buffer = new_status(), (array, room, byte)
        met = request = None
        try:
            for _ in looks:
                if (met := improbe(source, tag, status)) is not None:
                    break
            else:
                met = group.meet(improbe, source, tag, status, timeout_s)
            if status.count != room:
                group.take(met, status, array, tag, timeout_s)
            elif room <= short:
                met.Recv(buffer)
            else:
                request = met.Irecv(buffer)
                if not request.Test():  # where one rank reads the other's memory, it has ended already
                    group.look_on("recv", request, array, timeout_s)
        except BaseException as stop:
            group.stopped_receiving(met, request, array, stop)
        return status.Get_source() if src is None else src

    return recv
