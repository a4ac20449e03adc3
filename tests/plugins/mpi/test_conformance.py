"""The conformance suite under a real `mpiexec`, one part of it at a time."""

from __future__ import annotations

import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

#: What is chosen by the number of ranks beyond a few is chosen by MPI, not here; and where many ranks share few cores,
#: the time goes into starting them.
_MAX_SIZE = 5
TIMEOUT_S = 280.0


def suite() -> Path:
    spec = find_spec("rankwise_testing.suite")
    assert spec is not None
    assert spec.origin is not None
    return Path(spec.origin).parent


@pytest.mark.parametrize("part", sorted(suite().glob("test_*.py")), ids=lambda part: part.stem)
def test_the_capability_table_is_the_truth(clean_environment, tmp_path, part):
    command = [sys.executable, "-m", "pytest", "-q", "-c", str(suite() / "pytest.ini"), str(part)]
    done = subprocess.run(
        [*command, "-p", "rankwise_testing.suite.plugin", "--backend", "mpi", "--max-size", str(_MAX_SIZE)],
        cwd=tmp_path,
        env=clean_environment(),
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
    )
    assert done.returncode == 0, done.stdout[-6000:] + done.stderr[-2000:]
