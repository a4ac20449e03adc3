"""`rankwise run` whose launchers and ranks meet on a Redis or an etcd: any node may be lost, also the first."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests import warm
from tests.core import elastic_programs as programs
from tests.core.elastic_programs import ranks_of
from tests.core.node_launchers import Nodes
from tests.processes import wait_until
from tests.servers import Server

TIMEOUT_S = 60
#: For so long those are waited for who may come yet: as long as a busy machine takes from one node to the next.
SOON = ("--last-call", "1")
HOLD = ranks_of(programs.hold, "RANK", "WORLD_SIZE", "TORCHELASTIC_RESTART_COUNT")


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Nodes]:
    made = Nodes(tmp_path, TIMEOUT_S)
    yield made
    made.end()


def meet_on(cluster: Nodes, server: Server, prefix: str, *options: str) -> Nodes:
    cluster.meeting, cluster.options = ["--rdzv-endpoint", server.url(prefix)], options
    return cluster


def begun(cluster: Nodes, count: int, *words: str, nnodes: str) -> list[warm.Process]:
    """Start nodes one after the other, so that they are numbered in that order."""
    nodes = []
    for number in range(count):
        nodes.append(cluster.come(number, *words, nnodes=nnodes))
    assert cluster.are_ready(*(f"{number}-0" for number in range(count)))
    return nodes


def test_all_ranks_start_again_without_the_first_node(cluster: Nodes, server: Server, prefix: str) -> None:
    meet_on(cluster, server, prefix)
    nodes = begun(cluster, 3, "--max-restarts", "2", *SOON, *HOLD, nnodes="1:3")
    nodes[0].send_signal(signal.SIGKILL)
    assert cluster.are_ready("0-1", "1-1")
    nodes[1].send_signal(signal.SIGKILL)
    assert cluster.are_ready("0-2")
    late = cluster.come(None, "--max-restarts", "2", *SOON, *HOLD, nnodes="1:3")
    assert cluster.are_ready("0-3", "1-3")
    ends = cluster.go(nodes[2], late)
    assert [code for code, _, _ in ends] == [0, 0], ends


def test_the_others_go_on_without_the_first_node(cluster: Nodes, server: Server, prefix: str) -> None:
    meet_on(cluster, server, prefix, "--elastic")
    nodes = begun(cluster, 3, *HOLD, nnodes="1:3")
    nodes[0].send_signal(signal.SIGKILL)
    assert "rank 0 went with it; the others go on" in cluster.hear(nodes[1], "node 0")
    again = cluster.come(None, *HOLD, nnodes="1:3")
    assert cluster.are_ready("0-1")
    assert "is back, with rank 0" in cluster.hear(nodes[2], "is back")
    assert [code for code, _, _ in cluster.go(nodes[1], nodes[2], again)] == [0, 0, 0]


def test_a_notice_to_the_first_node_takes_it_out_of_the_job(cluster: Nodes, server: Server, prefix: str) -> None:
    meet_on(cluster, server, prefix, "--elastic")
    nodes = begun(cluster, 2, *HOLD, nnodes="1:2")
    nodes[0].send_signal(signal.SIGTERM)
    assert cluster.finish(nodes[0])[0][0] == 143
    assert "its launcher was stopped by SIGTERM" in cluster.hear(nodes[1], "is lost")
    assert cluster.go(nodes[1])[0][0] == 0


@pytest.mark.parametrize("mode", [[], ["--elastic"]], ids=["all", "elastic"])
def test_the_server_may_be_away_for_a_while(cluster: Nodes, own_server: Server, prefix: str, mode: list[str]) -> None:
    """Longer than nothing may be heard of a launcher."""
    cluster.environment["RANKWISE_OUTAGE_LIMIT_S"] = cluster.environment["RANKWISE_HEARTBEAT_LIMIT_S"] = "4"
    meet_on(cluster, own_server, prefix, *mode)
    nodes = begun(cluster, 2, "--max-restarts", "1", *SOON, *HOLD, nnodes="1:2")
    own_server.stop(signal.SIGTERM)
    assert not wait_until(lambda: any(node.poll() is not None for node in nodes), 6.0)
    own_server.start()
    nodes[0].send_signal(signal.SIGKILL)
    cluster.hear(nodes[1], "is lost")
    if not mode:
        assert cluster.are_ready("0-1")  # before another comes, and all start again
    another = cluster.come(None, "--max-restarts", "1", *SOON, *HOLD, nnodes="1:2")
    assert cluster.are_ready(*(["0-1"] if mode else ["0-2", "1-2"]))
    assert [code for code, _, _ in cluster.go(nodes[1], another)] == [0, 0]


def test_ranks_train_on_without_the_first_node(cluster: Nodes, server: Server, prefix: str) -> None:
    meet_on(cluster, server, prefix)
    words = ("--max-restarts", "1", *SOON, *ranks_of(programs.train_from_a_file, 3))
    nodes = cluster.start_nodes(3, *words, nnodes="2:3")
    assert wait_until(lambda: (cluster.folder / "halfway").exists(), TIMEOUT_S)
    nodes[0].send_signal(signal.SIGKILL)
    ends = cluster.finish(*nodes[1:])
    assert [code for code, _, _ in ends] == [0, 0], ends
    assert [out.splitlines()[-1] for _, out, _ in ends] == ["[0]: 10 steps, 2 ranks", "[1]: 10 steps, 2 ranks"]


def test_a_server_that_is_not_there_is_told(cluster: Nodes) -> None:
    cluster.meeting = ["--rdzv-endpoint", "redis://user:word@127.0.0.1:1/0"]
    node = cluster.begin(None, "--join-timeout", "1", *HOLD, nnodes="1:2")
    ((code, _, err),) = cluster.finish(node)
    assert (code, "the launchers cannot meet at redis://user:...@127.0.0.1:1/0" in err, "word" in err) == (
        110,
        True,
        False,
    )
