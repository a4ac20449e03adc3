"""`rankwise run --nnodes MIN:MAX` without `--elastic`: all ranks start again when one fails, or nodes come or go."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests import warm
from tests.core import elastic_programs as programs
from tests.core.elastic_programs import ranks_of
from tests.core.node_launchers import Nodes
from tests.processes import alive, wait_until

TIMEOUT_S = 40
#: What tells a rank where it is.
PLACE = ("RANK", "WORLD_SIZE", "GROUP_RANK", "GROUP_WORLD_SIZE", "TORCHELASTIC_RESTART_COUNT")
HOLD = ranks_of(programs.hold, *PLACE)
#: Nobody is waited for who may come yet, but a node has time to be missed.
SOON = ("--last-call", "0.3")


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Nodes]:
    made = Nodes(tmp_path, TIMEOUT_S)
    yield made
    made.end()


def pid_of(cluster: Nodes, name: str) -> int:
    return int((cluster.folder / f"ready-{name}").read_text())


def places(*outs: str) -> list[str]:
    """Return what ranks of the last round have told of their places."""
    lines = sorted(line.partition(": ")[2] for out in outs for line in out.splitlines())
    last = max(line.rpartition(" ")[2] for line in lines)
    return [line for line in lines if line.endswith(f" {last}")]


def test_all_ranks_start_again_without_a_lost_node(cluster: Nodes) -> None:
    nodes = cluster.start_nodes(3, "--max-restarts", "1", *SOON, *HOLD, nnodes="2:3")
    assert cluster.are_ready("0-0", "1-0", "2-0")
    before = [pid_of(cluster, f"{rank}-0") for rank in range(3)]
    nodes[1].send_signal(signal.SIGKILL)
    assert cluster.are_ready("0-1", "1-1")
    assert not any(map(alive, before))
    ends = cluster.go(nodes[0], nodes[2])
    assert [code for code, _, _ in ends] == [0, 0], ends
    assert places(*(out for _, out, _ in ends)) == ["0 2 0 2 1", "1 2 1 2 1"]
    for _, _, err in ends:
        lost, again, on = err.splitlines()
        assert lost.startswith("rankwise: node 1 (")
        assert lost.endswith(") is lost: its launcher was killed")
        assert again == "rankwise: starting all ranks again (0 of 1 restarts left)"
        assert on == "rankwise: the job goes on with 2 ranks on 2 nodes"


def test_all_ranks_start_again_with_a_node_that_comes(cluster: Nodes) -> None:
    """Which takes no restart."""
    nodes = cluster.start_nodes(2, "-n", "2", *SOON, *HOLD, nnodes="2:4")
    assert cluster.are_ready("0-0", "1-0", "2-0", "3-0")
    late = cluster.come(None, "-n", "1", *SOON, *HOLD, nnodes="2:4")
    assert cluster.are_ready(*(f"{rank}-1" for rank in range(5)))
    ends = cluster.go(*nodes, late)
    assert [code for code, _, _ in ends] == [0, 0, 0], ends
    told = [f"{rank} 5 {node} 3 1" for rank, node in enumerate((0, 0, 1, 1, 2))]
    assert places(*(out for _, out, _ in ends)) == told
    assert all("node 2 (" in err and ") has come: it has 1 rank\n" in err for _, _, err in ends[:2]), ends
    assert ends[2][2] == ""


def test_after_a_failure_nobody_waits_for_nodes_that_have_never_come(cluster: Nodes) -> None:
    words = ("--max-restarts", "1", "--last-call", "0.3", *ranks_of(programs.fail_in_the_first_life, 2))
    nodes = cluster.start_nodes(2, *words, nnodes="1:3")
    ends = cluster.finish(*nodes)
    assert [code for code, _, _ in ends] == [0, 0], ends
    assert all("rank 1 failed first: exit code 3" in err for _, _, err in ends), ends


def test_a_node_that_leaves_gives_the_ranks_of_all_their_time(cluster: Nodes) -> None:
    nodes = cluster.start_nodes(3, "--grace", "20", "--last-call", "600", *HOLD, nnodes="1:3")
    assert cluster.are_ready("0-0", "1-0", "2-0")
    nodes[1].send_signal(signal.SIGTERM)
    code, _, err = cluster.finish(nodes[1])[0]
    assert (code, "without which the job goes on" in err) == (143, True), err
    assert cluster.are_ready("0-1", "1-1")
    ends = cluster.go(nodes[0], nodes[2])
    assert [code for code, _, _ in ends] == [0, 0], ends
    assert all(") leaves: its launcher was stopped by SIGTERM\n" in err for _, _, err in ends), ends


def test_a_lost_node_ends_the_job_if_no_restart_is_left(cluster: Nodes) -> None:
    nodes = cluster.start_nodes(3, *SOON, *HOLD, nnodes="2:3")
    assert cluster.are_ready("0-0", "1-0", "2-0")
    nodes[1].send_signal(signal.SIGKILL)
    ends = cluster.finish(nodes[0], nodes[2])
    assert [code for code, _, _ in ends] == [111, 111], ends
    assert all(err.endswith(") is lost: its launcher was killed\n") for _, _, err in ends), ends


def test_too_few_nodes_wait_for_another(cluster: Nodes) -> None:
    words = ("--max-restarts", "2", *SOON, *HOLD)
    nodes = cluster.start_nodes(2, *words, nnodes="2:3")
    assert cluster.are_ready("0-0", "1-0")
    nodes[1].send_signal(signal.SIGKILL)
    cluster.hear(nodes[0], "is lost")
    another = cluster.come(None, *words, nnodes="2:3")
    assert cluster.are_ready("0-1", "1-1")
    assert [code for code, _, _ in cluster.go(nodes[0], another)] == [0, 0]


def test_too_few_nodes_end_at_last(cluster: Nodes) -> None:
    words = ("--max-restarts", "2", "--join-timeout", "2", *SOON, *HOLD)
    nodes = cluster.start_nodes(2, *words, nnodes="2:3")
    assert cluster.are_ready("0-0", "1-0")
    nodes[1].send_signal(signal.SIGKILL)
    code, _, err = cluster.finish(nodes[0])[0]
    assert (code, "only 1 of at least 2 nodes is left, and none has come for 2 s" in err) == (111, True), err


def test_a_launcher_that_was_suspended_ends_when_it_wakes(cluster: Nodes) -> None:
    cluster.environment["RANKWISE_OUTAGE_LIMIT_S"] = cluster.environment["RANKWISE_HEARTBEAT_LIMIT_S"] = "1"
    nodes = cluster.start_nodes(3, "--max-restarts", "1", *SOON, *HOLD, nnodes="2:3")
    assert cluster.are_ready("0-0", "1-0", "2-0")
    nodes[1].send_signal(signal.SIGSTOP)
    assert cluster.are_ready("0-1", "1-1")
    nodes[1].send_signal(signal.SIGCONT)
    ((code, _, err),) = cluster.finish(nodes[1])
    assert (code, "is lost" in err) == (111, True), err
    assert [code for code, _, _ in cluster.go(nodes[0], nodes[2])] == [0, 0]


@pytest.mark.parametrize(("told", "number"), [(1, signal.SIGINT), (0, signal.SIGTERM)])
def test_ctrl_c_ends_the_whole_job_and_so_does_any_signal_to_node_0(
    cluster: Nodes, told: int, number: signal.Signals
) -> None:
    nodes = cluster.start_nodes(2, "--max-restarts", "3", *HOLD, nnodes="1:2")
    assert cluster.are_ready("0-0", "1-0")
    nodes[told].send_signal(number)
    ends = cluster.finish(*nodes)
    assert [code for code, _, _ in ends] == [128 + number, 128 + number], ends


def test_ranks_meet_again_in_another_store(cluster: Nodes) -> None:
    """A node is lost in the middle of a training, which goes on from what was saved, with fewer ranks."""
    words = ("--max-restarts", "1", *SOON, *ranks_of(programs.train_from_a_file, 3))
    nodes: list[warm.Process] = cluster.start_nodes(3, *words, nnodes="2:3")
    assert wait_until(lambda: (cluster.folder / "halfway").exists(), TIMEOUT_S)
    os.kill(nodes[2].pid, signal.SIGKILL)
    ends = cluster.finish(*nodes[:2])
    assert [code for code, _, _ in ends] == [0, 0], ends
    assert [out.splitlines()[-1] for _, out, _ in ends] == ["[0]: 10 steps, 2 ranks", "[1]: 10 steps, 2 ranks"]
