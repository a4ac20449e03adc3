"""Halos, scans and transposes through windows, on each backend; and where there is no window."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import rankwise as dist
from rankwise_local import local_world

HERE = Path(__file__).parent
sys.path[:0] = [] if str(HERE) in sys.path else [str(HERE)]
import window_programs as programs  # noqa: E402
from ways import PATIENCE_S, Ranks  # noqa: E402

each_program = pytest.mark.parametrize(
    "program", [programs.large_scans, programs.large_transposes, programs.halos_of_several_shapes]
)


@each_program
@pytest.mark.parametrize("size", [2, 3])
def test_large_arrays_come_as_numpy_has_them(ranks: Ranks, size: int, program: Callable[[], None]) -> None:
    assert ranks.run(size, programs.has_window) == [True] * size
    ranks.run(size, program)


@each_program
def test_ranks_without_common_memory_do_without_a_window(
    program: Callable[[], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*args: Any, **more: Any) -> None:
        raise dist.UnsupportedOperationError("no memory in common")

    monkeypatch.setattr("rankwise_arrays.windows.shared_empty", refuse)
    with local_world(3, timeout=PATIENCE_S) as world:
        assert world.run(programs.has_window) == [False] * 3
        world.run(program)


@pytest.mark.parametrize("size", [1, 17])
def test_one_rank_and_many_have_no_window(size: int) -> None:
    with local_world(size, timeout=PATIENCE_S) as world:
        assert world.run(programs.has_window) == [False] * size


def test_all_ranks_hear_of_one_that_calls_something_else(ranks: Ranks) -> None:
    for told in ranks.run(3, programs.differing_halos):
        assert [text.partition(":")[0] for text in told] == ["exchange_halos", "transpose", "scan"]
        assert all("float32" in text for text in told)


def test_a_neighbours_face_of_another_shape_is_refused() -> None:
    def exchange() -> None:
        with pytest.raises(ValueError, match=r"exchange_halos: a face of shape \(1, \d\) comes for a halo of shape"):
            dist.grid([2, 1]).exchange_halos(np.zeros((4, 4 + dist.get_rank())))

    with local_world(2, timeout=PATIENCE_S) as world:
        world.run(exchange)


def test_faces_are_found_again_when_a_neighbours_array_gets_another_shape() -> None:
    def exchange() -> None:
        me, grid = dist.get_rank(), dist.grid([2, 1])
        for turn, rows in enumerate((4, 40, 40, 4)):
            mine = np.zeros((rows if me == 0 else 4, 3))
            mine[1:-1, 1:-1] = 10 * turn + me + 1
            grid.exchange_halos(mine)
            assert mine[-1 if me == 0 else 0].tolist() == [0, 10 * turn + 2 - me, 0]

    with local_world(2, timeout=PATIENCE_S) as world:
        world.run(exchange)


def test_a_new_default_group_has_a_window_of_its_own() -> None:
    def exchange(grids: list[Any]) -> list[float]:
        line = np.array([0.0, dist.get_rank() + 1, 0.0])
        grids[dist.get_rank()] = grids[dist.get_rank()] or dist.grid([2])
        grids[dist.get_rank()].exchange_halos(line)
        return line.tolist()

    grids: list[Any] = [None, None]
    for _ in range(2):
        with local_world(2, timeout=PATIENCE_S) as world:
            assert world.run(exchange, grids) == [[0, 1, 2], [1, 2, 0]]
