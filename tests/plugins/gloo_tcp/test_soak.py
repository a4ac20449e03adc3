"""A little of the soak, in each way in which the backend moves bytes; `benchmarks/soak` runs as long as you like."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

PATIENCE_S = 110.0

SOAK = Path(__file__).parents[3] / "benchmarks" / "soak"


@pytest.mark.parametrize("transport", ["tcp", "shm", "auto", "hosts"])
def test_random_programs_do_what_the_model_says(transport: str) -> None:
    command = [sys.executable, str(SOAK), "--transport", transport, "--seed", "1", "--count", "20", "--timeout", "20"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE_S)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "20 programs in" in done.stdout
