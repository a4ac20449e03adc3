"""The comparison of calls at the board: the records of `rankwise.collective.fingerprint`, without messages."""

from __future__ import annotations

from rankwise.backends import Deadline
from rankwise.errors import DistTimeoutError
from rankwise_gloo_tcp.board.board import Board


def timely(board: Board, names: tuple[int, ...], deadline: Deadline, *numbers: int) -> None:
    """Tell some numbers, if any, and return once everyone has come to the same point.

    Raises:
        DistTimeoutError: Some have not; it names them.
    """
    try:
        board.tell(numbers, deadline) if numbers else board.meet(deadline)
    except TimeoutError:
        raise late(board, names, deadline) from None


def late(board: Board, names: tuple[int, ...], deadline: Deadline) -> DistTimeoutError:
    """Return the error of a meeting to which some have not come."""
    late = [names[peer] for peer in board.late()]
    who = f"rank{'s' * (len(late) > 1)} {', '.join(map(str, late[:16]))}"
    error = DistTimeoutError(f"not done within {deadline.timeout_s:g} s, waiting for {who}")
    error.waited_for = tuple(late)
    return error
