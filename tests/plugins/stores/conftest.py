"""What the tests of stores on servers share."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from tests.servers import EtcdServer, RedisServer, Server, etcd_server, redis_server

KINDS = {"redis": (redis_server, RedisServer), "etcd": (etcd_server, EtcdServer)}


@pytest.fixture(params=KINDS)
def server(request: pytest.FixtureRequest) -> Server:
    """A server of either kind, which other tests use too."""
    return KINDS[request.param][0]()


@pytest.fixture(params=KINDS)
def own_server(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A server of either kind that a test may stop, and start again with what it has kept."""
    with KINDS[request.param][1](tmp_path_factory.mktemp("server")) as server:
        yield server


@pytest.fixture
def prefix(request: pytest.FixtureRequest) -> str:
    """A name that no other test has."""
    return "".join(letter if letter.isalnum() else "-" for letter in request.node.name)
