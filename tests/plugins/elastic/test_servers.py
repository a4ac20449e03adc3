"""Elastic jobs that meet in a Redis or an etcd: no rank serves the store, and the server may be started again."""

from __future__ import annotations

import signal
from collections.abc import Iterator

import pytest
from elastic_company import Company
from tests.processes import wait_until
from tests.servers import EtcdServer, RedisServer, Server


@pytest.fixture(params=[RedisServer, EtcdServer], ids=["redis", "etcd"])
def server(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with request.param(tmp_path_factory.mktemp("server")) as made:
        yield made


def test_ranks_come_and_go(server: Server) -> None:
    with Company(3, server.url("job")) as job:
        for member in job.members:
            member.hear_epoch(3)
        job.members[0].send(signal.SIGKILL)
        for member in job.members[1:]:
            member.hear_epoch(2)
        job.start(0).hear_epoch(3)
        job.finish()
        assert len({member.hear_end()["steps"] for member in job.all[1:]}) == 1


def test_a_server_that_is_started_again_ends_nothing(server: Server) -> None:
    with Company(2, server.url("job")) as job:
        for member in job.members:
            member.hear_epoch(2)
        server.stop()
        server.start()
        job.start().hear_epoch(3)
        job.finish()
        assert len({member.hear_end()["steps"] for member in job.all}) == 1


def test_a_server_may_be_away_for_longer_than_a_moment_while_ranks_regroup(server: Server) -> None:
    """Nobody is taken for gone meanwhile but who is, and nobody gives up."""
    with Company(3, server.url("job")) as job:
        for member in job.members:
            member.hear_epoch(3)
        server.stop()
        job.members[0].send(signal.SIGKILL)
        assert not wait_until(lambda: any(member.process.poll() is not None for member in job.members[1:]), 4.0)
        server.start()
        for member in job.members[1:]:
            member.hear_epoch(2)
        job.finish()
        assert len({member.hear_end()["steps"] for member in job.members[1:]}) == 1
