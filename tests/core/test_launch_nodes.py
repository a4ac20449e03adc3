"""`rankwise run` on several nodes; here they are launchers side by side on loopback."""

from __future__ import annotations

import re
import shlex
import signal
import socket
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from tests.core import launch_programs as programs
from tests.core import store_programs
from tests.core.launch_programs import ranks_of
from tests.core.node_launchers import Cluster
from tests.processes import wait_until

import rankwise
from rankwise_launch.attempt import Attempt
from rankwise_launch.verdict import Verdict

TIMEOUT_S = 30
STARTED = ranks_of(programs.say, "started")
#: A launcher of another version.
ANOTHER_VERSION = """
import sys
import rankwise_launch.entrance
from rankwise.cli import main

rankwise_launch.entrance.__version__ = "9.9"
sys.exit(main())
"""


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    made = Cluster(tmp_path, TIMEOUT_S)
    yield made
    made.end()


def test_nodes_of_different_sizes_make_one_world(cluster: Cluster) -> None:
    tell_place = ranks_of(programs.tell, "RANK", "LOCAL_RANK", "WORLD_SIZE", "GROUP_RANK")
    ends = cluster.finish(cluster.begin(0, "-n", "2", *tell_place), cluster.begin(1, "-n", "1", *tell_place))
    assert [code for code, _, _ in ends] == [0, 0], ends
    assert sorted(ends[0][1].splitlines()) == ["[0]: 0 0 3 0", "[1]: 1 1 3 0"]
    assert ends[1][1] == "[2]: 2 0 3 1\n"


def test_nodes_without_numbers_agree_on_them(cluster: Cluster) -> None:
    tell_place = ranks_of(programs.tell, "GROUP_RANK", "RANK", "WORLD_SIZE")
    ends = cluster.finish(*[cluster.begin(None, "-n", "2", *tell_place, nnodes=3) for _ in range(3)])
    assert [code for code, _, _ in ends] == [0, 0, 0], ends
    told = sorted(line.partition(": ")[2] for _, out, _ in ends for line in out.splitlines())
    assert told == ["0 0 6", "0 1 6", "1 2 6", "1 3 6", "2 4 6", "2 5 6"]


def test_one_launcher_too_many_is_refused(cluster: Cluster) -> None:
    wait = ["--no-python", "sh", "-c", "while [ ! -e go ]; do sleep 0.02; done"]
    launchers = [cluster.begin(None, *wait) for _ in range(3)]
    wait_until(lambda: any(launcher.poll() is not None for launcher in launchers), TIMEOUT_S)
    (cluster.folder / "go").touch()
    ends = cluster.finish(*launchers)
    assert sorted(code for code, _, _ in ends) == [0, 0, 2], ends
    (refused,) = [err for code, _, err in ends if code == 2]
    assert "there are 2 launchers already that meet at 127.0.0.1" in refused


@pytest.mark.parametrize("mode", [[], ["--elastic"]], ids=["all", "elastic"])
def test_the_ranks_of_all_nodes_meet_in_the_store_of_one_launcher(cluster: Cluster, mode: list[str]) -> None:
    ranks = [*mode, *store_programs.ranks_of(store_programs.meet_on_nodes)]
    ends = cluster.finish(cluster.begin(0, "-n", "1", *ranks), cluster.begin(1, "-n", "2", *ranks))
    assert [code for code, _, _ in ends] == [0, 0], ends
    first, *others = sorted("".join(out for _, out, _ in ends).splitlines())
    place = re.escape(f"@127.0.0.1:{cluster.port}")
    port = re.fullmatch(rf"\[0\]: (\d+{place}) False 0 1 2", first)
    assert port is not None, first
    assert others == [f"[{rank}]: {port[1]} False" for rank in (1, 2)]


def test_ranks_of_all_nodes_begin_again_in_another_store(cluster: Cluster) -> None:
    ends = cluster.ends("--max-restarts", "1", *store_programs.ranks_of(store_programs.fail_once))
    assert [code for code, _, _ in ends] == [0, 0], ends
    assert [re.findall(r"attempt \d finds \d", out) for _, out, _ in ends] == [
        ["attempt 0 finds 0", "attempt 1 finds 0"]
    ] * 2


KILLED = "rank 1 failed first: killed by SIGKILL (signal 9)"


