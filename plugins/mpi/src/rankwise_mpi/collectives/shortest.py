"""The synchronous collectives that programs make most, at their shortest.

An array of a megabyte that goes through the caches leaves nothing of Python's in them, and then each attribute, frame
and C function that a call touches costs a third of a microsecond. So these are closures, which have what they need at
hand, remember what was asked for last, and say in line what `Issuing` says once for all its calls. What is out of the
ordinary goes its way: asynchronous calls, groups that have failed, arrays in pieces, ranks that are late or disagree.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from mpi4py import MPI

from rankwise.backends import COMPLETED, Array, Caller, ReduceOp, Timeout, Work
from rankwise.errors import CollectiveMismatchError
from rankwise_mpi.collectives.entry_barrier import EntryBarrier
from rankwise_mpi.collectives.issuing import Issuing
from rankwise_mpi.collectives.marks import CallMark, uniform
from rankwise_mpi.group.endpoint import Endpoint
from rankwise_mpi.library.reductions import KERNELS

#: What takes the place of a method, and what makes the shortcut of a group's public call to it.
Shortest = tuple[Callable[..., Work], Callable[[Caller], Callable[[Any, Any, Timeout | None], bool]]]


def shortest_collective(
    endpoint: Endpoint, issuing: Issuing, entry: EntryBarrier, name: str, usual: Callable[..., Work]
) -> Shortest:
    """Return a function that does what `usual` does, the group's `all_reduce` or `broadcast`, and its shortcut's maker.

    Args:
        endpoint: This rank's end of the group.
        issuing: The collectives' way to MPI.
        entry: Where the ranks meet.
        name: Of the collective.
        usual: What does the same at greater length.
    """
    native, turn, limit = issuing.natives[name], issuing.turn, endpoint.limit
    collectives = endpoint.collectives
    came, calls, attention, mine, others, looks = entry.view
    go, reduces, in_place = native.go, name == "all_reduce", MPI.IN_PLACE
    # What was asked for last, and what it was found to be; in one tuple, so that no thread sees half of it.
    known: tuple[Any, ...] = (None,) * 7

    def call(array: Array, op_or_root: Any, timeout_s: float, async_op: bool = False) -> Work:
        nonlocal known
        asked, dtype, shape, count, datatype, op, mark = known
        if op_or_root is not asked or array.dtype is not dtype or array.shape != shape:
            count, datatype, op, mark = found = (_reduction if reduces else _copy)(array, op_or_root)
            known = op_or_root, array.dtype, array.shape, *found
        if async_op or count is None or count > limit or endpoint.failure is not None or collectives:
            return usual(array, op_or_root, timeout_s, async_op)
        args = (in_place, (array, count, datatype), op) if reduces else ((array, count, datatype), op)
        request = None
        try:
            try:
                number = turn.pop()
            except IndexError:
                number = issuing.await_turn(name, timeout_s)
            there = False
            try:
                words, word = calls[number & 1], mark.word  # `EntryBarrier.arrive`
                words[mine] = word
                came[mine] = number
                for other in others:
                    for _ in looks:
                        if came[other] >= number:
                            break
                    else:
                        break
                    if words[other] != word and came[other] == number:
                        break
                else:
                    there = not attention[0] or entry.settled
                if there:
                    request = go(*args)
                else:
                    request = issuing.meet_and_go(native, args, mark, timeout_s, number)
            except BaseException as stop:
                if there:
                    raise  # nothing can come in between knowing and calling
                request = issuing.settle(native, args, mark, timeout_s, number, stop)
            finally:
                turn.append(number + 1)
            if request is not None:
                test = request.Test
                for _ in looks:
                    if test():
                        break
                else:
                    endpoint.look_on(name, request, args, timeout_s, number)
        except CollectiveMismatchError:
            raise
        except BaseException as stop:
            endpoint.stopped(name, request, args, stop)
        return COMPLETED

    def shorten(group: Caller) -> Callable[[Any, Any, Timeout | None], bool]:
        begin, end, collected = group.trail.begin, group.trail.end, group.collected

        def shortcut(array: Any, op_or_root: Any, timeout: Timeout | None) -> bool:
            asked, dtype, shape, *_ = known  # what was asked for last has been checked
            if timeout is not None or type(array) is not np.ndarray or op_or_root is not asked:
                return False
            if array.dtype is not dtype or array.shape != shape or not array.flags.carray:
                return False
            if collected or endpoint.failure is not None:
                return False
            begin(name, array)
            call(array, op_or_root, group.timeout_s)
            end()
            return True

        return shortcut

    return call, shorten


def _reduction(array: Array, op: ReduceOp) -> tuple[int | None, MPI.Datatype, MPI.Op, CallMark]:
    """Return count, datatype, op and mark of an all_reduce; no count if there is more to it."""
    how = KERNELS[op.name, array.dtype]
    return array.size if how.plain else None, how.datatype, how.op, uniform("all_reduce", array, op)


def _copy(array: Array, root: int) -> tuple[int, MPI.Datatype, int, CallMark]:
    """Return count, datatype, root and mark of a broadcast."""
    return array.nbytes, MPI.BYTE, root, uniform("broadcast", array, root=root)
