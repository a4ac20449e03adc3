"""`rankwise run --elastic`: a rank that fails does not end the others, and comes back by itself."""

from __future__ import annotations

import json
import re
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.command_line import Launcher, run_here
from tests.core import elastic_programs as programs
from tests.core.elastic_programs import ranks_of
from tests.core.node_launchers import Cluster, End
from tests.processes import alive, wait_until

from rankwise_launch.dead import Dead
from rankwise_launch.elastic import pause_s

TIMEOUT_S = 40
#: A pause that no test waits for.
LONG_S = 6000.0
PRELOAD = ("--preload", "numpy,rankwise")
#: A program whose file one rank removes when the other has begun, which waits.
UNLINKED = """#!/bin/sh
await() { while [ ! -e $1 ]; do sleep 0.02; done; }
if [ "$RANK" = 1 ]; then await begun; rm program; exit 3; fi
touch begun
await go
"""
#: A launcher that pauses before a restart for as long as a variable says, and raises its limit of descriptors.
SWIFT = """
import os
import resource
import sys

from rankwise.cli import main
from rankwise_launch import elastic

elastic._FIRST_PAUSE_S = float(os.environ["PAUSE_S"])
elastic._LONGEST_PAUSE_S = 30 * elastic._FIRST_PAUSE_S
resource.setrlimit(resource.RLIMIT_NOFILE, (512, resource.getrlimit(resource.RLIMIT_NOFILE)[1]))
elastic.OutOfMemoryWatch.struck = lambda self: True
sys.exit(main())
"""


class Elastic(Launcher):
    """Runs a launcher with `--elastic`, whose pauses are short."""

    def start(self, *arguments: str, pause_s: float = 0.001, **settings: Any) -> Any:
        (self.folder / "swift.py").write_text(SWIFT)
        self.environment["PAUSE_S"] = str(pause_s)
        return super().start("run", "--elastic", *arguments, module="swift", **settings)


@pytest.fixture
def launcher(tmp_path: Path) -> Elastic:
    made = Elastic(tmp_path, TIMEOUT_S)
    made.environment["OMP_NUM_THREADS"] = "1"  # a library that starts threads cannot be preloaded
    return made


def said(text: str) -> list[str]:
    """Return the lines of all ranks without their numbers."""
    return sorted(line.partition(": ")[2] for line in text.splitlines())


def told(text: str) -> list[str]:
    """Return the launcher's own lines, without pauses and times, which differ from run to run."""
    lines = [line for line in text.splitlines() if line.startswith(("rankwise: ", "  rank "))]
    return [re.sub(r", [\d.]+ s after its start", "", re.sub(r" in [\d.e-]+ s ", " ", line)) for line in lines]


# ---------------------------------------------------------------------- a rank comes back


@pytest.mark.parametrize("preload", [(), PRELOAD], ids=["by themselves", "forked"])
@pytest.mark.parametrize(("how", "end"), [("3", "exit code 3"), ("killed", "killed by SIGKILL (signal 9)")])
def test_a_rank_that_fails_is_told_at_once_and_started_again_alone(
    launcher: Elastic, how: str, end: str, preload: tuple[str, ...]
) -> None:
    with launcher.start("-n", "3", "--max-restarts", "2", *preload, *ranks_of(programs.come_back, 3, how)) as process:
        line = process.stderr.readline()  # the others wait until it has been read
        (launcher.folder / "go").touch()
        out, err = process.communicate(TIMEOUT_S)
    assert process.returncode == 0, err
    memory = " (the kernel has killed for lack of memory meanwhile)" * (how == "killed")
    fate = "it is started again (1 of 2 restarts left)"
    assert told(line) == [f"rankwise: rank 1 failed: {end}{memory}; {fate}"]
    assert told(err) == [
        "rankwise: 1 failure did not end the other ranks:",
        f"  rank 1: {end}{memory}; started again",
    ]
    lives = sorted(line.split()[:3] for line in out.splitlines())
    assert lives == [["[0]:", "life", "0"], ["[1]:", "life", "0"], ["[1]:", "life", "1"], ["[2]:", "life", "0"]]
    places = {line.split()[0]: set() for line in out.splitlines()}
    for line in out.splitlines():
        places[line.split()[0]].add(" ".join(line.split()[3:]))
    assert all(len(found) == 1 for found in places.values()), out
    assert len({place.split(" ", 3)[3] for found in places.values() for place in found}) == 1, out