@pytest.mark.parametrize(
    ("program", "code", "words"),
    [
        (
            [programs.fail_with_last_words],
            7,
            ("node 1.*rank 1 failed first: exit code 7.*these are the last words", ""),
        ),
        # Its own node's launcher alone has seen it, if nothing else of the job runs there.
        ([programs.end_as, -9], 137, (re.escape(KILLED), re.escape(KILLED))),
        # Over the early end of a rank whose node's ranks have all ended well.
        ([programs.miss_another], 1, ("", "node 0.*PeerDiedError")),
    ],
    ids=["failed", "killed", "missed"],
)
def test_a_failure_ends_all_nodes_with_its_exit_code_and_is_told(
    cluster: Cluster, program: list[Any], code: int, words: tuple[str, str]
) -> None:
    ends = cluster.ends(*ranks_of(*program))
    assert [end[0] for end in ends] == [code, code], ends
    assert all(re.search(each, err, re.DOTALL) for each, (_, _, err) in zip(words, ends, strict=True)), ends


def test_a_failure_after_the_end_of_another_node_counts_there_too(cluster: Cluster) -> None:
    """And all nodes start again together."""
    ends = cluster.ends("--max-restarts", "1", *ranks_of(programs.fail_late))
    assert [code for code, _, _ in ends] == [0, 0], ends
    assert [out.count("attempt") for _, out, _ in ends] == [2, 2]


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
@pytest.mark.parametrize("told", [0, 1])
def test_ranks_of_all_nodes_have_their_time_after_a_signal_to_one_launcher(
    cluster: Cluster, told: int, number: signal.Signals
) -> None:
    """They get the same signal as those of the launcher that was stopped, and nobody starts them again."""
    words = ["--grace", "20", "--max-restarts", "1", *ranks_of(programs.save_at_a_signal)]
    nodes = [cluster.begin(node, *words) for node in (0, 1)]
    assert wait_until(lambda: len(list(cluster.folder.glob("ready-*"))) == 2, TIMEOUT_S)
    nodes[told].send_signal(number)
    ends = cluster.finish(*nodes)
    assert [code for code, _, _ in ends] == [128 + number, 128 + number], ends
    assert [out for _, out, _ in ends] == [f"[{rank}]: saved after {number.value}\n" for rank in (0, 1)], ends
    assert f"node {told}" in ends[1 - told][2], ends


@pytest.mark.parametrize("told", [0, 1])
def test_a_second_signal_to_one_launcher_kills_the_ranks_of_all_nodes(cluster: Cluster, told: int) -> None:
    """Here they take no notice of the first."""
    nodes = [cluster.begin(node, "--grace", "600", *ranks_of(programs.be_deaf)) for node in (0, 1)]
    assert wait_until(lambda: len(list(cluster.folder.glob("ready-*"))) == 2, TIMEOUT_S)
    nodes[told].send_signal(signal.SIGTERM)
    assert "SIGTERM: stopping all ranks" in nodes[told].stderr.readline()  # type: ignore[union-attr]
    nodes[told].send_signal(signal.SIGTERM)
    ends = cluster.finish(*nodes)
    assert [code for code, _, _ in ends] == [143, 143], ends


def test_a_signal_to_each_launcher_reaches_each_rank_once(cluster: Cluster) -> None:
    """As where a scheduler stops all nodes: a second signal would break off what a rank does at its end."""
    nodes = [cluster.begin(node, "--grace", "20", *ranks_of(programs.count_signals)) for node in (0, 1)]
    assert wait_until(lambda: len(list(cluster.folder.glob("ready-*"))) == 2, TIMEOUT_S)
    nodes[0].send_signal(signal.SIGTERM)
    assert wait_until(lambda: len(list(cluster.folder.glob("got-*"))) == 2, TIMEOUT_S)
    nodes[1].send_signal(signal.SIGTERM)
    assert "SIGTERM: stopping all ranks" in nodes[1].stderr.readline()  # type: ignore[union-attr]
    (cluster.folder / "end").touch()
    ends = cluster.finish(*nodes)
    assert [code for code, _, _ in ends] == [143, 143], ends
    assert [out for _, out, _ in ends] == ["[0]: 1\n", "[1]: 1\n"], ends


