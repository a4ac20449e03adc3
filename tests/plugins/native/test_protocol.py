"""The board's protocol holds on processors that change the order of memory accesses, and needs each of its fences."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))
from protocol_model import ORDERS, Wrong, exchanges, explore, sleepers

BOARD = Path(__file__).parents[3] / "plugins/native/csrc/board.c"


@pytest.mark.parametrize(("size", "turns"), [(2, 1), (2, 4), (3, 2)])
def test_everyone_reads_what_was_written_for_this_turn(size: int, turns: int) -> None:
    assert explore(exchanges(size, turns)) > 1


@pytest.mark.parametrize("size", [2, 3])
def test_nobody_sleeps_for_ever(size: int) -> None:
    assert explore(sleepers(size)) > 1


@pytest.mark.parametrize("order", ORDERS[:2])
def test_data_needs_release_and_acquire(order: str) -> None:
    with pytest.raises(Wrong, match="instead of"):
        explore(exchanges(2, 3, without=order))


@pytest.mark.parametrize("order", ORDERS[2:])
def test_sleep_needs_both_fences(order: str) -> None:
    with pytest.raises(Wrong, match="nobody can go on"):
        explore(sleepers(2, without=order))


def test_the_model_is_of_the_code() -> None:
    code = BOARD.read_text()
    arrive, doze = code[code.index("bool board_arrive") :], code[code.index("bool board_doze") :]
    assert "turn, memory_order_release" in arrive[: arrive.index("first_late")]
    assert "atomic_thread_fence(memory_order_seq_cst)" in arrive[: arrive.index("first_late")]
    assert "memory_order_acquire" in code[code.index("static int board_first_late") : code.index("void board_wake")]
    assert "atomic_thread_fence(memory_order_seq_cst)" in doze[: doze.index("first_late")]
