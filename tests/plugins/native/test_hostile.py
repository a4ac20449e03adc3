"""What other processes write into the shared memory can spoil results, never this process."""

from __future__ import annotations

import os
from collections.abc import Iterator
from datetime import timedelta
from itertools import count
from types import SimpleNamespace
from typing import Any, NoReturn

import numpy as np
import pytest

pytest.importorskip("rankwise_gloo_tcp", reason="rankwise-gloo-tcp is not installed")
pytest.importorskip("rankwise_native", reason="rankwise-native is not installed: there may be no compiler")

from rankwise import ReduceOp
from rankwise.backends import Call, Fingerprint
from rankwise.basics import native
from rankwise.basics.recording import make_recorder
from rankwise.collective.issue_order import IssueOrder
from rankwise.errors import CollectiveMismatchError
from rankwise_gloo_tcp.board import board as boards
from rankwise_gloo_tcp.board.compiled import compare
from rankwise_gloo_tcp.board.native_board import NativeBoard
from rankwise_gloo_tcp.board.prepared import BoardKinds
from rankwise_gloo_tcp.collectives.compiled import COMPILED_OPS
from rankwise_gloo_tcp.collectives.kinds import call_like
from rankwise_gloo_tcp.transport.rings import ring_nbytes
from rankwise_native._native import CONSTANTS, Calls, Rings, Turns

pytestmark = pytest.mark.skipif(native.module() is None, reason=f"turned off by {native.VARIABLE}")

ROUNDS = 4000 if os.environ.get("RANKWISE_STRESS") == "1" else 400
RANK, SIZE = 1, 3


class Late(Exception):
    """Others have not come, or so it seems."""


@pytest.fixture
def board() -> Iterator[NativeBoard]:
    """The board of three ranks, of which only this one is there."""
    descriptor = boards.create(SIZE, True)
    made = NativeBoard(descriptor, RANK, SIZE, True, lambda: None)
    os.close(descriptor)
    # What is written for an address is one of this process, or none.
    made.may_read([os.getpid()] * SIZE, all_compiled=True)
    yield made
    made.close()


class Hooks:
    """A Python side that gives up or believes at random.

    Attributes:
        calls: The compiled calls.
        kinds: What the slow path would have prepared, by kind of call.
    """

    def __init__(self, board: NativeBoard, rng: np.random.Generator) -> None:
        self._board_kinds, self._rng = BoardKinds(board), rng
        self.kinds: dict[Any, SimpleNamespace] = {}
        self.tell = IssueOrder("hostile").tell
        self.calls = Calls(board, IssueOrder("hostile").turn, COMPILED_OPS, self)
        self.calls.serve(make_recorder().trail("default", "default", (0, 1, 2)), {}, count(), self, {})

    def prepare(self, name: str, elements: int) -> tuple[Any, ...]:
        """Prepare a call, and return arguments of it."""
        array, parts, outs = np.ones(elements, np.float32), arrays(elements), arrays(elements)
        calls: dict[str, tuple[Call, tuple[Any, ...]]] = {
            "all_reduce": (Call(name, array, ReduceOp.SUM), (array, ReduceOp.SUM)),
            "broadcast": (Call(name, array, root=0), (array, 0)),
            "all_gather": (Call(name, array, outs=parts), (parts, array)),
            "reduce_scatter": (Call(name, array, ReduceOp.SUM, ins=parts), (array, parts, ReduceOp.SUM)),
            "all_to_all": (Call(name, parts[RANK], ins=parts, outs=outs), (outs, parts)),
            "barrier": (Call(name), ()),
        }
        call, given = calls[name]
        kind = self._board_kinds.prepare(call)
        assert kind is not None
        self.kinds[call.kind] = SimpleNamespace(about=call.fingerprint.digest(), record=kind.prepared.about(RANK))
        return given

    digest = staticmethod(Fingerprint.digest_of)

    def wait(self, deadline: Any) -> Any:
        if self._rng.random() < 0.5:
            raise Late
        return "a deadline"

    def learn(self, name: str, array: Any, option: Any, numbers: tuple[int, ...]) -> Any:
        return self.kinds.get(call_like(name, array, option, numbers, RANK).kind)

    def along(self, name: str) -> NoReturn:
        raise AssertionError("calls at a board have no wire")

    def allow(self, name: str, array: Any, option: Any, text: bytes) -> None:
        return None  # so that `learn` is asked

    kind = learn

    def garbled(self) -> CollectiveMismatchError:
        return CollectiveMismatchError("it is none of such a call", (0,))

    def failed(self, kind: Any, number: int, error: BaseException | None, given: Any) -> None:
        raise error or CollectiveMismatchError("they differ", (0,))

    broken = failed