def test_a_node_that_never_joins_is_named(cluster: Cluster) -> None:
    ends = cluster.ends("--join-timeout", "2", *STARTED, nodes=(0, 2), nnodes=3)
    assert [(code, out) for code, out, _ in ends] == [(110, ""), (110, "")], ends
    assert "node 1 has not joined at 127.0.0.1:" in ends[0][2]


def test_a_missing_node_0_is_told(cluster: Cluster) -> None:
    [(code, _, err)] = cluster.ends("--join-timeout", "0.5", *STARTED, nodes=[1])
    assert code == 110
    assert f"the launcher of node 0 has not answered at 127.0.0.1:{cluster.port + 1} within 0.5 s" in err


def test_the_same_node_twice_is_refused(cluster: Cluster) -> None:
    ends = cluster.ends("--join-timeout", "3", *STARTED, nodes=(0, 1, 1), nnodes=3)
    assert sorted(code for code, _, _ in ends[1:]) == [2, 110], ends
    assert ends[0][0] == 110, ends
    assert "is node 1 already" in ends[1][2] + ends[2][2]


def test_node_0_twice_is_refused_by_name(cluster: Cluster) -> None:
    ends = cluster.ends("--join-timeout", "4", *STARTED, nodes=(0, 0))
    assert sorted(code for code, _, _ in ends) == [2, 110], ends
    refused = next(err for code, _, err in ends if code == 2)
    assert re.search(r"another launcher, on \S+, is node 0 already; check --node-rank", refused)


@pytest.mark.parametrize(
    ("first", "second", "words"),
    [
        (["--nnodes", "2"], ["--nnodes", "3"], "--nnodes is 2 on node 0 (HOST) and 3 on node 1 (HOST)"),
        (["--max-restarts", "5"], [], "--max-restarts is 5 on node 0 (HOST) and 0 on node 1 (HOST)"),
        (["--elastic"], [], "--elastic is given on node 0 (HOST) and not given on node 1 (HOST)"),
        (STARTED, [*STARTED, "x"], "the command is PROGRAM on node 0 (HOST) and PROGRAM x on node 1 (HOST)"),
        ([], ["9.9"], f"the version of rankwise is {rankwise.__version__} on node 0 (HOST) and 9.9 on node 1 (HOST)"),
    ],
    ids=["nodes", "restarts", "elastic", "command", "version"],
)
def test_what_nodes_were_started_with_differently_is_told_on_all_at_once(
    cluster: Cluster, first: list[str], second: list[str], words: str
) -> None:
    """Also where none would wait for the node that differs."""
    (cluster.folder / "other.py").write_text(ANOTHER_VERSION)
    module = "other" if second == ["9.9"] else "rankwise"
    ends = cluster.finish(
        cluster.begin(0, *first, *([] if first == STARTED else STARTED)),
        cluster.begin(1, *([] if module == "other" else second), *([] if first == STARTED else STARTED), module=module),
    )
    assert [(code, out) for code, out, _ in ends] == [(2, ""), (2, "")], ends
    told = words.replace("HOST", socket.gethostname()).replace("PROGRAM", shlex.join(STARTED))
    assert [told in err for _, _, err in ends] == [True, True], ends


def test_a_strangers_port_is_not_taken_for_another_node_0(cluster: Cluster) -> None:
    with socket.create_server(("127.0.0.1", cluster.port + 1)):
        [(code, _, err)] = cluster.ends(*STARTED, nodes=[0])
    assert code == 98
    assert "the port is in use by another program" in err


def test_several_nodes_need_a_secret(cluster: Cluster) -> None:
    del cluster.environment["RANKWISE_SECRET_FILE"]
    [(code, _, err)] = cluster.ends(*STARTED, nodes=[0])
    assert code == 77
    assert "rankwise secret new FILE" in err


def test_a_second_signal_elsewhere_may_come_together_with_the_first() -> None:
    """The launcher then learns of both at the same look, and still knows that the attempt is over."""
    verdict = Verdict(False, 1, "far", 143, "stopped", signal.SIGTERM)
    sent: list[int] = []
    attempt: Any = object.__new__(Attempt)
    attempt._verdicts = SimpleNamespace(clear=lambda: None, killed=True, current=verdict)
    attempt._elsewhere, attempt._unstarted, attempt._signal_all = None, range(1), sent.append
    attempt._on_verdict()
    assert attempt._elsewhere is verdict
    assert attempt._unstarted == range(0)
    assert sent == [signal.SIGKILL]
