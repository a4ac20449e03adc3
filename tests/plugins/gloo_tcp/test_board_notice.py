"""Ranks that give their group up at the same moment: whoever is heard is heard in full."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any

import pytest

pytest.importorskip("rankwise_gloo_tcp", reason="rankwise-gloo-tcp is not installed")

from rankwise_gloo_tcp.board.board import Board, available, create

pytestmark = pytest.mark.skipif(sys.platform != "linux" or not available(), reason="a board needs Linux")

TEXTS = [bytes([65 + rank]) * (100 + 50 * rank) for rank in range(3)]


class Interrupted:
    """Memory that lets something happen before or after one of the writes to it."""

    def __init__(self, memory: Any, countdown: list[int], happen: Callable[[], None]) -> None:
        self._memory, self._countdown, self._happen = memory, countdown, happen

    def __getitem__(self, at: Any) -> Any:
        return self._memory[at]

    def __setitem__(self, at: Any, value: Any) -> None:
        self._memory[at] = value
        self._countdown[0] -= 1
        if not self._countdown[0]:
            self._happen()

    def release(self) -> None:
        self._memory.release()


@pytest.fixture
def boards() -> Iterator[list[Board]]:
    descriptor = create(3, may_spin=False)
    with ExitStack() as stack:
        stack.callback(os.close, descriptor)
        views = [Board(descriptor, rank, 3, False, lambda: None) for rank in range(3)]
        for view in views:
            stack.callback(view.close)
        yield views


@pytest.mark.parametrize("after", range(1, 6))
def test_two_that_give_up_at_once_do_not_garble_what_they_say(boards: list[Board], after: int) -> None:
    """The second gives up between any two writes of the first."""
    first, second, third = boards
    countdown = [after]
    board: Any = first
    for name in ("_bytes", "_words"):
        setattr(board, name, Interrupted(getattr(board, name), countdown, lambda: second.give_up(TEXTS[1])))
    first.give_up(TEXTS[0])
    if countdown[0] > 0:
        second.give_up(TEXTS[1])
    for board in boards:
        said = board.given_up()
        assert said in [(rank, TEXTS[rank]) for rank in (0, 1)]
    quitters, text = third.quitters() or ([], b"")
    assert (quitters, text in TEXTS) == ([0, 1], True)


def test_nobody_has_given_up_at_first(boards: list[Board]) -> None:
    assert [board.given_up() for board in boards] == [None] * 3
    boards[2].give_up(TEXTS[2])
    assert [board.given_up() for board in boards] == [(2, TEXTS[2])] * 3
