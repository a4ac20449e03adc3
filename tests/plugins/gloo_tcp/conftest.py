"""Process pools for each way in which the backend can move bytes, and hosts."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))
from machines import Hosts

from rankwise_testing import RankPool

collect_ignore_glob = [] if find_spec("rankwise_gloo_tcp") else ["*"]

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


@pytest.fixture(scope="module")
def hosts() -> Iterator[Hosts]:
    """Two hosts."""
    with Hosts(2) as hosts:
        yield hosts
