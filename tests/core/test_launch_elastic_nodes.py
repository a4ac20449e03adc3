"""`rankwise run --elastic` on several nodes: nodes are lost, come back and come late, and the others go on."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.core import elastic_programs as programs
from tests.core.elastic_programs import ranks_of
from tests.core.node_launchers import Nodes
from tests.processes import alive, descendants, wait_until

TIMEOUT_S = 40
#: How long nothing may be heard of a launcher, where a test waits for that.
LEEWAY_S = 1.0
#: In how many seconds a node is missed, far less than the 20 that a network may be out of order.
NAMED_S = 10.0
#: What tells a rank where it is.
PLACE = ("RANK", "LOCAL_RANK", "WORLD_SIZE", "GROUP_RANK", "GROUP_WORLD_SIZE", "TORCHELASTIC_RESTART_COUNT")
HOLD = ranks_of(programs.hold, *PLACE)


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Nodes]:
    made = Nodes(tmp_path, TIMEOUT_S, "--elastic")
    yield made
    made.end()


@pytest.fixture
def impatient(cluster: Nodes) -> Nodes:
    cluster.environment["RANKWISE_OUTAGE_LIMIT_S"] = cluster.environment["RANKWISE_HEARTBEAT_LIMIT_S"] = str(LEEWAY_S)
    return cluster


# ---------------------------------------------------------------------- a node is lost


def test_a_launcher_that_is_killed_is_named_at_once_and_its_ranks_have_gone(cluster: Nodes) -> None:
    """Long before it would be missed: the process that guards its ranks tells of it once they are gone."""
    nodes = cluster.start_nodes(3, "-n", "2", *HOLD)
    assert cluster.are_ready(*(f"{rank}-0" for rank in range(6)))
    pids = [int((cluster.folder / f"ready-{rank}-0").read_text()) for rank in (2, 3)]
    nodes[1].send_signal(signal.SIGKILL)
    for node in (nodes[0], nodes[2]):
        line = cluster.hear(node, "is lost")
        assert line.endswith("is lost: its launcher was killed; ranks 2, 3 went with it; the others go on\n")
        assert line.startswith("rankwise: node 1 (")
    assert not any(map(alive, pids))
    ends = cluster.go(nodes[0], nodes[2])
    assert [(code, err) for code, _, err in ends] == [(0, ""), (0, "")], ends


def test_a_node_that_is_gone_at_one_stroke_is_named_in_seconds(cluster: Nodes) -> None:
    """Its launcher, its rank, and the process that would have told of it: its connection has ended."""
    nodes = cluster.start_nodes(3, *HOLD)
    assert cluster.are_ready("0-0", "1-0", "2-0")
    processes = [nodes[1].pid, *descendants(nodes[1].pid)]
    for pid in processes:
        os.kill(pid, signal.SIGSTOP)
    began = time.monotonic()
    for pid in processes:
        os.kill(pid, signal.SIGKILL)
    for node in (nodes[0], nodes[2]):
        line = cluster.hear(node, "its launcher is gone")
        assert line.endswith(": its connection has ended; rank 1 went with it; the others go on\n")
    assert time.monotonic() - began < NAMED_S
    assert [code for code, _, _ in cluster.go(nodes[0], nodes[2])] == [0, 0]


def test_a_launcher_that_is_silent_is_named_and_ends_when_it_wakes(impatient: Nodes) -> None:
    """So that its ranks are not there twice once another has its number."""
    nodes = impatient.start_nodes(3, *HOLD)
    assert impatient.are_ready("0-0", "1-0", "2-0")
    nodes[1].send_signal(signal.SIGSTOP)
    for node in (nodes[0], nodes[2]):
        assert "nothing has been heard of its launcher for" in impatient.hear(node, "node 1")
    again = impatient.come(1, *HOLD)
    assert impatient.are_ready("1-1")
    nodes[1].send_signal(signal.SIGCONT)
    (code, _, err) = impatient.finish(nodes[1])[0]
    assert code == 111, err
    assert "is lost: the others have given it up, and go on without it" in err
    assert not alive(int((impatient.folder / "ready-1-0").read_text()))
    assert [code for code, _, _ in impatient.go(nodes[0], nodes[2], again)] == [0, 0, 0]


def test_nodes_may_be_lost_at_once_and_one_after_the_other(cluster: Nodes) -> None:
    nodes = cluster.start_nodes(4, *HOLD, nnodes=4)
    assert cluster.are_ready("0-0", "1-0", "2-0", "3-0")
    nodes[1].send_signal(signal.SIGKILL)
    nodes[2].send_signal(signal.SIGKILL)
    assert {cluster.hear(nodes[0], "is lost").split()[2] for _ in range(2)} == {"1", "2"}
    nodes[3].send_signal(signal.SIGKILL)
    assert "node 3" in cluster.hear(nodes[0], "is lost")
    assert cluster.go(nodes[0])[0][0] == 0


def test_the_job_ends_once_too_few_ranks_are_left(cluster: Nodes) -> None:
    nodes = cluster.start_nodes(3, "-n", "2", "--min-ranks", "5", *HOLD)
    assert cluster.are_ready(*(f"{rank}-0" for rank in range(6)))
    nodes[2].send_signal(signal.SIGKILL)
    ends = cluster.finish(*nodes[:2])
    assert [code for code, _, _ in ends] == [111, 111], ends
    text = "is lost: its launcher was killed; only 4 ranks are left, which ends the job"
    assert [(err.count("node 2"), text in err) for _, _, err in ends] == [(1, True)] * 2, ends


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGSTOP])
def test_without_node_0_there_is_no_job(impatient: Nodes, number: signal.Signals) -> None:
    nodes = impatient.start_nodes(3, *HOLD)
    assert impatient.are_ready("0-0", "1-0", "2-0")
    nodes[0].send_signal(number)
    ends = impatient.finish(*nodes[1:])
    assert [code for code, _, _ in ends] == [111, 111], ends
    assert all(len(err.splitlines()) == 1 and "node 0" in err for _, _, err in ends), ends


def test_ranks_that_meet_are_told_of_those_of_a_lost_node(cluster: Nodes) -> None:
    nodes = cluster.start_nodes(2, *ranks_of(programs.await_the_node), nnodes=2)
    assert cluster.are_ready("1-0")
    nodes[1].send_signal(signal.SIGKILL)
    code, out, err = cluster.finish(nodes[0])[0]
    assert (code, "its node 1 is lost: its launcher was killed" in out) == (0, True), (out, err)


def test_a_node_whose_launcher_gets_sigterm_leaves_and_the_others_go_on(cluster: Nodes) -> None:
    nodes = cluster.start_nodes(3, *HOLD)
    assert cluster.are_ready("0-0", "1-0", "2-0")
    nodes[1].send_signal(signal.SIGTERM)
    code, _, err = cluster.finish(nodes[1])[0]
    assert (code, "without which the job goes on" in err) == (143, True), err
    assert "its launcher was stopped by SIGTERM; rank 1 went with it" in cluster.hear(nodes[0], "is lost")
    another = cluster.come(None, *HOLD)  # as the job is not finishing, though the rank has ended with exit code 0
    assert cluster.are_ready("1-1")
    assert [code for code, _, _ in cluster.go(nodes[0], nodes[2], another)] == [0, 0, 0]


@pytest.mark.parametrize(("told", "number"), [(1, signal.SIGINT), (0, signal.SIGTERM)])
def test_ctrl_c_ends_the_whole_job_and_so_does_any_signal_to_node_0(
    cluster: Nodes, told: int, number: signal.Signals
) -> None:
    nodes = cluster.start_nodes(2, *HOLD, nnodes=2)
    assert cluster.are_ready("0-0", "1-0")
    nodes[told].send_signal(number)
    ends = cluster.finish(*nodes)
    assert [code for code, _, _ in ends] == [128 + number, 128 + number], ends
    assert f"node {told}" in ends[1 - told][2]


# ---------------------------------------------------------------------- a node comes


@pytest.mark.parametrize("is_numbered", [True, False])
def test_a_node_that_comes_back_has_the_place_of_the_lost_one(cluster: Nodes, is_numbered: bool) -> None:
    nodes = cluster.start_nodes(3, "-n", "2", "--max-restarts", "1", *HOLD)
    assert cluster.are_ready(*(f"{rank}-0" for rank in range(6)))
    nodes[1].send_signal(signal.SIGKILL)
    again = cluster.come(1 if is_numbered else None, "-n", "2", "--max-restarts", "1", *HOLD)
    assert cluster.hear(nodes[0], "is back").endswith("is back, with ranks 2, 3\n")
    assert cluster.are_ready("2-1", "3-1")
    ends = cluster.go(nodes[0], nodes[2], again)
    assert [code for code, _, _ in ends] == [0, 0, 0], ends
    assert sorted(ends[2][1].splitlines()) == ["[2]: 2 0 6 1 3 1", "[3]: 3 1 6 1 3 1"]
    assert ends[2][2] == ""


def test_a_job_begins_with_the_least_number_of_nodes_and_grows(cluster: Nodes) -> None:
    words = ("-n", "2", "--last-call", "0.2", *HOLD)
    nodes = cluster.start_nodes(2, *words, nnodes="2:4")
    assert cluster.are_ready("0-0", "1-0", "2-0", "3-0")
    late = cluster.come(None, *words, nnodes="2:4")
    assert "has joined the job, which has 6 ranks now, with ranks 4, 5" in cluster.hear(nodes[0], "node 2")
    assert cluster.are_ready("4-0", "5-0")
    ends = cluster.go(*nodes, late)
    assert [code for code, _, _ in ends] == [0, 0, 0], ends
    assert sorted(ends[2][1].splitlines()) == ["[4]: 4 0 6 2 3 0", "[5]: 5 1 6 2 3 0"]


def test_nodes_of_other_sizes_than_the_lost_ones_have_numbers_beyond_these(cluster: Nodes) -> None:
    """Also beyond the most nodes that there may be at a time."""
    first, lost = cluster.come(0, *HOLD, nnodes=2), cluster.come(1, "-n", "2", *HOLD, nnodes=2)
    assert cluster.are_ready("0-0", "1-0", "2-0")
    lost.send_signal(signal.SIGKILL)
    cluster.hear(first, "is lost")
    another = cluster.come(None, *HOLD, nnodes=2)
    assert cluster.are_ready("3-0")
    assert [code for code, _, _ in cluster.go(first, another)] == [0, 0]


def test_a_job_with_as_many_nodes_as_it_may_have_begins_at_once(cluster: Nodes) -> None:
    nodes = cluster.start_nodes(3, "--last-call", "600", *HOLD, nnodes="1:3")
    assert cluster.are_ready("0-0", "1-0", "2-0")
    assert [code for code, _, _ in cluster.go(*nodes)] == [0, 0, 0]


def test_a_spare_node_waits_for_a_place(cluster: Nodes) -> None:
    nodes = cluster.start_nodes(2, *HOLD, nnodes="2:2")
    assert cluster.are_ready("0-0", "1-0")
    spare = cluster.come(None, *HOLD, nnodes="2:2")
    assert wait_until(lambda: cluster.has("card/1"), TIMEOUT_S)
    nodes[1].send_signal(signal.SIGKILL)
    assert cluster.are_ready("1-1")
    assert [code for code, _, _ in cluster.go(nodes[0], spare)] == [0, 0]


def test_too_few_nodes_are_waited_for_and_end_at_last(cluster: Nodes) -> None:
    words = ("--last-call", "0.1", "--join-timeout", "3", *HOLD)
    nodes = cluster.start_nodes(2, *words, nnodes="2:3")
    assert cluster.are_ready("0-0", "1-0")
    nodes[1].send_signal(signal.SIGKILL)
    line = cluster.hear(nodes[0], "is lost")
    assert line.endswith("the others go on, and end unless another node comes within 3 s\n")
    code, _, err = cluster.finish(nodes[0])[0]
    assert (code, "only 1 of at least 2 nodes is left, and none has come for 3 s" in err) == (111, True), err


def test_a_node_that_comes_when_the_job_is_finishing_is_not_needed(cluster: Nodes) -> None:
    words = ("-n", "2", "--last-call", "0.1", *ranks_of(programs.hold_or_end_well))
    first = cluster.come(0, *words, nnodes="1:3")
    assert cluster.are_ready("0-0", "1-0")
    (cluster.folder / "ended").touch()
    assert "ended with exit code 0 some time ago" in cluster.hear(first, "some time ago")
    code, out, err = cluster.finish(cluster.come(None, *words, nnodes="1:3"))[0]
    assert (code, out) == (0, ""), err
    assert "the job is finishing, and takes in no more nodes" in err
    assert cluster.go(first)[0][0] == 0


def test_a_job_that_lacks_nodes_does_not_begin(cluster: Nodes) -> None:
    nodes = cluster.start_nodes(1, "--join-timeout", "1", *HOLD, nnodes="2:3")
    code, out, err = cluster.finish(*nodes)[0]
    assert (code, out) == (110, ""), err
    assert "only 1 node has joined at 127.0.0.1:" in err


@pytest.mark.parametrize("is_elastic", [True, False])
def test_a_launcher_that_dies_before_the_job_begins_may_be_started_again(impatient: Nodes, is_elastic: bool) -> None:
    impatient.options = ("--elastic",) * is_elastic
    first, second = impatient.start_nodes(2, *HOLD, nnodes=3)
    assert wait_until(lambda: impatient.has("log/1"), TIMEOUT_S)
    second.send_signal(signal.SIGKILL)
    assert wait_until(lambda: impatient.has("log/2"), TIMEOUT_S)  # which is that it is lost
    nodes = [first, *(impatient.come(None, *HOLD, nnodes=3) for _ in range(2))]
    assert impatient.are_ready("0-0", "1-0", "2-0")
    assert [code for code, _, _ in impatient.go(*nodes)] == [0, 0, 0]


def test_what_a_late_node_was_started_with_differently_is_told_there_alone(cluster: Nodes) -> None:
    nodes = cluster.start_nodes(2, *HOLD, nnodes="1:2")
    assert cluster.are_ready("0-0", "1-0")
    code, _, err = cluster.finish(cluster.come(None, "--max-restarts", "7", *HOLD, nnodes="1:2"))[0]
    assert (code, "--max-restarts is 0 on node 0" in err) == (2, True), err
    assert [code for code, _, _ in cluster.go(*nodes)] == [0, 0]
