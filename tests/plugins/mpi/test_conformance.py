"""The conformance suite under a real `mpiexec`, one part of it at a time."""

from __future__ import annotations

import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest


def suite() -> Path:
    spec = find_spec("rankwise.testing.suite")
    assert spec is not None
    assert spec.origin is not None
    return Path(spec.origin).parent


@pytest.mark.parametrize("part", sorted(suite().glob("test_*.py")), ids=lambda part: part.stem)
def test_the_capability_table_is_the_truth(clean_environment, tmp_path, part):
    command = [sys.executable, "-m", "pytest", "-q", "-c", str(suite() / "pytest.ini"), str(part)]
    done = subprocess.run(
        [*command, "-p", "rankwise.testing.suite.plugin", "--backend", "mpi"],
        cwd=tmp_path,
        env=clean_environment(),
        capture_output=True,
        text=True,
        timeout=110,
    )
    assert done.returncode == 0, done.stdout[-6000:] + done.stderr[-2000:]
