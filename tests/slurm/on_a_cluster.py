"""rankwise on a real Slurm of three nodes: `scripts/test-slurm` runs this, and nothing else does."""

from __future__ import annotations

import re
import sys
import time
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))

from cluster import PROGRAMS, PYTHON, RANKWISE, WITH_SECRET, Cluster, missing, waiting

pytestmark = pytest.mark.skipif(bool(missing()), reason=missing())

#: What a first all_reduce may take beyond srun itself and the imports, on a machine with nothing else to do.
TIMEOUT_S = 1.0
#: Likewise a program that is started wrongly, and until a rank's death is known to the others; a node's in half of it.
PATIENCE_S, LEEWAY_S = 30.0, 2.0
#: How often that is measured.
LEAST_TRIES, MOST_TRIES = 5, 20
SUM, WAITS = str(PROGRAMS / "sum.py"), str(PROGRAMS / "waits.py")
#: How srun and the MPI library of this environment find each other.
INTERFACE = "pmi2" if Path(PYTHON).with_name("hydra_pmi_proxy").exists() else "pmix"
#: What the ranks of MPI need as root, and where cores are few.
MPI = {
    "OMPI_ALLOW_RUN_AS_ROOT": "1",
    "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
    "OMPI_MCA_btl_tcp_if_include": "10.77.0.0/24",
}


def ranks(text: str) -> dict[int, str]:
    """Return the node of each rank that has finished its sum."""
    return {int(rank): node for rank, node in re.findall(r"rank (\d+) of \d+ on (\S+) attempt", text)}


# ---------------------------------------------------------------------- where ranks come from


@pytest.mark.parametrize("mpi", ["none", "pmix", "pmi2"])
def test_srun_starts_gloo(cluster: Cluster, secret: dict[str, str], mpi: str) -> None:
    done = cluster.run("srun", "-N2", "-n4", f"--mpi={mpi}", PYTHON, SUM, **secret)
    assert done.returncode == 0, done.stdout
    assert sorted(ranks(done.stdout)) == [0, 1, 2, 3], done.stdout
    assert len(set(ranks(done.stdout).values())) == 2


@pytest.mark.parametrize("place", [["-N1", "-n2"], ["-N2", "-n4"]])
def test_srun_starts_mpi(cluster: Cluster, place: list[str]) -> None:
    done = cluster.run("srun", *place, f"--mpi={INTERFACE}", PYTHON, SUM, "mpi", **MPI)
    assert done.returncode == 0, done.stdout
    assert sorted(ranks(done.stdout)) == list(range(int(place[1][2:]))), done.stdout


def test_mpi_without_its_interface_says_which_one(cluster: Cluster) -> None:
    done = cluster.run("srun", "-N1", "-n2", "--mpi=none", PYTHON, SUM, "mpi", **MPI)
    assert done.returncode != 0
    assert f"Use srun --mpi={INTERFACE}" in done.stdout, done.stdout


def test_mpi_in_a_batch_script_is_told_what_starts_it(cluster: Cluster) -> None:
    setting = " ".join(f"{name}={value}" for name, value in MPI.items())
    own = f"{RANKWISE} run --backend mpi -n 2 {SUM} mpi"
    _, said = cluster.batch(f"export {setting}\n{PYTHON} {SUM} mpi\n{own}", "-N2", "-n4", "--ntasks-per-node=2")
    assert f"`srun --mpi={INTERFACE} python program.py`" in said, said
    assert sorted(ranks(said)) == [0, 1], said


def test_ranks_on_several_nodes_ask_for_a_secret(cluster: Cluster) -> None:
    if cluster.networked:
        done = cluster.run("srun", "-N2", "-n2", PYTHON, SUM)
        assert done.returncode != 0
        assert "rankwise secret new FILE" in done.stdout, done.stdout


def test_a_batch_script_as_documented(cluster: Cluster) -> None:
    _, said = cluster.batch(f"{WITH_SECRET}\nsrun {PYTHON} {SUM}", "-N2", "--ntasks-per-node=2")
    assert sorted(ranks(said)) == [0, 1, 2, 3], said


def test_a_secret_can_be_broadcast_to_the_nodes_own_disks(cluster: Cluster) -> None:
    copy = "/tmp/rankwise.$SLURM_JOB_ID.secret"
    script = f"""{WITH_SECRET}
    sbcast "$RANKWISE_SECRET_FILE" {copy}
    RANKWISE_SECRET_FILE={copy} srun {PYTHON} {SUM}
    srun --ntasks-per-node=1 -n2 rm -f {copy}"""
    _, said = cluster.batch(script, "-N2", "--ntasks-per-node=2")
    assert sorted(ranks(said)) == [0, 1, 2, 3], said
    assert not list(Path("/tmp").glob("rankwise.*.secret"))


def test_a_batch_script_without_srun_is_told_so(cluster: Cluster) -> None:
    began = time.monotonic()
    _, said = cluster.batch(f"{PYTHON} {SUM}", "-N2", "-n4")
    assert "`srun python program.py`" in said
    assert time.monotonic() - began < PATIENCE_S


