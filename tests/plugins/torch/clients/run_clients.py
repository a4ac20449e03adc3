"""Libraries that train over groups of torch, over rankwise under torchrun; `scripts/test-torch clients` runs it."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).parent
LIMIT_S = 300
SCRIPTS = ("test_script", "test_ops", "test_sync")


TRAINING = (
    ("trainer.py",),
    ("lightning_model.py", "ddp"),
    ("lightning_model.py", "fsdp2"),
    ("deepspeed_engine.py", "0"),
    ("deepspeed_engine.py", "2"),
    ("deepspeed_engine.py", "3"),
)
TORCHRUN = ("torch.distributed.run", "--standalone", "--nproc-per-node=2")
#: What it calls GPUs is processes; with `--cpu` it starts a single one.
ACCELERATE = ("accelerate.commands.launch", "--multi_gpu", "--num_processes=2", "--main_process_port=0")


def on_two_ranks(program, *arguments, launcher=TORCHRUN, **env):
    found = subprocess.run(
        [sys.executable, "-m", *launcher, HERE / program, *arguments],
        env={**os.environ, "ACCELERATE_USE_CPU": "1", "DS_ACCELERATOR": "cpu", "OMP_NUM_THREADS": "1", **env},
        capture_output=True,
        text=True,
        timeout=LIMIT_S,
    )
    assert found.returncode == 0, found.stderr[-5000:]
    assert found.stdout.count("over rankwise\n") == 2, found.stdout[-5000:]


@pytest.mark.parametrize("script", SCRIPTS)
def test_accelerates_own_scripts(script):
    """They check themselves."""
    on_two_ranks("accelerate_script.py", script)


@pytest.mark.parametrize("arguments", TRAINING, ids=" ".join)
@pytest.mark.parametrize("restarts", [0, 1])
def test_training(arguments, restarts):
    """To the end, also in a second attempt after a rank of the first was killed."""
    on_two_ranks(*arguments, launcher=(*TORCHRUN, f"--max-restarts={restarts}"), TO_BE_KILLED="1" * restarts)


def test_accelerates_launcher_starts_a_job_again():
    """Its agent's store is static and outlives the attempt, as torchrun's is."""
    on_two_ranks("trainer.py", launcher=(*ACCELERATE, "--max_restarts=1"), TO_BE_KILLED="1")
