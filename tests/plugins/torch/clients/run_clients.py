"""Libraries that train over groups of torch, over rankwise under torchrun; `scripts/test-torch clients` runs it."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).parent
LIMIT_S = 300
SCRIPTS = ("test_script", "test_ops", "test_sync")


def under_torchrun(program, *arguments, restarts=0, **env):
    options = ["--standalone", "--nproc-per-node=2", f"--max-restarts={restarts}"]
    found = subprocess.run(
        [sys.executable, "-m", "torch.distributed.run", *options, HERE / program, *arguments],
        env={**os.environ, "ACCELERATE_USE_CPU": "1", "OMP_NUM_THREADS": "1", **env},
        capture_output=True,
        text=True,
        timeout=LIMIT_S,
    )
    assert found.returncode == 0, found.stderr[-5000:]
    assert found.stdout.count("over rankwise\n") == 2, found.stdout[-5000:]


@pytest.mark.parametrize("script", SCRIPTS)
def test_accelerates_own_scripts(script):
    """They check themselves."""
    under_torchrun("accelerate_script.py", script)


@pytest.mark.parametrize("arguments", [("trainer.py",), ("lightning_model.py", "ddp"), ("lightning_model.py", "fsdp2")])
@pytest.mark.parametrize("restarts", [0, 1])
def test_training(arguments, restarts):
    """To the end, also in a second attempt after a rank of the first was killed."""
    under_torchrun(*arguments, restarts=restarts, TO_BE_KILLED="1" * restarts)
