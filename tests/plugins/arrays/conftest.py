"""Ranks in each way, for the tests of rankwise-arrays."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

HERE = Path(__file__).parent
sys.path[:0] = [] if str(HERE) in sys.path else [str(HERE)]
from ways import WAYS, Ranks  # noqa: E402


@pytest.fixture(scope="module", params=WAYS)
def ranks(request: pytest.FixtureRequest) -> Iterator[Ranks]:
    """Return what runs functions on ranks, in each way."""
    made = Ranks(request.param)
    yield made
    made.close()
