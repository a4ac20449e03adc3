"""`rankwise run` on several nodes of which one is lost: its launcher killed, or its host without power or network."""

from __future__ import annotations

import signal
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.core import launch_programs as programs
from tests.core.launch_programs import ranks_of
from tests.core.node_launchers import Cluster
from tests.processes import wait_until

from rankwise import TCPStore
from rankwise_network import secret

TIMEOUT_S = 30
#: How long nothing may be heard of a launcher.
LEEWAY_S = 1.0
NODES = (0, 1, 2)


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    made = Cluster(tmp_path, TIMEOUT_S)
    made.environment["RANKWISE_OUTAGE_LIMIT_S"] = made.environment["RANKWISE_HEARTBEAT_LIMIT_S"] = str(LEEWAY_S)
    yield made
    made.end()


def have_come(cluster: Cluster, count: int = len(NODES)) -> bool:
    """Tell whether so many launchers come to wait for one that does not."""
    known = secret.from_hex((cluster.folder / "secret").read_text())
    with TCPStore("127.0.0.1", cluster.port + 1, timeout=TIMEOUT_S, secret=known) as store:
        store.wait([f"log/{number}" for number in range(count)])
    return True


def have_begun(cluster: Cluster) -> bool:
    return wait_until(lambda: len(list(cluster.folder.glob("ready-*"))) == len(NODES), TIMEOUT_S)


@pytest.mark.parametrize(
    ("lost", "phase", "number"),
    [
        # Another than node 0 may be started again before the job begins.
        (0, "joining", signal.SIGKILL),
        (0, "joining", signal.SIGSTOP),
        *((lost, "running", signal.SIGKILL) for lost in (0, 1)),
        # As without power nobody says that a connection has ended.
        *((lost, phase, signal.SIGSTOP) for lost in (0, 1) for phase in ("running", "done", "failing")),
    ],
)
def test_a_lost_launcher_is_named_by_all_others_wherever_they_wait_for_it(
    cluster: Cluster, lost: int, phase: str, number: signal.Signals
) -> None:
    """They end, even if they could restart the ranks: nobody starts the launcher again."""
    nnodes = len(NODES) + (phase == "joining")
    words = ["--max-restarts", "2", *ranks_of(programs.outlive, lost, phase)]
    nodes = [cluster.begin(node, *words, nnodes=nnodes) for node in NODES]
    assert (have_come if phase == "joining" else have_begun)(cluster)
    nodes[lost].send_signal(number)
    (cluster.folder / "end").touch()
    ends = cluster.finish(*(node for node in nodes if node is not nodes[lost]))
    assert [code for code, _, _ in ends] == [111, 111], ends
    assert all(f"node {lost}" in err for _, _, err in ends), ends


def test_launchers_that_are_suspended_together_go_on_together(cluster: Cluster) -> None:
    """As a scheduler does it: not at quite the same time, and for longer than nothing may be heard of one."""
    cluster.environment["RANKWISE_HEARTBEAT_LIMIT_S"] = str(3 * LEEWAY_S)
    nodes = [cluster.begin(node, *ranks_of(programs.end_when_told), nnodes=len(NODES)) for node in NODES]
    first, *others = nodes
    assert have_begun(cluster)
    for some, number, then_s in (
        (others, signal.SIGSTOP, 0.75),
        ([first], signal.SIGSTOP, 4.0),
        ([first], signal.SIGCONT, 0.2),
        (others, signal.SIGCONT, 0.0),
    ):
        for node in some:
            node.send_signal(number)
        time.sleep(then_s * LEEWAY_S)
    (cluster.folder / "end").touch()
    ends = cluster.finish(*nodes)
    assert [code for code, _, _ in ends] == [0, 0, 0], ends


def test_a_signal_for_ranks_that_comes_before_there_are_any_ends_nothing(cluster: Cluster) -> None:
    first = cluster.begin(0, *ranks_of(programs.say, "started"))
    assert have_come(cluster, 1)
    first.send_signal(signal.SIGUSR1)
    ends = cluster.finish(first, cluster.begin(1, *ranks_of(programs.say, "started")))
    assert [(code, err) for code, _, err in ends] == [(0, ""), (0, "")]
