"""The comparison of calls at the board: the records of `rankwise.fingerprint`, without messages."""

from __future__ import annotations

from rankwise import fingerprint as fp
from rankwise.deadline import Deadline
from rankwise.errors import DistTimeoutError
from rankwise.fingerprint import Fingerprint
from rankwise_gloo_tcp.board import Board

__all__ = ["pack", "same", "compare", "counts", "timely"]


def pack(rank: int, call: Fingerprint, sequence: int) -> bytes:
    """Return the record of a call."""
    sent = received = 0
    if call.sent or call.received:
        sent = sum(fp._pair(rank, peer, count) for peer, count in call.sent) & fp._MASK
        received = sum(fp._pair(peer, rank, count) for peer, count in call.received) & fp._MASK
    return fp._RECORD.pack(sequence, call.digest(), call.count, sent, received)


def same(rows: list[bytes]) -> bool:
    """Tell whether all records belong to one call."""
    if rows.count(rows[0]) == len(rows):
        record = fp._RECORD.unpack(rows[0])
        return bool((record[3] * len(rows) - record[4] * len(rows)) & fp._MASK == 0)
    sequences, digests, _, sent, received = zip(*map(fp._RECORD.unpack, rows), strict=True)
    return len(set(sequences)) == len(set(digests)) == 1 and sum(sent) & fp._MASK == sum(received) & fp._MASK


def counts(rows: list[bytes]) -> tuple[int, ...]:
    """Return how many elements each rank contributes."""
    return tuple(fp._RECORD.unpack(row)[2] for row in rows)


def compare(board: Board, record: bytes, names: tuple[int, ...], deadline: Deadline) -> list[bytes]:
    """Exchange records.

    Raises:
        DistTimeoutError: Some ranks have not come; it names them.
    """
    try:
        return board.exchange(record, deadline)
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
    return DistTimeoutError(f"not done within {deadline.timeout_s:g} s, waiting for {who}")
