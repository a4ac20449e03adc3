"""The board: compiled where `rankwise-native` is installed, else in Python."""

from __future__ import annotations

from collections.abc import Callable

from rankwise.backends import compiled_parts as native
from rankwise_gloo_tcp.board.board import Board

__all__ = ["make_board"]


def make_board(descriptor: int, rank: int, size: int, may_spin: bool, look: Callable[[], object]) -> Board:
    """Return this rank's view of a board; ranks with compiled ones and ranks without meet at the same."""
    if native.module() is None:
        return Board(descriptor, rank, size, may_spin, look)
    from rankwise_native.board import NativeBoard

    return NativeBoard(descriptor, rank, size, may_spin, look)