def arrays(elements: int) -> list[Any]:
    return [np.ones(elements, np.float32) for _ in range(SIZE)]


def scribble(board: NativeBoard, rng: np.random.Generator, number: int, about: tuple[int, ...]) -> None:
    """Write nonsense over all that others may write, and often let it look as if they had come, and made this call."""
    words, memory = board._words, np.frombuffer(board._bytes, np.uint8)
    where = rng.integers(0, len(memory), 64)
    memory[where] = rng.integers(0, 256, 64)
    for index in board._others[(board._turn + 1) & 1]:
        words[index] = [0, board._turn + 1, 1 << 63, (1 << 64) - 1][rng.integers(4)]
    for at in board._table[(board._turn + 1) & 1]:
        for field in range(6):
            words[at + field] = [0, 1, 1 << 20, 1 << 63, (1 << 64) - 1][rng.integers(5)]
        if rng.random() < 0.8:
            sent, received = (about[3], about[2]) if at == board._places[(board._turn + 1) & 1][0] else (0, 0)
            for field, word in enumerate((number, about[0], 7, sent, received, int(rng.integers(1 << 21)))):
                words[at + field] = word


NAMES = ("all_reduce", "broadcast", "all_gather", "reduce_scatter", "all_to_all", "barrier")


@pytest.mark.parametrize("elements", [1, 3000, 700_000])
@pytest.mark.parametrize("name", NAMES)
def test_nonsense_in_shared_memory_harms_nobody(board: NativeBoard, name: str, elements: int) -> None:
    rng = np.random.default_rng(elements + NAMES.index(name))
    hooks = Hooks(board, rng)
    given = hooks.prepare(name, elements)
    (plan,) = hooks.kinds.values()
    ends: dict[str, int] = {}
    made = 0
    for _ in range(ROUNDS if elements < 100_000 else 20):
        scribble(board, rng, made, plan.record)
        try:
            # Nobody has said that there would be an end to it, where the records tell how much is to come.
            end = "longest" if name == "all_to_all" and _long(board) else str(getattr(hooks.calls, name)(*given, None))
        except (Late, CollectiveMismatchError, OSError) as error:
            end = type(error).__name__
        made += end != "longest"
        ends[end] = ends.get(end, 0) + 1
    assert "False" not in ends
    assert {"True", "Late"} <= set(ends) or elements > 100_000, ends


@pytest.mark.parametrize("seed", range(4))
def test_nonsense_in_the_rings_harms_nobody(seed: int) -> None:
    rng = np.random.default_rng(seed)
    nbytes = ring_nbytes(64)
    memory_of_both, room = memoryview(bytearray(2 * nbytes + 16)), memoryview(bytearray(5000))
    out, into = memory_of_both[:nbytes], memory_of_both[nbytes : 2 * nbytes]
    rings = Rings(memory_of_both, (0, nbytes, nbytes, 2 * nbytes), ("", 0))
    words, memory = into.cast("Q"), np.frombuffer(into, np.uint8)
    kinds: dict[int, int] = {}
    for _ in range(10 * ROUNDS):
        memory[rng.integers(0, len(memory), 64)] = rng.integers(0, 256, 64)
        far = [0, 32, 64, 4096, rings.capacity, rings.capacity + 32, 1 << 40, (1 << 64) - 32, 7][rng.integers(9)]
        words[0] = (rings.tail + int(far)) % (1 << 64)
        out.cast("Q")[16] = int(rng.integers(1 << 20))
        at = 32 + int(rings.tail % rings.capacity) // 8
        words[at] = int(rng.choice([0, 1, 5 << 32 | 1, 2, 9, 255, 77]))
        words[at + 1] = int(rng.choice([0, 8, 4000, 5001, 1 << 20, 1 << 60]))
        frame = rings.next()
        kind = -1 if frame is None else frame[0] & 0xFF
        kinds[kind] = kinds.get(kind, 0) + 1
        if kind not in (-1, 254):
            assert len(rings.payload(frame[1] if frame and frame[1] < 1 << 40 else 5)) <= rings.capacity
            if rings.take(5 << 32 | 1, 0, room) < 0:
                rings.advance(int(rng.choice([0, 32, 100, 5000])))
        rings.write(1, 100, 0, 0, room[: int(rng.integers(5000))])
    assert {-1, 1, 2, 9, 254, 255} <= set(kinds)
    rings.close()


def _long(board: NativeBoard) -> bool:
    """Tell whether a record promises more than a test can wait for."""
    return any(board._words[at + 5] > 1 << 22 for at in board._table[(board._turn + 1) & 1])


