"""Ends that others see at the board: ranks that give their group up at the same moment, and ranks that leave it."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from types import SimpleNamespace
from typing import Any, cast

import pytest

from rankwise.backends import Deadline
from rankwise.errors import PeerDiedError
from rankwise_gloo_tcp.board.board import Board, available, create
from rankwise_gloo_tcp.communicator import GlooCommunicator
from rankwise_gloo_tcp.protocol.frames import notice

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


class Waiting:
    """A rank that waits at the board, as the communicator does between two looks; another acts while it looks."""

    failure: BaseException | None = None
    context = SimpleNamespace(global_ranks=(10, 11, 12))

    def __init__(self, board: Board) -> None:
        self.board, self.failures = board, list[BaseException]()
        peers = [SimpleNamespace(dead=None, card=SimpleNamespace(host="here")) for _ in range(3)]
        self.engine = SimpleNamespace(look=lambda: None, is_tended=lambda: False, peers=peers)

    def fail(self, error: BaseException) -> None:
        self.failures.append(error)

    def _why_gone(self, peer: int, board: Board) -> Any:
        return GlooCommunicator._why_gone(cast(Any, self), peer, board)

    def look(self) -> None:
        GlooCommunicator.look(cast(Any, self))


def come(board: Board) -> None:
    with suppress(TimeoutError):  # the others are not there yet
        board.meet(Deadline(0.0))


@pytest.mark.parametrize("how", ["leaves", "gives up", "dies"])
@pytest.mark.parametrize("came", [True, False])
def test_who_came_before_it_went_is_not_missed(boards: list[Board], how: str, came: bool) -> None:
    """Between two looks of a rank at the memory another comes to the meeting, does its part, and goes."""
    first, second, third = boards
    waiting = Waiting(first)
    come(first)
    come(third)
    board: Any = first
    late = first.late
    assert late() == [1]

    def found_late() -> list[int]:
        found = late()
        if found and not waiting.failures and board.late is found_late:
            board.late = late
            if came:
                come(second)
            if how == "dies":
                waiting.engine.peers[1].dead = PeerDiedError(11, "here", "it has been killed")
            elif how == "leaves":
                second.leave()
            else:
                second.give_up(notice(PeerDiedError(12, "here", "it has been killed"), 11))
        return found

    board.late = found_late
    waiting.look()
    waiting.look()
    assert bool(waiting.failures) is not came


def test_nobody_has_given_up_at_first(boards: list[Board]) -> None:
    assert [board.given_up() for board in boards] == [None] * 3
    boards[2].give_up(TEXTS[2])
    assert [board.given_up() for board in boards] == [(2, TEXTS[2])] * 3