@pytest.mark.parametrize("preload", [(), PRELOAD], ids=["by themselves", "forked"])
@pytest.mark.parametrize("how", ["3", "killed"])
def test_survivors_and_the_successor_make_a_new_group(launcher: Elastic, how: str, preload: tuple[str, ...]) -> None:
    done = launcher.run("-n", "3", "--max-restarts", "1", *preload, *ranks_of(programs.train, 5, how))
    assert (done.returncode, said(done.stdout)) == (0, ["PeerDiedError"] * 2 + ["ranks: 3"] * 3), done.stderr


@pytest.mark.parametrize(("when", "learned"), [("before", 0), ("within", 1)])
def test_ranks_that_meet_wait_for_the_successor_unless_the_dead_had_joined_them(
    launcher: Elastic, when: str, learned: int
) -> None:
    done = launcher.run("-n", "3", "--max-restarts", "1", *ranks_of(programs.miss_the_meeting, when))
    assert (done.returncode, said(done.stdout)) == (0, ["ranks: 3"] * 3 + ["told"] * learned), done.stderr


def test_survivors_make_a_smaller_group_without_a_rank_that_is_lost(launcher: Elastic) -> None:
    done = launcher.run("-n", "3", *PRELOAD, *ranks_of(programs.shrink))
    assert (done.returncode, said(done.stdout)) == (0, ["ranks: 2"] * 2 + ["told"] * 2), done.stderr


CARD = json.dumps({"pid": 7, "count": 3}).encode()


@pytest.mark.parametrize(
    ("dead", "first", "seat", "is_first_life", "is_awaited"),
    [
        (Dead(1, ""), None, None, False, True),  # as of a job that ends
        (Dead(1, "", 7), CARD, CARD, False, True),  # it had joined them
        (Dead(1, "", 8), CARD, CARD, True, False),  # another process has come as this rank
        (Dead(1, "", 8), CARD, None, True, False),  # its successor can come
        (Dead(1, "", 8, 3), CARD, None, False, True),
        (Dead(1, "", 8, 3), None, None, True, True),
        (Dead(1, "", 8, 3), None, None, False, False),  # nobody has come again
        (Dead(1, "", 8, 2), CARD, None, False, False),  # to a group of another size
        (Dead(1, "", 8, 3), b"[]", None, False, False),
        (Dead(1, "", 8, 3), b"{", None, False, False),
    ],
)
def test_who_waits_for_a_rank_that_has_died(
    dead: Dead, first: bytes | None, seat: bytes | None, is_first_life: bool, is_awaited: bool
) -> None:
    assert dead.is_awaited(first, seat, is_first_life) is is_awaited


def test_what_a_rank_leaves_running_has_ended_before_its_successor_begins(launcher: Elastic) -> None:
    done = launcher.run("-n", "2", "--max-restarts", "1", *ranks_of(programs.leave_a_child))
    assert (done.returncode, done.stdout) == (0, "[1]: gone\n"), done.stderr


def test_logs_of_all_lives_of_a_rank_are_in_one_file(launcher: Elastic) -> None:
    words = ("-n", "1", "--max-restarts", "2", "--log-dir", "logs", "--run-id", "x")
    done = launcher.run(*words, *ranks_of(programs.log_lives))
    assert done.returncode == 0, done.stderr
    assert (launcher.folder / "logs/x/attempt_0/0/stdout.log").read_text() == "life 0\nlife 1\nlife 2\n"


