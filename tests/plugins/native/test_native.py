"""The compiled parts do what the ones in Python do, to the same bits, and together with them."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

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
    made: dict[str, RankPool] = {}
    try:
        for way, value in WAYS.items():
            if way != "mixed" or size == 2:
                made[way] = RankPool(size, env={"RANKWISE_GLOO_TRANSPORT": "shm", "RANKWISE_NATIVE": value})
                made[way].__enter__()
        yield made
    finally:
        for pool in made.values():
            pool.__exit__(None, None, None)


def test_each_way_is_what_it_says(pools: dict[str, RankPool]) -> None:
    native = (True, "Trail NativeBoard builtin_function_or_method")
    python = (False, "_PythonTrail Board function")
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


def test_movements_give_the_same_bits(pools: dict[str, RankPool]) -> None:
    told = {way: pool.run(programs.movements, timeout=TIMEOUT_S) for way, pool in pools.items()}
    for way, by_rank in told.items():
        assert by_rank == told["python"], way


def test_the_recorders_say_the_same(pools: dict[str, RankPool]) -> None:
    for what in (programs.noted, programs.places):
        told = {way: pool.run(what) for way, pool in pools.items()}
        assert all(by_rank == told["python"] for by_rank in told.values()), told
