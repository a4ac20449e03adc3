"""A default group that is made of other processes of one job of MPI, beyond what the kit tries."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import pytest

#: Where ranks share cores, each new group takes some hundredths of a second.
TIMEOUT_S = 90.0
#: How often a death is tried, as Open MPI 5.0 itself crashes at times after one.
_TRIES = 3


def test_groups_and_communicators_are_of_the_processes_that_are_meant(fine):
    fine(3, "reconfigured.py", "shapes", timeout_s=TIMEOUT_S)


def test_what_a_process_sends_that_was_left_out_reaches_nobody(fine):
    fine(3, "reconfigured.py", "left_out", timeout_s=TIMEOUT_S)


def test_processes_of_several_jobs_are_refused(fine, tmp_path):
    def start(job: str) -> object:
        return fine(1, "reconfigured.py", "of_two_jobs", job, str(tmp_path / "store"))

    with ThreadPoolExecutor(2) as both:
        assert len([*both.map(start, ("one", "two"))]) == 2


def test_below_thread_multiple_the_program_gives_the_store(fine, tmp_path):
    fine(2, "reconfigured.py", "without_a_store", str(tmp_path / "store"), RANKWISE_MPI_THREADS="serialized")


def test_elastic_jobs_shrink_and_grow_within_a_job_of_mpi(fine):
    fine(3, "reconfigured.py", "epochs")


@pytest.mark.parametrize("how", ["reconfigured", "elastic"])
@pytest.mark.parametrize("dead", [1, 3])
def test_survivors_are_made_the_default_group(mpiexec, library, how, dead):
    if "Open MPI" not in library:
        pytest.skip("this MPI library has no ULFM")
    for _ in range(_TRIES):
        done = mpiexec(4, "reconfigured_survivors.py", how, str(dead), options=("--with-ft", "ulfm"))
        if "Segmentation fault" not in done.stderr:
            break
    assert done.stdout.count("fine") == 3, f"{done.stdout}\n{done.stderr}"
