"""A program that nobody has launched is a world of one, and one that belongs to a job never is by mistake."""

import logging
import os

import numpy as np
import pytest
from tests.processes import variables

import rankwise as dist
from rankwise_local import register_local
from rankwise_network.launcher_env import told_of_a_job

register_local()

#: Each is set by a launcher, a queueing system or by hand where several processes are meant.
SPEAKING = variables(
    "WORLD_SIZE=4 LOCAL_RANK=0 MASTER_ADDR=10.0.0.1 RANKWISE_SECRET_FILE=job.secret TORCHELASTIC_RUN_ID=none "
    "OMPI_COMM_WORLD_SIZE=2 PMI_SIZE=2 PMIX_NAMESPACE=job SLURM_JOB_ID=17 SLURM_NTASKS=8 FLUX_JOB_ID=f1 "
    "PBS_JOBID=1.server LSB_JOBID=5 JOB_COMPLETION_INDEX=0"
)


@pytest.fixture(autouse=True)
def unlaunched(monkeypatch):
    while name := told_of_a_job():
        monkeypatch.delenv(name)


@pytest.mark.parametrize("backend", ["local", None])
def test_a_program_that_nobody_has_launched_is_a_world_of_one(backend, caplog):
    for _ in range(2):
        dist.init_process_group(backend)
        array = np.arange(3.0)
        dist.all_reduce(array)
        assert (dist.get_rank(), dist.get_world_size(), array.tolist()) == (0, 1, [0.0, 1.0, 2.0])
        dist.destroy_process_group()
    told = [record for record in caplog.records if record.name == "rankwise"]
    assert [record.levelno for record in told] == [logging.WARNING] * 2
    assert "it is a world of one; `rankwise run -n 4 program.py` starts four" in told[0].getMessage()


@pytest.mark.parametrize("arguments", [{"rank": 0, "world_size": 1}, {"world_size": 1}])
def test_who_asks_for_one_is_told_nothing(arguments, caplog):
    dist.init_process_group("local", **arguments)
    dist.destroy_process_group()
    assert not caplog.records


@pytest.mark.parametrize("name", SPEAKING)
def test_one_of_many_is_never_a_world_of_one_and_is_told_what_has_spoken_of_others(name, monkeypatch):
    monkeypatch.setenv(name, SPEAKING[name])
    with pytest.raises(ValueError, match=r"env://: .* is not set") as caught:
        dist.init_process_group("local")
    told = f"For a world of one, pass rank=0 and world_size=1: {name} speaks of a job" in str(caught.value)
    assert told or name == "JOB_COMPLETION_INDEX"  # which tells a rank; its world's size is what is missed
    assert not dist.is_initialized()


@pytest.mark.parametrize("arguments", [{"init_method": "env://"}, {"rank": 0}, {"world_size": 2, "rank": 0}])
def test_who_asks_for_a_place_among_others_gets_no_world_of_one(arguments):
    with pytest.raises(ValueError, match="is not set"):
        dist.init_process_group("local", **arguments)


def test_settings_of_libraries_speak_of_no_job():
    settings = {"I_MPI_ROOT": "/opt", "OMPI_MCA_btl": "tcp", "SLURM_CONF": "/etc/slurm.conf", "RANKWISE_DEBUG": "info"}
    assert told_of_a_job({**settings, "RANK": ""}) == ""
    assert told_of_a_job({**settings, "PMI_RANK": "0"}) == "PMI_RANK"
    assert os.environ.get("RANK") is None
