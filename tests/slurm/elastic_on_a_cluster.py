"""Elastic jobs on a real Slurm: the scripts of the documentation, notices, and a node that dies.

`scripts/test-slurm elastic` runs this, and nothing else does.
"""

from __future__ import annotations

import re
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))

from cluster import PROGRAMS, RANKWISE, WITH_SECRET, Cluster, missing

pytestmark = [
    pytest.mark.skipif(bool(missing()), reason=missing()),
    pytest.mark.parametrize("cluster", ["networks"], indirect=True, scope="module"),
]

DOCS = Path(__file__).parents[2] / "docs"
PROGRAM = PROGRAMS / "elastic.py"
#: EX_TEMPFAIL: all ranks have left.
LEFT = 75


@pytest.fixture(autouse=True)
def home(cluster: Cluster) -> Iterator[dict[str, str]]:
    """Return what names a home with a job secret, as the documentation has it; there is no `end` yet."""
    folder = cluster.folder / "home"
    folder.mkdir()
    cluster.run(RANKWISE, "secret", "new", str(folder / "job.secret"))
    (cluster.work / "end").unlink(missing_ok=True)
    yield {"HOME": str(folder)}
    shutil.rmtree(folder)


def documented(page: str, heading: str, number: int, program: str) -> str:
    """Return a block of a page, with this environment's rankwise, two ranks on each node, and a program of ours."""
    section = (DOCS / page).read_text().partition(f"\n{heading}\n")[2]
    text = re.findall(r"```bash\n(.*?)```", section, re.DOTALL)[number]
    changes = {"rankwise ": f"{RANKWISE} ", "-n 8": "-n 2", "train.py": program}
    for before, after in changes.items():
        assert before in text, text
        text = text.replace(before, after)
    return text


def script(signal_name: str) -> str:
    return documented("elastic.md", "### Under Slurm", 0, f"{PROGRAM} {signal_name}")


def soon(script: str) -> str:
    """Have a job begin with the nodes that are there, and miss one that is lost sooner than by default."""
    changes = {"export ": "export RANKWISE_OUTAGE_LIMIT_S=5 ", "--elastic ": "--elastic --last-call 1 "}
    for before, after in changes.items():
        assert before in script, script
        script = script.replace(before, after)
    return script


def said(out: str | Path) -> str:
    return Path(out).read_text(errors="replace") if Path(out).exists() else ""


def has_size(cluster: Cluster, out: str, size: int) -> None:
    def sizes() -> list[str]:
        return re.findall(r" size (\d+)", said(out))

    cluster.wait_for(f"{size} ranks to work together", lambda: sizes()[-1:] == [str(size)], lambda: said(out))


def ended(cluster: Cluster, job: str, out: str, code: str) -> str:
    """Wait for a job's end; return what it has printed, and see that Slurm knows it by an exit code."""
    cluster.ended(job)
    known = cluster.run("scontrol", "show", "job", job).stdout
    assert f"ExitCode={code}" in known, known + said(out)
    return said(out)


def test_the_plain_script_of_the_documentation(cluster: Cluster) -> None:
    line = documented("slurm.md", "## Batch scripts", 1, str(PROGRAMS / "sum.py"))
    _, out = cluster.batch(f"{WITH_SECRET}\n{line}", "-N3")
    assert sorted(re.findall(r"rank (\d) of 6 on node", out)) == list("012345"), out


def test_the_elastic_script_of_the_documentation_grows_and_shrinks(cluster: Cluster, home: dict[str, str]) -> None:
    job, out = cluster.batch(script("SIGTERM"), "-w", "node1,node2", "-N2", ends=False, **home)
    has_size(cluster, out, 4)
    second = soon(script("SIGTERM").replace("$(hostname)", "node1"))
    joins, its = cluster.batch(second, "-w", "node3", "-N1", ends=False, **home)
    has_size(cluster, out, 6)
    cluster.run("scancel", joins)
    has_size(cluster, out, 4)
    cluster.ended(joins)
    assert sorted(re.findall(r"(\d) on node3: left", said(its))) == ["4", "5"], said(its)
    assert said(its).count("notice, 20 s left") == 2, said(its)
    (cluster.work / "end").touch()
    told = ended(cluster, job, out, "0:0")
    assert sorted(re.findall(r"(\d) on node\d: finished", told)) == list("0123"), told


@pytest.mark.parametrize("how", ["to the step", "to the batch script", "before the limit"])
def test_a_notice_has_each_rank_leave_once(cluster: Cluster, home: dict[str, str], how: str) -> None:
    options, text = ["-w", "node1,node2", "-N2"], soon(script("SIGUSR1"))
    if how == "to the batch script":
        handed_on = documented("elastic.md", "### Under Slurm", 1, f"{PROGRAM} SIGUSR1")
        text = soon(f"export RANKWISE_SECRET_FILE=$HOME/job.secret\n{handed_on}")
    if how == "before the limit":
        options += ["--time=1", "--signal=USR1@5"]  # Slurm looks every half minute, and sends it up to so much sooner
    job, out = cluster.batch(text, *options, ends=False, **home)
    has_size(cluster, out, 4)
    if how == "to the step":
        cluster.run("scancel", "--signal=USR1", f"{job}.0")
    if how == "to the batch script":
        cluster.run("scancel", "--batch", "--signal=USR1", job)
    told = ended(cluster, job, out, f"{LEFT}:0")
    assert sorted(re.findall(r"(\d) on node\d: notice, 20 s left", told)) == list("0123"), told
    assert sorted(re.findall(r"(\d) on node\d: left", told)) == list("0123"), told


def test_a_cancelled_job_has_its_ranks_leave(cluster: Cluster, home: dict[str, str]) -> None:
    job, out = cluster.batch(soon(script("SIGTERM")), "-w", "node1,node2", "-N2", ends=False, **home)
    has_size(cluster, out, 4)
    cluster.run("scancel", job)
    cluster.ended(job)
    assert sorted(re.findall(r"(\d) on node\d: notice, 20 s left", said(out))) == list("0123"), said(out)
    assert sorted(re.findall(r"(\d) on node\d: left", said(out))) == list("0123"), said(out)


def test_others_go_on_without_a_node_that_dies(cluster: Cluster, home: dict[str, str]) -> None:
    """The last test: a node is lost. The batch script and node 0 are on node1, which stays."""
    job, out = cluster.batch(soon(script("SIGTERM")), "-w", "node1,node2", "-N2", ends=False, **home)
    has_size(cluster, out, 4)
    cluster.kill("node2")
    has_size(cluster, out, 2)
    cluster.wait_for("srun to know", lambda: "Node failure on node2" in said(out), lambda: said(out))
    (cluster.work / "end").touch()
    told = ended(cluster, job, out, "0:0")
    assert sorted(re.findall(r"(\d) on node1: finished", told)) == list("01"), told
    assert "node 1 (node2) is lost: nothing has been heard of its launcher for 5 s" in told, told
