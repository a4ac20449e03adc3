"""The compiled parts do what the ones in Python do, to the same bits, and together with them."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("rankwise_gloo_tcp", reason="rankwise-gloo-tcp is not installed")
pytest.importorskip("rankwise_native", reason="rankwise-native is not installed: there may be no compiler")

from rankwise_testing import RankPool

sys.path.insert(0, str(Path(__file__).parent))
import native_programs as programs

TIMEOUT_S = 100.0
#: `{rank}` is the rank: of two, the first is without the compiled parts, and the second has them.
WAYS = {"python": "off", "native": "on", "mixed": "{rank}"}


@pytest.fixture(scope="module", params=[2, 3], ids=["2", "3"])
def size(request: pytest.FixtureRequest) -> int:
    """With a processor for each, or with more ranks than processors."""
    return int(request.param)


@pytest.fixture(scope="module")
def pools(size: int) -> Iterator[dict[str, RankPool]]:
    """One pool for each way; all are kept, since their results are compared."""
    here = {way: value for way, value in WAYS.items() if way != "mixed" or size == 2}
    env = {"RANKWISE_GLOO_TRANSPORT": "shm"}
    with ExitStack() as stack:
        yield {
            way: stack.enter_context(RankPool(size, env={**env, "RANKWISE_NATIVE": value}))
            for way, value in here.items()
        }


def test_each_way_is_what_it_says(pools: dict[str, RankPool]) -> None:
    native = (True, "Trail NativeBoard builtin_function_or_method")
    python = (False, "_PythonTrail Board partial")
    assert set(pools["native"].run(programs.in_use)) == {native}
    assert set(pools["python"].run(programs.in_use)) == {python}
    if "mixed" in pools:
        assert pools["mixed"].run(programs.in_use) == [python, native]


def test_reductions_give_the_same_bits(pools: dict[str, RankPool]) -> None:
    told = {way: pool.run(programs.reductions, timeout=TIMEOUT_S) for way, pool in pools.items()}
    for way, by_rank in told.items():
        for rank, found in enumerate(by_rank):
            wrong = {case for case, digest in found.items() if digest != told["python"][rank][case]}
            assert not wrong, (way, rank, sorted(wrong)[:20])


@pytest.mark.parametrize("what", [programs.movements, programs.noted, programs.places])
def test_movements_and_recorders_are_the_same(pools: dict[str, RankPool], what: Callable[[], Any]) -> None:
    told = {way: pool.run(what, timeout=TIMEOUT_S) for way, pool in pools.items()}
    for way, by_rank in told.items():
        assert by_rank == told["python"], way
