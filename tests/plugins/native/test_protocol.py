"""The board's protocol holds as `board.c` has it, under the rules of C11, and needs each order of memory there."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))
from protocol_model import FUNCTIONS, Wrong, accesses, explore, programs

BOARD = Path(__file__).parents[3] / "plugins/native/csrc/board.c"
CODE = BOARD.read_text()
ORDER = re.compile(r"memory_order_(acquire|release|seq_cst)")
#: What each order may be weakened to, at first.
WEAKER = {"acquire": ["relaxed"], "release": ["relaxed"], "seq_cst": ["acq_rel", "acquire", "release"]}
#: How many ranks, and turns, and whether who is early sleeps at once.
WORLDS = [(2, 1, False), (2, 3, False), (3, 1, False), (2, 2, True), (3, 1, True)]


def weakened() -> dict[str, str]:
    """Return the code with each order weakened in each way, and without each fence, by its line."""
    codes = {}
    for match in ORDER.finditer(CODE):
        line = f"line {CODE[: match.start()].count(chr(10)) + 1}"
        for order in WEAKER[match[1]]:
            codes[f"{line}: {order}"] = f"{CODE[: match.start(1)]}{order}{CODE[match.end(1) :]}"
        if match[1] == "seq_cst":
            begin = CODE.rindex("atomic_thread_fence", 0, match.start())
            codes[f"{line}: no fence"] = CODE[:begin] + CODE[match.end() + 1 :]
    return codes


def explore_all(code: str) -> None:
    for world in WORLDS:
        explore(programs(accesses(code), *world))


@pytest.mark.parametrize(("size", "turns", "sleeps"), WORLDS)
def test_everyone_reads_what_was_written_for_this_turn_and_nobody_sleeps_for_ever(
    size: int, turns: int, sleeps: bool
) -> None:
    assert explore(programs(accesses(CODE), size, turns, sleeps)) > size


@pytest.mark.parametrize("code", weakened().values(), ids=weakened())
def test_each_order_is_needed(code: str) -> None:
    with pytest.raises(Wrong):
        explore_all(code)


def test_the_model_does_what_the_code_does_in_its_order() -> None:
    fence, look = "atomic_thread_fence(memory_order_seq_cst);\n    ", "int late = board_first_late(board, 1);\n    "
    assert fence + look in CODE
    with pytest.raises(Wrong, match="nobody can go on"):
        explore_all(CODE.replace(fence + look, look + fence))


def test_the_orders_are_all_in_the_model() -> None:
    assert len(ORDER.findall(CODE)) == sum(
        access.order not in ("", "relaxed") for name in FUNCTIONS for access in accesses(CODE)[name]
    )
