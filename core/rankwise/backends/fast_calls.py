"""The plainest calls in few steps, for every communicator that keeps something for each kind of call.

They take only what the general way has prepared, and so has checked, once before: `Communicator.kinds` says what.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from rankwise.backends.shortcuts import Caller, Shortcuts
from rankwise.basics.deadline import Deadline, Timeout, seconds
from rankwise.basics.reduce_op import ReduceOp

if TYPE_CHECKING:
    from rankwise.backends.communicator import Communicator

__all__ = ["fast_calls"]


def fast_calls(comm: Communicator, group: Caller) -> Shortcuts:
    """Return the fast calls of one group on its communicator."""
    array_type, op_type, rank = np.ndarray, ReduceOp, comm.rank
    collected, trail, kinds = group.collected, group.trail, comm.kinds
    order, sequence = comm._order, comm._sequence
    turn, begin, end = order.turn, trail.begin, trail.end
    take = turn.take

    def array_call(name: str, reduces: bool) -> Callable[[Any, Any, Timeout | None], bool]:
        def call(array: Any, option: Any, timeout: Timeout | None) -> bool:
            if type(array) is not array_type or not array.flags.carray or collected:
                return False
            given: Any
            if not reduces:
                found = kinds.get((name, option, array.dtype, array.shape))
                given = ([array], []) if option == rank else ([], [array])
            elif type(option) is op_type and option.factor is None:
                found = kinds.get((name, option.name, array.dtype, array.shape))
                given = array, option
            else:
                return False
            if found is None:
                return False
            timeout_s, me = group.timeout_s if timeout is None else seconds(timeout), object()
            try:
                if not take(me):
                    return False
                begin(name, array)  # here, as it counts the frames up to the program's
                number = next(sequence)
                try:
                    found.run(given, number, Deadline(timeout_s))
                except BaseException as error:
                    comm.broken_off(name, number, error)
                    raise
            finally:
                if turn.holder is me:  # no call, see `Turn`; an interrupt may have come on the way out of taking it
                    turn.holder = None
                    if turn.watchers:
                        order.tell()
            end()
            return True

        return call

    def barrier(timeout: Timeout | None) -> bool:
        found = kinds.get(("barrier",))
        if found is None or collected:
            return False
        timeout_s, me = group.timeout_s if timeout is None else seconds(timeout), object()
        try:
            if not take(me):
                return False
            begin("barrier")
            number = next(sequence)
            try:
                found.run(None, number, Deadline(timeout_s))
            except BaseException as error:
                comm.broken_off("barrier", number, error)
                raise
        finally:
            if turn.holder is me:
                turn.holder = None
                if turn.watchers:
                    order.tell()
        end()
        return True

    all_reduce, broadcast = array_call("all_reduce", True), array_call("broadcast", False)
    return Shortcuts(all_reduce=all_reduce, broadcast=broadcast, barrier=barrier)
