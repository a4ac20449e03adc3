"""The comparison of calls at the board: the records of `rankwise.fingerprint`, without messages."""

from __future__ import annotations

from rankwise.deadline import Deadline
from rankwise.errors import DistTimeoutError
from rankwise_gloo_tcp.board import Board

__all__ = ["compare", "timely"]


def compare(
    board: Board,
    sequence: int,
    digest: int,
    about: tuple[int, int, int, int],
    names: tuple[int, ...],
    deadline: Deadline,
) -> bool:
    """Tell whether all ranks make the same call; see `Board.exchange`.

    Raises:
        DistTimeoutError: Some ranks have not come; it names them.
    """
    try:
        return board.exchange(sequence, digest, about, deadline)
    except TimeoutError as error:
        raise _late(board, names, deadline) from error


def timely(board: Board, names: tuple[int, ...], deadline: Deadline) -> None:
    """Return once everyone has come to the same point.

    Raises:
        DistTimeoutError: Some have not; it names them.
    """
    try:
        board.meet(deadline)
    except TimeoutError as error:
        raise _late(board, names, deadline) from error


def _late(board: Board, names: tuple[int, ...], deadline: Deadline) -> DistTimeoutError:
    late = [names[peer] for peer in board.late()]
    who = f"rank{'s' * (len(late) > 1)} {', '.join(map(str, late[:16]))}"
    error = DistTimeoutError(f"not done within {deadline.timeout_s:g} s, waiting for {who}")
    error.waited_for = tuple(late)
    return error
