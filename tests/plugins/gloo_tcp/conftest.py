"""Process pools for each way in which the backend can move bytes."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

pytest.importorskip("rankwise_gloo_tcp", reason="rankwise-gloo-tcp is not installed")

from rankwise.testing import RankPool

TRANSPORTS = ("tcp", "shm")


@pytest.fixture(scope="module", params=TRANSPORTS)
def pool(request: pytest.FixtureRequest) -> Iterator[RankPool]:
    """Three ranks that use one transport."""
    with RankPool(3, env={"RANKWISE_GLOO_TRANSPORT": request.param, "PYTHONFAULTHANDLER": "1"}) as pool:
        yield pool