def test_a_batch_script_of_one_task_needs_no_srun(cluster: Cluster) -> None:
    _, said = cluster.batch(f"{PYTHON} {SUM} & {PYTHON} {SUM}; wait", "-N1")
    assert said.count("rank 0 of 1") == 2, said


def test_tasks_of_an_array_run_at_once(cluster: Cluster) -> None:
    options = ["--array=1-4", "-n2", "--output", str(cluster.work / "array.%a.out")]
    number, _ = cluster.batch(f"{WITH_SECRET}\nsrun {PYTHON} {SUM}", *options, ends=False)
    cluster.ended(number)
    for task in range(1, 5):
        said = (cluster.work / f"array.{task}.out").read_text()
        assert sorted(ranks(said)) == [0, 1], (number, said)


def test_two_steps_of_one_job_run_at_once(cluster: Cluster) -> None:
    step = f"srun --exact -N2 -n2 {PYTHON} {SUM}"
    _, said = cluster.batch(f"{WITH_SECRET}\n{step} & {step}; wait", "-N2", "--ntasks-per-node=2")
    assert said.count("rank 0 of 2") == said.count("rank 1 of 2") == 2, said


@pytest.mark.parametrize("first", ["node1", "node2"])
def test_a_heterogeneous_step(cluster: Cluster, secret: dict[str, str], first: str) -> None:
    second = "node2" if first == "node1" else "node1"
    command = ["srun", "-n2", "-w", first, PYTHON, SUM, ":", "-n1", "-w", second, PYTHON, SUM]
    done = cluster.run(*command, **secret)
    assert ranks(done.stdout) == {0: first, 1: first, 2: second}, done.stdout


def test_rank_0_need_not_be_on_the_first_node_of_the_list(cluster: Cluster, secret: dict[str, str]) -> None:
    hosts = cluster.work / "hosts"
    hosts.write_text("node3\nnode1\nnode2\nnode2\n")
    done = cluster.run("srun", "-n4", "-m", "arbitrary", PYTHON, SUM, SLURM_HOSTFILE=str(hosts), **secret)
    assert ranks(done.stdout) == {0: "node3", 1: "node1", 2: "node2", 3: "node2"}, done.stdout
    done = cluster.run("srun", "-n3", "-m", "arbitrary", "-w", "node3,node1,node2", PYTHON, SUM, **secret)
    assert "SLURM_HOSTFILE" in done.stdout, done.stdout


@pytest.mark.parametrize("inside", ["srun", "batch"])
def test_rankwise_run(cluster: Cluster, secret: dict[str, str], inside: str) -> None:
    run = f"{RANKWISE} run -n 2 --nnodes 2 {SUM}"
    if inside == "srun":
        said = cluster.run("srun", "-N2", "-n2", "--ntasks-per-node=1", *run.split(), **secret).stdout
        assert sorted(ranks(said)) == [0, 1, 2, 3], said
        assert len(set(ranks(said).values())) == 2
    else:
        _, said = cluster.batch(f"{RANKWISE} run -n 3 {SUM}", "-N1", "-n2")
        assert sorted(ranks(said)) == [0, 1, 2], said


def test_rankwise_run_meets_where_the_variables_say(cluster: Cluster, secret: dict[str, str]) -> None:
    """As where srun's distribution leaves open on which node the first launcher is."""
    words = f"srun -n2 -m arbitrary -w node3,node1 {RANKWISE} run -n 1 --nnodes 2 {SUM}".split()
    done = cluster.run(*words, MASTER_ADDR="node3", **secret)
    assert ranks(done.stdout) == {0: "node3", 1: "node1"}, done.stdout


def test_doctor_inside_an_allocation(cluster: Cluster) -> None:
    _, said = cluster.batch(f"{RANKWISE} doctor --quick; echo code $?", "-N2", "-n4")
    assert "code 0" in said, said
    assert re.search(r"Slurm's job \d+ has 2 nodes \(node\[1-2\]\); this process is its batch script", said), said
    said = cluster.run("srun", "-n1", RANKWISE, "doctor", "--quick").stdout
    assert re.search(r"this process is task 0 of its step 0\n.*this is rank 0 of 1, and is alone", said), said


# ---------------------------------------------------------------------- how soon they begin


@pytest.mark.parametrize("backend", ["gloo", "mpi"])
def test_the_first_all_reduce_is_done_soon(cluster: Cluster, secret: dict[str, str], backend: str) -> None:
    """Within a second beyond what srun takes for a program that does nothing, and the imports; the best counts.

    Others may begin to work beside this at any time, so it tries again for as long as that takes, up to a limit.
    """
    interface = f"--mpi={INTERFACE}" if backend == "mpi" else "--mpi=none"
    imports = "import time, numpy, rankwise; {}print(time.time())".format("import mpi4py.MPI; " * (backend == "mpi"))
    plain, whole = [], []
    while len(whole) < LEAST_TRIES or (min(whole) - min(plain) >= TIMEOUT_S and len(whole) < MOST_TRIES):
        for found, program in ((plain, ["-c", imports]), (whole, [SUM, backend])):
            began = time.time()
            said = cluster.run("srun", "-N2", "-n4", interface, PYTHON, *program, **secret, **MPI).stdout
            ends = [float(end) for end in re.findall(r"(?:^|done )(\d+\.\d+)$", said, re.MULTILINE)]
            assert len(ends) == 4, said
            found.append(max(ends) - began)
    print(f"{backend}: srun and imports {min(plain):.2f} s, to the end of all_reduce {min(whole):.2f} s")
    assert min(whole) - min(plain) < TIMEOUT_S, (plain, whole)