@pytest.mark.parametrize(
    "layout",
    [
        (3, 3, 4096, 128, 8192, 12288, 4096, 4096),  # a rank beyond the size
        (0, 0, 4096, 128, 8192, 12288, 4096, 4096),
        (0, 5000, 4096, 128, 8192, 12288, 4096, 4096),
        (0, 2, -8, 128, 8192, 12288, 4096, 4096),
        (0, 2, 4096, 128, 8192, 12288, 1 << 62, 4096),
        (0, 2, 4096, 128, 8192, (1 << 62) + 8, 4096, 4096),
        (0, 2, 4096, 128, 4096, 12288, 4096, 4096),  # the records over the control blocks
        (0, 2, 4096, 128, 8192, 12288, 4096, 8192),  # slots larger than areas
        (0, 2, 4097, 128, 8192, 12288, 4096, 4096),  # words that lie across others
    ],
)
def test_a_layout_that_the_memory_does_not_hold_is_refused(layout: tuple[int, ...]) -> None:
    with pytest.raises(ValueError, match="does not hold"):
        Turns().attach(memoryview(bytearray(1 << 16)), boards.Layout(*layout), True)


def test_a_closed_board_is_not_touched() -> None:
    turns = Turns()
    turns.attach(memoryview(bytearray(1 << 16)), boards.Layout(0, 2, 4096, 128, 8192, 12288, 4096, 4096), True)
    turns.detach()
    for use in (turns.arrive, turns.wake, lambda: turns.doze(0.001)):
        with pytest.raises(ValueError, match="closed"):
            use()


@pytest.mark.parametrize("nonsense", [None, 1, "x", [], (), np.float32(1), object(), np.ones((4, 4))[:, 1]])
def test_odd_arguments_are_left_to_the_general_way(board: NativeBoard, nonsense: Any) -> None:
    calls = Hooks(board, np.random.default_rng(0)).calls
    array = np.ones(3)
    for name, n in (("all_reduce", 2), ("broadcast", 2), ("all_gather", 2), ("reduce_scatter", 3), ("all_to_all", 2)):
        call = getattr(calls, name)
        assert call(*[nonsense] * n, None) is False
        assert call(*[nonsense] * (n - 1), array, None) is False
        assert call(array, *[nonsense] * (n - 1), None) is False
        assert call() is False


LISTS: list[Any] = [
    *(None, (), [], [np.ones(1)], "xy", (np.ones(1), np.ones(1)), [np.ones(1), 1], [np.ones(1), np.ones(1, "f4")]),
    *([np.ones(1)] * 257, [np.ones(5000), np.ones(5000)], [np.ones(0), np.ones(0)], [np.ones((2, 2)).T, np.ones(1)]),
    [np.ones(1), np.broadcast_to(np.ones(1), (2,))],
]


@pytest.mark.parametrize("arrays", LISTS)
def test_odd_lists_are_left_to_the_general_way(board: NativeBoard, arrays: Any) -> None:
    calls = Hooks(board, np.random.default_rng(0)).calls
    assert calls.all_reduce_coalesced(arrays, ReduceOp.SUM, None) is False
    assert calls.known("all_reduce_coalesced", (arrays, ReduceOp.SUM)) is None


@pytest.mark.parametrize(
    ("name", "args"),
    [
        ("nothing", ()),
        ("all_reduce", (np.ones(1),)),
        ("together", (np.ones(1), ReduceOp.SUM, "x", -1)),
        ("together", (np.ones(1), ReduceOp.SUM, -(1 << 70), -1)),
        ("together", (np.ones((1, 1)), ReduceOp.SUM, -2, -1)),
    ],
)
def test_what_no_call_has_is_not_known(board: NativeBoard, name: str, args: Any) -> None:
    assert Hooks(board, np.random.default_rng(0)).calls.known(name, args) is None


@pytest.mark.parametrize("timeout", [-1.0, float("nan"), -1, 1e10, 10**400, "1", True, timedelta(-1), timedelta.max])
def test_an_odd_time_out_is_left_to_the_general_way(board: NativeBoard, timeout: Any) -> None:
    hooks = Hooks(board, np.random.default_rng(0))
    assert hooks.calls.all_reduce(*hooks.prepare("all_reduce", 3), timeout) is False


@pytest.mark.parametrize("name", CONSTANTS)
def test_a_constant_that_differs_from_pythons_is_noticed_when_gloo_is_loaded(name: str) -> None:
    compare(CONSTANTS)
    with pytest.raises(ImportError, match=f": {name}$"):
        compare({**CONSTANTS, name: CONSTANTS[name] + 1})
    with pytest.raises(ImportError, match=f": {name}$"):
        compare({other: value for other, value in CONSTANTS.items() if other != name})
