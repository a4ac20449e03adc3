"""What C chooses for the first call of a kind is what Python would have chosen, and tells the other ranks the same."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from itertools import count
from types import SimpleNamespace
from typing import Any, NoReturn

import numpy as np
import pytest

pytest.importorskip("rankwise_gloo_tcp", reason="rankwise-gloo-tcp is not installed")
pytest.importorskip("rankwise_native", reason="rankwise-native is not installed: there may be no compiler")

from rankwise import ReduceOp
from rankwise.backends import Call, Cell, Condition, Fingerprint, Support
from rankwise.basics import native
from rankwise.basics.recording import make_recorder
from rankwise.collective.issue_order import IssueOrder
from rankwise_gloo_tcp.board import board as boards
from rankwise_gloo_tcp.board.native_board import NativeBoard
from rankwise_gloo_tcp.board.prepared import BoardKinds
from rankwise_gloo_tcp.collectives.compiled import COMPILED_OPS
from rankwise_gloo_tcp.collectives.kinds import call_like
from rankwise_native import Calls

pytestmark = pytest.mark.skipif(native.module() is None, reason=f"turned off by {native.VARIABLE}")

SIZE = 3
#: One element; some; more than fit into a slot; so many that parts are fetched, or that ranks share the reduction.
COUNTS = (1, 3000, 700_000, 3_000_000)


class Alone(Exception):
    """The other ranks do not come."""


class Hooks:
    """The Python side of calls that all end in their first wait.

    Args:
        board: Where they are made.
        certain: What the table takes on any machine.
    """

    def __init__(self, board: NativeBoard, certain: dict[str, Mapping[str, frozenset[str]]] | None = None) -> None:
        self.board, order = board, IssueOrder("first")
        self.tell = order.tell
        self.calls = Calls(board, order.turn, COMPILED_OPS, self)
        self.calls.serve(make_recorder().trail("default", "default", (0, 1, 2)), {}, count(), self, certain or {})
        self.asked: list[Any] = []
        self.texts: list[bytes] = []
        self.not_certain: list[str] = []

    def along(self, name: str) -> NoReturn:
        raise AssertionError("calls at a board have no wire")

    def allow(self, name: str, array: Any, option: Any, text: bytes) -> int:
        """Have C choose."""
        self.not_certain.append(name)
        return self.digest(text)

    def digest(self, text: bytes) -> int:
        """Keep what C says that all ranks compare."""
        self.texts.append(text)
        return Fingerprint.digest_of(text)

    def kind(self, *given: Any) -> SimpleNamespace:
        """Keep what it says of the kind when the call has ended."""
        self.asked.append(given)
        return SimpleNamespace()

    def learn(self, *given: Any) -> None:
        """Know none."""

    def wait(self, deadline: Any) -> NoReturn:
        raise Alone

    def failed(self, kind: Any, number: int, error: Any, deadline: Any) -> NoReturn:
        raise error

    broken = failed

    def unreadable(self) -> BaseException:
        return Alone()

    garbled = unreadable


@pytest.fixture(params=[0, 1, 2])
def board(request: pytest.FixtureRequest) -> Iterator[NativeBoard]:
    """The board of three ranks, of which only one is there."""
    descriptor = boards.create(SIZE, True)
    made = NativeBoard(descriptor, request.param, SIZE, True, lambda: None)
    os.close(descriptor)
    made.may_read([os.getpid()] * SIZE, all_compiled=True)
    yield made
    made.close()


def calls(elements: int, rank: int) -> list[tuple[str, tuple[Any, ...], Call]]:
    """Return public calls of one rank: their names and arguments, and what the general path makes of them."""

    def several(*sizes: int) -> list[Any]:
        return [np.zeros(size, np.float32) for size in sizes]

    array = np.zeros((elements, 1), np.float32)
    parts, outs = several(elements, 2, elements), several(elements, 2, elements)
    mine = several(parts[rank].size)[0]
    found: list[tuple[str, tuple[Any, ...], Call]] = [
        ("all_reduce", (array, ReduceOp.MAX), Call("all_reduce", array, ReduceOp.MAX)),
        ("all_gather", (outs, mine), Call("all_gather", mine, outs=outs)),
        ("reduce_scatter", (mine, parts, ReduceOp.SUM), Call("reduce_scatter", mine, ReduceOp.SUM, ins=parts)),
        ("all_to_all", (outs, parts), Call("all_to_all", parts[rank], ins=parts, outs=outs)),
    ]
    for root in range(SIZE):
        given, taken = (parts, outs) if rank == root else (None, None)
        found += [
            ("broadcast", (array, root), Call("broadcast", array, root=root)),
            ("reduce", (array, ReduceOp.SUM, root), Call("reduce", array, ReduceOp.SUM, root)),
            ("gather", (mine, taken, root), Call("gather", mine, root=root, outs=taken)),
            ("scatter", (mine, given, root), Call("scatter", mine, root=root, ins=given)),
        ]
    return found


@pytest.mark.parametrize("elements", COUNTS)
def test_c_chooses_and_tells_what_python_does(board: NativeBoard, elements: int) -> None:
    hooks = Hooks(board)
    for name, given, call in calls(elements, board.rank):
        with pytest.raises(Alone):
            getattr(hooks.calls, name)(*given, None)
        assert Fingerprint.digest_of(hooks.texts.pop()) == call.fingerprint.digest()
        asked = hooks.asked.pop()
        like = call_like(*asked, board.rank)
        assert (like.kind, like.fingerprint) == (call.kind, call.fingerprint)
        kind = BoardKinds(board).prepare(call)
        assert kind is not None
        place = board._table[board._turn & 1][board.rank]
        assert tuple(board._words[place + 1 : place + 6]) == kind.prepared.about(board.rank), (name, given[-1])


@pytest.mark.parametrize(
    ("cell", "certain"),
    [
        (Cell(Support.NATIVE), True),
        (Cell(Support.CONDITIONAL, "it depends", holds=bool), False),
        (Cell(Support.NATIVE, dtypes=frozenset({"float64", "int8"})), False),
        (Cell(Support.NATIVE, only_if={"float32": Condition("it depends", bool)}), False),
        (Cell(Support.NATIVE, only_if={"float64": Condition("it depends", bool)}), True),
        (Cell(Support.NATIVE, reduce_ops={"PRODUCT": frozenset({"float32"}), "MAX": frozenset({"int8"})}), None),
        (None, False),
    ],
)
def test_the_table_is_asked_of_what_is_not_certain(board: NativeBoard, cell: Cell | None, certain: bool | None) -> None:
    """`certain` is None where it is for calls that do not reduce."""
    made = calls(1, board.rank)
    cells = {} if cell is None else {name: cell.certainly for name, _, _ in made}
    for name, given, call in made:
        hooks = Hooks(board, cells)
        with pytest.raises(Alone):
            getattr(hooks.calls, name)(*given, None)
        expected = call.reduce_op is None if certain is None else certain
        assert hooks.not_certain == ([] if expected else [name]), name
        assert Fingerprint.digest_of(hooks.texts.pop()) == call.fingerprint.digest()
