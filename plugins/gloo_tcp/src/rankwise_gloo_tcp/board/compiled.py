"""The board: compiled where `rankwise-native` is installed, else in Python."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from rankwise.backends import FINGERPRINT_TAG
from rankwise.backends import compiled_parts as native
from rankwise_gloo_tcp.board import board
from rankwise_gloo_tcp.board.board import Board
from rankwise_gloo_tcp.board.reducing import ONE_SHOT_NBYTES
from rankwise_gloo_tcp.protocol.frames import TAG_NBYTES
from rankwise_gloo_tcp.transport import rings

#: How C calls the ways of a call: those at the board, and the two of calls between hosts and of those in steps.
WAYS = {"MEET": 1, "ONE_SHOT": 2, "TWO_SHOT": 3, "MOVE": 4, "COMBINE": 5, "ALONG": 6, "PROGRAM": 7}
#: What the compiled parts and Python both know of memory that ranks share, and of frames.
SHARED = {
    **board.SHARED,
    **rings.SHARED,
    "ONE_SHOT_NBYTES": ONE_SHOT_NBYTES,
    **WAYS,
    "FINGERPRINT_TAG": FINGERPRINT_TAG,
    "HEAD_TAG_NBYTES": TAG_NBYTES,
}


def make_board(descriptor: int, rank: int, size: int, may_spin: bool, look: Callable[[], object]) -> Board:
    """Return this rank's view of a board; ranks with compiled ones and ranks without meet at the same."""
    if native.module() is None:
        return Board(descriptor, rank, size, may_spin, look)
    from rankwise_gloo_tcp.board.native_board import NativeBoard

    return NativeBoard(descriptor, rank, size, may_spin, look)


def compare(theirs: Mapping[str, int]) -> None:
    """Raise unless the compiled parts see shared memory as Python does: else ranks would read garbage."""
    differ = sorted({name for name, _ in set(theirs.items()) ^ set(SHARED.items())})
    if differ:
        raise ImportError(
            f"rankwise-native sees shared memory in another way than rankwise-gloo-tcp: {', '.join(differ)}"
        )


if (_native := native.module()) is not None:
    compare(_native.CONSTANTS)