def test_a_successor_may_have_as_many_descriptors_as_the_others(launcher: Elastic) -> None:
    """The launcher itself may have more, since it serves the store."""
    done = launcher.run("-n", "2", "--max-restarts", "1", *ranks_of(programs.tell_limit))
    assert done.returncode == 0, done.stderr
    assert len(said(done.stdout)) == 3
    assert {line.split()[0] for line in said(done.stdout)} == {"512"}


@pytest.mark.parametrize(
    ("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143), (signal.SIGKILL, -9)], ids=["INT", "TERM", "KILL"]
)
def test_a_successor_does_not_outlive_the_launcher(launcher: Elastic, number: int, code: int) -> None:
    with launcher.start("-n", "2", "--max-restarts", "1", *ranks_of(programs.stay_after_a_return)) as process:
        pids = [int(process.stdout.readline().split()[-1]) for _ in range(2)]
        process.send_signal(number)
        process.communicate(timeout=TIMEOUT_S)
    assert process.returncode == code
    assert wait_until(lambda: not any(map(alive, pids)), 2.0)


# ---------------------------------------------------------------------- how often, and how soon


def test_the_pauses_of_a_rank_that_cannot_begin_grow() -> None:
    assert [pause_s(failures) for failures in range(8)] == [0, 1, 2, 4, 8, 16, 30, 30]
    assert pause_s(100_000) == 30


def test_every_start_counts_so_that_no_program_spins(launcher: Elastic) -> None:
    done = launcher.run("-n", "1", "--max-restarts", "3", *ranks_of(programs.never_begin), pause_s=0.01)
    assert (done.returncode, said(done.stdout)) == (5, [f"begun {life}" for life in range(4)])
    assert re.findall(r"again in (\S+) s \((\d) of 3 restarts left\)", done.stderr) == [
        ("0.01", "2"),
        ("0.02", "1"),
        ("0.04", "0"),
    ]
    assert "as no restart is left; none is left, which ends the job" in done.stderr
    assert "rank 0 failed first: exit code 5" in done.stderr


def test_a_start_that_the_system_refuses_counts_as_one(launcher: Elastic) -> None:
    program = launcher.folder / "program"
    program.write_text(UNLINKED)
    program.chmod(0o755)
    with launcher.start("-n", "2", "--max-restarts", "1", "--no-python", "./program") as process:
        lines = [process.stderr.readline() for _ in range(2)]
        (launcher.folder / "go").touch()
        _, err = process.communicate(timeout=TIMEOUT_S)
    assert process.returncode == 0, err
    assert "is started again" in lines[0]
    assert "rank 1 failed: cannot start './program': No such file or directory; it is not started again" in lines[1]


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_a_pause(launcher: Elastic, number: signal.Signals) -> None:
    words = ("-n", "1", "--max-restarts", "1", *ranks_of(programs.never_begin))
    with launcher.start(*words, pause_s=LONG_S) as process:
        assert "is started again in 6000 s" in process.stderr.readline()
        process.send_signal(number)
        out, _ = process.communicate(timeout=TIMEOUT_S)
    assert (process.returncode, out) == (128 + number, "[0]: begun 0\n")


# ---------------------------------------------------------------------- how the job ends


def test_the_others_go_on_without_a_rank_that_has_no_restart(launcher: Elastic) -> None:
    done = launcher.run("-n", "4", "--min-ranks", "2", *ranks_of(programs.fail, 1, 2))
    assert (done.returncode, said(done.stdout)) == (0, ["well"] * 2), done.stderr
    assert told(done.stderr) == [
        "rankwise: rank 1 failed: exit code 4; it is not started again, as --max-restarts is 0; the others go on",
        "rankwise: rank 2 failed: exit code 5; it is not started again, as --max-restarts is 0; the others go on",
        "rankwise: 2 failures did not end the other ranks:",
        "  rank 1: exit code 4; not started again",
        "  rank 2: exit code 5; not started again",
    ]


@pytest.mark.parametrize(("code", "within", "is_committed"), [(75, " in 5 s", True), (3, "", False)])
def test_the_rest_may_leave_too_once_one_has_left(
    launcher: Elastic, code: int, within: str, is_committed: bool
) -> None:
    """A notice is often one to all ranks; after a failure the others are ended at once."""
    done = launcher.run("-n", "2", "--min-ranks", "2", *ranks_of(programs.leave, code))
    assert (done.returncode, (launcher.folder / "committed").exists()) == (code, is_committed), done.stderr
    assert f"only 1 is left, which ends the job{within}\n" in done.stderr


def test_the_rest_is_ended_once_too_few_are_left(launcher: Elastic) -> None:
    done = launcher.run("-n", "4", "--min-ranks", "3", *ranks_of(programs.fail_for_good, 4, 2, 1))
    assert done.returncode == 1, done.stderr
    assert "as --max-restarts is 0; only 2 are left, which ends the job\n" in done.stderr
    report = done.stderr[done.stderr.index("=" * 80) :]
    for words in ("rank 2 failed first", "rank 1 failed too: exit code 1", "ranks 0, 3 were stopped because of it"):
        assert words in report
    assert report.endswith("rank 2 has failed on purpose\n" + "=" * 80 + "\n")
    assert "did not end the other ranks" not in done.stderr


def test_a_job_of_which_every_rank_fails_has_failed(launcher: Elastic) -> None:
    done = launcher.run("-n", "2", "--max-restarts", "1", *ranks_of(programs.never_begin))
    assert done.returncode == 5, done.stderr
    assert done.stderr.count("is started again") == 1
    assert "  rank " in done.stderr[done.stderr.index("rankwise: 1 failure did not end") :]
    assert done.stderr.endswith("=" * 80 + "\n")


def test_no_rank_is_started_again_once_another_has_ended_well(launcher: Elastic) -> None:
    done = launcher.run(
        *("-n", "3", "--max-restarts", "5", "--min-ranks", "2"), *ranks_of(programs.fail_after_the_first_end)
    )
    assert done.returncode == 0, done.stderr
    fate = "it is not started again, as other ranks have ended well; the others go on"
    assert told(done.stderr)[0] == f"rankwise: rank 1 failed: exit code 4; {fate}"
    needed = launcher.run(
        *("-n", "3", "--max-restarts", "5", "--min-ranks", "3"), *ranks_of(programs.fail_after_the_first_end)
    )
    assert needed.returncode == 4, needed.stderr


def test_nor_one_that_waits_for_its_next_start_then(launcher: Elastic) -> None:
    words = ("-n", "2", "--max-restarts", "5", *ranks_of(programs.end_while_one_pauses))
    with launcher.start(*words, pause_s=LONG_S) as process:
        assert "is started again in 6000 s" in process.stderr.readline()
        (launcher.folder / "told").touch()
        out, err = process.communicate(timeout=TIMEOUT_S)
    assert (process.returncode, out) == (0, "[1]: begun\n"), err
    assert "as other ranks have ended well meanwhile" in err


# ---------------------------------------------------------------------- several nodes


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    made = Cluster(tmp_path, TIMEOUT_S)
    (tmp_path / "swift.py").write_text(SWIFT)
    made.environment["PAUSE_S"] = "0.001"
    yield made
    made.end()


def ends(cluster: Cluster, sizes: tuple[int, ...], *words: str) -> list[End]:
    """Run nodes that have so many ranks, and return how each has ended."""
    sized = [(node, "--elastic", "-n", str(size), *words) for node, size in enumerate(sizes)]
    return cluster.finish(*[cluster.begin(*each, module="swift") for each in sized])


def test_a_failure_on_one_node_does_not_end_the_ranks_of_the_other(cluster: Cluster) -> None:
    (cluster.folder / "go").touch()
    first, second = ends(cluster, (1, 1), "--max-restarts", "1", *ranks_of(programs.come_back, 2, 3))
    assert (first[0], second[0]) == (0, 0), (first, second)
    assert (first[1].count("life 0"), second[1].count("life 0"), second[1].count("life 1")) == (1, 1, 1)
    assert first[2] == ""


def test_ranks_of_all_nodes_make_a_new_group_with_the_successor(cluster: Cluster) -> None:
    first, second = ends(cluster, (1, 2), "--max-restarts", "1", *ranks_of(programs.train, 5, "killed"))
    assert (first[0], second[0]) == (0, 0), (first, second)
    assert said(first[1] + second[1]) == ["PeerDiedError"] * 2 + ["ranks: 3"] * 3


def test_a_rank_that_dies_in_a_meeting_is_named_on_the_other_node(cluster: Cluster) -> None:
    """By the launcher of its own node, which does not serve the store."""
    first, second = ends(cluster, (1, 2), "--max-restarts", "1", *ranks_of(programs.miss_the_meeting, "within"))
    assert (first[0], second[0]) == (0, 0), (first, second)
    assert said(first[1] + second[1]) == ["ranks: 3"] * 3 + ["told"]


def test_restarts_are_counted_over_all_nodes(cluster: Cluster) -> None:
    found = ends(cluster, (1, 1), "--max-restarts", "1", *ranks_of(programs.never_begin))
    assert [code for code, _, _ in found] == [5, 5], found
    assert sum(out.count("begun") for _, out, _ in found) == 3
    assert "none is left, which ends the job" in found[0][2] + found[1][2]


def test_losses_are_counted_over_all_nodes(cluster: Cluster) -> None:
    found = ends(cluster, (2, 2), "--min-ranks", "3", *ranks_of(programs.fail_for_good, 4, 2, 1))
    assert [code for code, _, _ in found] == [1, 1], found
    assert "node 0" in found[1][2]
    assert "rank 2 failed: exit code 1" in found[1][2]
    assert "rank 1 failed first: exit code 1" in found[0][2]


def test_the_first_good_end_on_any_node_is_the_last_restart(cluster: Cluster) -> None:
    words = ("--max-restarts", "5", "--min-ranks", "2", *ranks_of(programs.fail_after_the_first_end))
    found = ends(cluster, (1, 2), *words)
    assert [code for code, _, _ in found] == [0, 0], found
    assert "as other ranks have ended well; the others go on" in found[1][2]


def test_a_good_end_on_another_node_ends_a_pause(cluster: Cluster) -> None:
    cluster.environment["PAUSE_S"] = str(LONG_S)
    words = ("--elastic", "--max-restarts", "5", *ranks_of(programs.end_while_one_pauses))
    first, second = (cluster.begin(node, *words, module="swift") for node in (0, 1))
    assert "is started again in 6000 s" in second.stderr.readline()  # type: ignore[union-attr]
    (cluster.folder / "told").touch()
    found = cluster.finish(first, second)
    assert [code for code, _, _ in found] == [0, 0], found
    assert "as other ranks have ended well meanwhile" in found[1][2]


def test_a_job_that_is_too_small_does_not_begin(cluster: Cluster) -> None:
    found = ends(cluster, (1, 1), "--min-ranks", "3", *ranks_of(programs.never_begin))
    assert [(code, out) for code, out, _ in found] == [(2, "")] * 2, found
    assert all("--min-ranks 3 is more than the job has, which is 2" in err for _, _, err in found)


# ---------------------------------------------------------------------- mistakes


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["--min-ranks", "2", "-n", "2"], "--min-ranks is for --elastic"),
        (["--elastic", "--min-ranks", "0"], "--min-ranks must be at least 1, not 0"),
        (["--elastic", "--min-ranks", "3", "-n", "2"], "--min-ranks 3 is more than the job has, which is 2"),
    ],
)
def test_options_that_make_no_sense_are_refused(
    capsys: pytest.CaptureFixture[str], words: list[str], sentence: str
) -> None:
    code, _, shown = run_here(capsys, "run", *words, "script.py")
    assert (code, sentence in shown) == (2, True), shown
