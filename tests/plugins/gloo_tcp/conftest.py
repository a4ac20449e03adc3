"""Process pools for each way in which the backend can move bytes."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

pytest.importorskip("rankwise_gloo_tcp", reason="rankwise-gloo-tcp is not installed")

from rankwise_testing import RankPool

#: In "copied" nobody may read another process's memory, as in many containers.
TRANSPORTS = ("tcp", "shm", "copied")


@pytest.fixture(scope="module", params=TRANSPORTS)
def pool(request: pytest.FixtureRequest) -> Iterator[RankPool]:
    """Three ranks that use one transport."""
    env = {"RANKWISE_GLOO_TRANSPORT": request.param, "PYTHONFAULTHANDLER": "1"}
    if request.param == "copied":
        env.update(RANKWISE_GLOO_TRANSPORT="shm", RANKWISE_GLOO_PEER_MEMORY="off")
    with RankPool(3, env=env) as pool:
        yield pool
