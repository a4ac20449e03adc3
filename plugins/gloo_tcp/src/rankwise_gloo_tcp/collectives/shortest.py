"""The plainest collectives at their shortest, at the board or between hosts: in few frames what takes many on the
general way.

They take only what the general way has prepared, and so has checked, once before.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Mapping
from typing import Any, Protocol

import numpy as np

from rankwise.backends import Caller, Communicator, Deadline, IssueOrder, ReduceOp, Shortcuts
from rankwise.backends import compiled_parts as native
from rankwise_gloo_tcp.board.board import Board
from rankwise_gloo_tcp.board.call import BoardCall
from rankwise_gloo_tcp.board.prepared import Prepared

__all__ = ["Meeting", "at_board", "plainest"]


class Meeting(Protocol):
    """What carries out calls at a board."""

    board: Board
    prepared: Prepared

    def meet_at_board(self, call: BoardCall, given: Any, sequence: int, deadline: Deadline) -> None:
        """Compare a call with those of the others, and carry it out."""


def at_board(comm: Communicator, ways: Meeting, order: IssueOrder, sequence: Iterator[int], group: Caller) -> Shortcuts:
    """Return what does the plainest calls of a group whose ranks share a board, compiled where that is installed.

    Args:
        comm: The group's communicator.
        ways: What carries out its calls.
        order: Gives the turn.
        sequence: Numbers the collectives.
        group: The group.
    """
    if native.module() is not None:
        from rankwise_native.shortest import shortest

        compiled: Shortcuts = shortest(comm, ways, order, sequence, group)
        return compiled
    prepared = ways.prepared
    return plainest(comm, prepared.calls, prepared.barrier.call, ways.meet_at_board, order, sequence, group)


def plainest(
    comm: Communicator,
    calls: Mapping[Hashable, Any],
    at_barrier: Any,
    meet: Callable[[Any, Any, int, Deadline], object],
    order: IssueOrder,
    sequence: Iterator[int],
    group: Caller,
) -> Shortcuts:
    """Return what does the plainest calls of a group.

    Args:
        comm: The group's communicator.
        calls: What has been prepared, by operation, reduce op or root, dtype and shape.
        at_barrier: What a barrier has prepared.
        meet: Carries out what was prepared, with the arrays that are given, as the collective of a number.
        order: Gives the turn.
        sequence: Numbers the collectives.
        group: The group.
    """
    array_type, op_type, rank = np.ndarray, ReduceOp, comm.rank
    collected, trail = group.collected, group.trail
    enter, turn, begin, end = order.enter, order.turn, trail.begin, trail.end

    def meet_next(name: str, found: Any, given: Any) -> None:
        number = next(sequence)
        try:
            meet(found, given, number, Deadline(group.timeout_s))
        except BaseException as error:
            comm.broken_off(name, number, error)
            raise

    def shortcut(name: str, reduces: bool) -> Callable[[Any, Any], bool]:
        def call(array: Any, option: Any) -> bool:
            if type(array) is not array_type or not array.flags.carray:
                return False
            if reduces:
                if type(option) is not op_type or option.factor is not None:
                    return False
                found = calls.get((name, option.name, array.dtype, array.shape))
                given: Any = array, option
            else:
                found = calls.get((name, option, array.dtype, array.shape))
                given = ([array], []) if option == rank else ([], [array])
            if found is None or collected or comm.failure is not None or not enter():
                return False
            try:
                begin(name, array)  # here, as it counts the frames up to the program's
                meet_next(name, found, given)
            finally:
                turn.holder = None
                if turn.watchers:
                    order.tell()
            end()
            return True

        return call

    def barrier() -> bool:
        if collected or comm.failure is not None or not enter():
            return False
        try:
            begin("barrier")
            meet_next("barrier", at_barrier, None)
        finally:
            turn.holder = None
            if turn.watchers:
                order.tell()
        end()
        return True

    return Shortcuts(all_reduce=shortcut("all_reduce", True), broadcast=shortcut("broadcast", False), barrier=barrier)