# ---------------------------------------------------------------------- how they end


def test_a_killed_rank_is_named_on_all_nodes(cluster: Cluster) -> None:
    _, said = cluster.batch(f"{WITH_SECRET}\nsrun --kill-on-bad-exit=0 {PYTHON} {WAITS} dies", "-N2", "-n4")
    died = float(re.search(r"died at (\S+)", said)[1])  # type: ignore[index]
    told = [float(at) for at in re.findall(r"was told at (\S+): PeerDiedError: .*rank 3", said)]
    assert len(told) == 3, said
    assert max(told) - died < LEEWAY_S


def test_a_cancelled_step_leaves_nothing(cluster: Cluster) -> None:
    script = f"{WITH_SECRET}\nsrun {PYTHON} {WAITS}\necho the script goes on"
    job, out = cluster.batch(script, "-N2", "-n4", ends=False)
    waiting(cluster, Path(out), 4)
    cluster.run("scancel", f"{job}.0")
    cluster.ended(job)
    assert "the script goes on" in Path(out).read_text()


def test_a_drained_node_finishes_its_job_and_gets_no_other(cluster: Cluster) -> None:
    script = f"{WITH_SECRET}\necho begun; while [ ! -e go ]; do sleep 0.1; done; srun {PYTHON} {SUM}; rm go"
    job, out = cluster.batch(script, "-n4", "-w", "node1,node2", ends=False)
    cluster.wait_for("the script to begin", lambda: Path(out).exists() and "begun" in Path(out).read_text())
    cluster.run("scontrol", "update", "nodename=node1", "state=drain", "reason=test")
    try:
        (cluster.work / "go").touch()
        cluster.ended(job)
        assert sorted(ranks(Path(out).read_text())) == [0, 1, 2, 3], Path(out).read_text()
        _, said = cluster.batch(f"{WITH_SECRET}\nsrun {PYTHON} {SUM}", "-N2", "-n2")
        assert set(ranks(said).values()) == {"node2", "node3"}
    finally:
        cluster.run("scontrol", "update", "nodename=node1", "state=resume")


def test_a_requeued_job_begins_anew(cluster: Cluster) -> None:
    program = f"if [ ${{SLURM_RESTART_COUNT:-0}} = 0 ]; then srun {PYTHON} {WAITS}; else srun {PYTHON} {SUM}; fi"
    script = f"{WITH_SECRET}\n{program}"
    job, out = cluster.batch(script, "-N2", "-n4", "--requeue", "--open-mode=append", ends=False)
    waiting(cluster, Path(out), 4)
    cluster.run("scontrol", "requeue", job)

    def state() -> str:
        return cluster.run("squeue", "-h", "-j", job, "-o", "%T").stdout.strip()

    cluster.wait_for("the job to be queued again", lambda: state() == "PENDING", state)
    # Slurm holds a requeued job back for up to two minutes, unless it is told to begin. Not within the second in which
    # it was killed: its nodes would take what begins then for what they have just ended, and the job would be lost.
    done = cluster.run("scontrol", "update", f"jobid={job}", "starttime=now+3")
    assert done.returncode == 0, done.stdout
    again = "the job to begin again"
    cluster.wait_for(again, lambda: Path(out).read_text().count("a new job secret") == 2, Path(out).read_text)
    cluster.ended(job)
    said = Path(out).read_text()
    assert sorted(ranks(said)) == [0, 1, 2, 3], said
    assert said.count("attempt 1") == 4, said


def test_a_node_that_dies_ends_the_job_and_the_others_are_told(cluster: Cluster) -> None:
    """The last test: a node is lost. The batch script runs on node1, which stays."""
    if not cluster.networked:
        pytest.skip("a node that shares its processes' host cannot fail alone")
    script = f"{WITH_SECRET}\nsrun {PYTHON} {WAITS}\necho srun ended"
    job, out = cluster.batch(script, "-n4", "-w", "node1,node2", "--no-requeue", ends=False)
    waiting(cluster, Path(out), 4)
    killed = time.time()
    cluster.kill("node2")
    told_both = "the ranks on node1 to be told"
    cluster.wait_for(told_both, lambda: Path(out).read_text().count("was told at") == 2, Path(out).read_text)
    told = [float(at) for at in re.findall(r"was told at (\S+):", Path(out).read_text())]
    print(f"told {max(told) - killed:.1f} s after the node's end")
    assert max(told) - killed < PATIENCE_S / 2
    cluster.ended(job)
    assert "NODE_FAIL" in cluster.run("scontrol", "show", "job", job).stdout
    for secret in cluster.work.glob("*.secret"):
        secret.unlink()  # a job whose node is lost ends without its script's last words
