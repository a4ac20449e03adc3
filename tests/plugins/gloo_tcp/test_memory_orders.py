"""Arrays of another memory order than C's: worked on where they lie if those of all ranks lie alike, else copied."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

from rankwise_testing import RankPool

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE.parents[1]))
sys.path.insert(0, str(HERE))
import memory_order_programs as programs  # noqa: E402
from far_away import RANKS_A_HOST  # noqa: E402

TIMEOUT_S = 120.0
LAYOUTS: dict[str, dict[str, str]] = {
    "one host": {"RANKWISE_GLOO_TRANSPORT": "shm"},
    "one rank a host": {"RANKWISE_GLOO_TRANSPORT": "tcp"},
    "two ranks a host": {RANKS_A_HOST: "2"},
}


@pytest.fixture(scope="module", params=["on", "off"], ids=["native", "python"])
def native(request: pytest.FixtureRequest) -> str:
    if request.param == "on":
        pytest.importorskip("rankwise_native", reason="rankwise-native is not installed: there may be no compiler")
    return str(request.param)


@pytest.fixture(scope="module", params=LAYOUTS)
def ranks(request: pytest.FixtureRequest, native: str) -> Any:
    with RankPool(4, env={**LAYOUTS[request.param], "RANKWISE_NATIVE": native}) as pool:
        yield pool


@pytest.mark.parametrize("terms", [{}, {"async_op": True}, {"timeout": 60}], ids=["plain", "async", "timeout"])
def test_arrays_that_lie_alike_are_not_copied(ranks: RankPool, terms: dict[str, Any]) -> None:
    for orders in ("FFFF", "LLLL"):
        assert ranks.run(programs.copied, orders, "float32", terms, timeout=TIMEOUT_S) == [[0] * 3] * 4


@pytest.mark.parametrize("dtype", ["float16", "int64", "complex64", ">f4"])
def test_of_every_dtype(ranks: RankPool, dtype: str) -> None:
    assert ranks.run(programs.copied, "LLLL", dtype, timeout=TIMEOUT_S) == [[0] * 3] * 4
    assert ranks.run(programs.copied, "LCLF", dtype, timeout=TIMEOUT_S) == [[3] * 3, [0] * 3, [3] * 3, [3] * 3]


@pytest.mark.parametrize("orders", ["CFFF", "FCCC", "CCCF", "FLFL"])
@pytest.mark.parametrize("terms", [{}, {"async_op": True}, {"timeout": 60}], ids=["plain", "async", "timeout"])
def test_arrays_that_lie_otherwise_are_copied_by_those_who_have_them(
    ranks: RankPool, orders: str, terms: dict[str, Any]
) -> None:
    found = ranks.run(programs.copied, orders, "float32", terms, timeout=TIMEOUT_S)
    assert found == [[0 if order == "C" else 3] * 3 for order in orders]


@pytest.mark.parametrize("orders", ["CFFC", "FFFF", "FFCF"])
def test_calls_that_are_made_again_keep_their_place(ranks: RankPool, orders: str) -> None:
    assert ranks.run(programs.in_the_order_of_issue, orders, timeout=TIMEOUT_S) == [16] * 4
