"""The board and its shortest calls: compiled where `rankwise-native` is installed, else in Python."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from rankwise.backends import Communicator
from rankwise.backends.shortcuts import Caller, Shortcuts
from rankwise.basics import native
from rankwise.collective.issue_order import IssueOrder
from rankwise_gloo_tcp.board.board import Board
from rankwise_gloo_tcp.board.shortest import Meeting, shortest

__all__ = ["make_board", "make_shortcuts"]


def make_board(descriptor: int, rank: int, size: int, may_spin: bool, look: Callable[[], object]) -> Board:
    """Return this rank's view of a board; ranks with compiled ones and ranks without meet at the same."""
    if native.module() is None:
        return Board(descriptor, rank, size, may_spin, look)
    from rankwise_native.board import NativeBoard

    return NativeBoard(descriptor, rank, size, may_spin, look)


def make_shortcuts(
    comm: Communicator, ways: Meeting, order: IssueOrder, sequence: Iterator[int], group: Caller
) -> Shortcuts:
    """Return what does the plainest calls; the arguments are those of `shortest`."""
    made: Any = shortest
    if native.module() is not None:
        from rankwise_native.shortest import shortest as made
    found: Shortcuts = made(comm, ways, order, sequence, group)
    return found
