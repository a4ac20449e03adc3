"""What Slurm and Kubernetes set, as recorded on clusters of them, is read as they mean it."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.processes import variables

from rankwise_network.launcher_env import from_environment, job_name, local_rank, node_0, told_of_a_job

#: A job of 3 nodes, as all of its processes are told: recorded from Slurm 22.05.
JOB = variables(
    "SLURM_JOB_ID=12 SLURM_JOBID=12 SLURM_JOB_NODELIST=node[1-3] SLURM_NODELIST=node[1-3] "
    "SLURM_JOB_NUM_NODES=3 SLURM_NNODES=3 SLURM_TASKS_PER_NODE=1,2,1"
)
BATCH = JOB | variables("SLURM_GTIDS=0 SLURM_LOCALID=0 SLURM_NODEID=0 SLURM_PROCID=0 SLURMD_NODENAME=node1")
STEP = JOB | variables(
    "SLURM_NTASKS=4 SLURM_NPROCS=4 SLURM_PROCID=2 SLURM_LOCALID=1 SLURM_NODEID=1 SLURM_GTIDS=1,2 "
    "SLURM_STEP_ID=0 SLURM_STEPID=0 SLURM_STEP_NODELIST=node[1-3] SLURM_STEP_NUM_NODES=3 "
    "SLURM_STEP_NUM_TASKS=4 SLURM_STEP_TASKS_PER_NODE=1,2,1 SLURM_DISTRIBUTION=cyclic"
)
PMIX = {**STEP, "PMIX_RANK": "2", "PMIX_NAMESPACE": "slurm.pmix.12.0", "PMIX_HOSTNAME": "node2"}
PMI2 = {**STEP, "PMI_RANK": "2", "PMI_SIZE": "4", "PMI_JOBID": "12.0", "PMI_FD": "13"}
#: srun -n2 -w node2 : -n1 -w node1
COMPONENTS = STEP | variables(
    "SLURM_HET_SIZE=2 SLURM_PACK_SIZE=2 SLURM_STEP_NODELIST=node[1-2] SLURM_JOB_NODELIST=node[1-2] "
    "SLURM_JOB_NODELIST_PACK_GROUP_0=node2 SLURM_JOB_NODELIST_PACK_GROUP_1=node1"
)
#: The same within salloc, where the components have their later name too; srun --het-group=1,2 leaves the first out.
LATER_COMPONENTS = STEP | variables(
    "SLURM_HET_SIZE=3 SLURM_STEP_NODELIST=node[1-2] SLURM_JOB_NODELIST_HET_GROUP_0=node3 "
    "SLURM_JOB_NODELIST_HET_GROUP_1=node2 SLURM_JOB_NODELIST_HET_GROUP_2=node1"
)
INTERACTIVE = STEP | variables(
    "SLURM_NTASKS=1 SLURM_PROCID=0 SLURM_STEP_ID=4294967290 SLURM_STEP_NODELIST=node1 SLURM_STEP_NUM_TASKS=1"
)


@pytest.mark.parametrize(
    ("env", "place"),
    [
        (STEP, (2, 4, "node1")),
        (PMIX, (2, 4, "node1")),
        (PMI2, (2, 4, "node1")),
        ({**STEP, "SLURM_STEP_NODELIST": "node[2-3]"}, (2, 4, "node2")),
        ({**STEP, "SLURM_STEP_NODELIST": "node2"}, (2, 4, "127.0.0.1")),
        (COMPONENTS, (2, 4, "node2")),
        (LATER_COMPONENTS, (2, 4, "node2")),
        ({**COMPONENTS, "SLURM_JOB_NODELIST_PACK_GROUP_0": "other"}, (2, 4, "node1")),
        (INTERACTIVE, (0, 1, "127.0.0.1")),
        ({**STEP, "MASTER_ADDR": "node3", "SLURM_DISTRIBUTION": "arbitrary"}, (2, 4, "node3")),
    ],
)
def test_a_step_tells_each_ranks_place(env: dict[str, str], place: tuple[int, int, str]) -> None:
    assert from_environment(env=env)[:3] == place
    assert local_rank(env) == 1
    assert told_of_a_job(env)


def test_steps_jobs_and_tasks_of_an_array_meet_at_ports_of_their_own() -> None:
    """A task of an array has a job number of its own, and keeps that of the first beside it."""
    jobs = [{**STEP, "SLURM_JOB_ID": str(job), "SLURM_ARRAY_JOB_ID": "12"} for job in range(12, 16)]
    steps = [{**job, "SLURM_STEP_ID": str(step)} for job in jobs for step in range(3)]
    assert len({job_name(step) for step in steps}) == 12
    assert len({from_environment(env=step).master_port for step in steps}) == 12


@pytest.mark.parametrize(
    "text", ["node3\nnode1\n", "# by hand\n\n node3 # first\nnode1\n", "node[3,1]\n", "node3*2\nnode1"]
)
def test_an_arbitrary_distribution_begins_where_its_file_does(tmp_path: Path, text: str) -> None:
    (tmp_path / "hosts").write_text(text)
    env = {**STEP, "SLURM_DISTRIBUTION": "arbitrary", "SLURM_HOSTFILE": str(tmp_path / "hosts")}
    assert from_environment(env=env).master_addr == "node3"


@pytest.mark.parametrize("file", ["", "nowhere", "empty", "binary"])
def test_an_arbitrary_distribution_that_tells_nothing_is_an_error(tmp_path: Path, file: str) -> None:
    (tmp_path / "empty").write_text("\n# nothing\n")
    (tmp_path / "binary").write_bytes(b"\xff\xfe")
    env = {**STEP, "SLURM_DISTRIBUTION": "arbitrary", "SLURM_HOSTFILE": file and str(tmp_path / file)}
    with pytest.raises(ValueError, match=r"only a host file tells where rank 0 is.*MASTER_ADDR"):
        from_environment(env=env)
    assert from_environment(env={**env, "SLURM_STEP_NODELIST": "node2"}).master_addr == "127.0.0.1"


#: What srun has told of an arbitrary distribution over nodes that no file names.
ARBITRARY = {**STEP, "SLURM_DISTRIBUTION": "arbitrary"}


@pytest.mark.parametrize(
    ("env", "place"),
    [
        (STEP, "node1"),
        ({**STEP, "MASTER_ADDR": "node2"}, "node2"),
        ({**ARBITRARY, "MASTER_ADDR": "node3"}, "node3"),
        ({**STEP, "MASTER_ADDR": "node3", "PET_MASTER_ADDR": "node2"}, "node2"),
        # A rank of another job starts these launchers: what it was told is where its own ranks meet.
        ({**STEP, "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "29500", "RANK": "0"}, "node1"),
    ],
)
def test_the_launchers_of_a_step_agree_on_where_node_0_is(env: dict[str, str], place: str) -> None:
    tasks = [{**env, "SLURM_PROCID": str(task), "SLURM_NODEID": str(task)} for task in range(3)]
    assert {node_0(task) for task in tasks} == {(place, from_environment(env=STEP).master_port)}
    if "RANK" not in env:
        assert {node_0({**task, "MASTER_PORT": "29500"}) for task in tasks} == {(place, 29500)}


def test_an_arbitrary_distribution_asks_the_launchers_for_what_they_take() -> None:
    with pytest.raises(ValueError, match="set it, or MASTER_ADDR"):
        node_0(ARBITRARY)


# ---------------------------------------------------------------------- a batch script, which is no step


@pytest.mark.parametrize(
    "env",
    [
        {**BATCH, "SLURM_NTASKS": "4"},
        BATCH,
        {**BATCH, "SLURM_JOB_NODELIST": "node1", "SLURM_TASKS_PER_NODE": "2"},
        {**BATCH, "SLURM_TASKS_PER_NODE": "1(x2)"},
        {**BATCH, "SLURM_TASKS_PER_NODE": ""},
        {**BATCH, "SLURM_NTASKS": "4", "SLURM_STEP_ID": "4294967291"},
        {**BATCH, "SLURM_NTASKS": "4", "MASTER_ADDR": "node1", "MASTER_PORT": "29500"},
    ],
)
def test_a_batch_script_without_srun_waits_for_nobody(env: dict[str, str]) -> None:
    told = r"batch script of Slurm's job 12, but srun has not.*`srun python program\.py`"
    with pytest.raises(ValueError, match=told):
        from_environment(env=env)
    assert from_environment(0, 1, env=env)[:2] == (0, 1)
    by_hand = variables("RANK=1 WORLD_SIZE=2 MASTER_ADDR=a MASTER_PORT=1")
    assert from_environment(env=env | by_hand)[:2] == (1, 2)


@pytest.mark.parametrize("env", [{**BATCH, "SLURM_NTASKS": "1"}, {**BATCH, "SLURM_TASKS_PER_NODE": "1"}])
def test_a_batch_script_of_one_task_is_a_world_of_one(env: dict[str, str]) -> None:
    assert from_environment(env=env)[:4] == (0, 1, "127.0.0.1", 0)


# ---------------------------------------------------------------------- Kubernetes

LEADER_WORKER_SET = variables(
    "LWS_LEADER_ADDRESS=train-0.train.default LWS_GROUP_SIZE=3 LWS_WORKER_INDEX=2 KUBERNETES_SERVICE_HOST=10.96.0.1"
)
INDEXED_JOB = {"JOB_COMPLETION_INDEX": "2", "KUBERNETES_SERVICE_HOST": "10.96.0.1"}


def test_a_leader_worker_set_tells_the_place() -> None:
    place = from_environment(env=LEADER_WORKER_SET)
    assert place[:3] == (2, 3, "train-0.train.default")
    leader = from_environment(env={**LEADER_WORKER_SET, "LWS_WORKER_INDEX": "0"})
    assert leader.master_port == place.master_port
    assert from_environment(env={**LEADER_WORKER_SET, "LWS_GROUP_SIZE": "1", "LWS_WORKER_INDEX": "0"})[:2] == (0, 1)
    assert told_of_a_job(LEADER_WORKER_SET).startswith("LWS_")


def test_an_indexed_job_tells_the_rank_and_its_manifest_the_rest() -> None:
    told = {"WORLD_SIZE": "4", "MASTER_ADDR": "train-0.train", "MASTER_PORT": "29500"}
    assert from_environment(env={**INDEXED_JOB, **told})[:4] == (2, 4, "train-0.train", 29500)
    with pytest.raises(ValueError, match="WORLD_SIZE is not set"):
        from_environment(env=INDEXED_JOB)
    assert from_environment(0, 1, env=INDEXED_JOB)[:2] == (0, 1)


def test_a_launcher_in_a_pod_goes_before_the_pod() -> None:
    run = {"RANK": "9", "WORLD_SIZE": "16", "MASTER_ADDR": "train-0.train", "MASTER_PORT": "29500"}
    for pod in (INDEXED_JOB, LEADER_WORKER_SET):
        assert from_environment(env={**pod, **run})[:3] == (9, 16, "train-0.train")
        assert from_environment(env={**pod, **PMI2})[:2] == (2, 4)


def test_an_mpijob_tells_ranks_by_its_mpirun() -> None:
    """Workers of an MPIJob are reached by ssh: what the ranks are told is Open MPI's."""
    env = variables(
        "OMPI_COMM_WORLD_RANK=1 OMPI_COMM_WORLD_SIZE=2 OMPI_COMM_WORLD_LOCAL_SIZE=1 OMPI_COMM_WORLD_LOCAL_RANK=0 "
        "OMPI_MCA_orte_default_hostfile=/etc/mpi/hostfile OMPI_MCA_orte_keep_fqdn_hostnames=true K_MPI_JOB_ROLE=worker"
    )
    with pytest.raises(ValueError, match="mpirun -x MASTER_ADDR"):
        from_environment(env=env)
    told = {"MASTER_ADDR": "train-worker-0.train", "MASTER_PORT": "29500"}
    assert from_environment(env={**env, **told})[:4] == (1, 2, "train-worker-0.train", 29500)
