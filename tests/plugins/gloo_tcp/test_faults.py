"""A sample of `benchmarks/faults.py`: whatever is done to a rank, the others hear the truth, soon."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

PATIENCE_S = 180.0

pytestmark = pytest.mark.usefixtures("both_ways")

FAULTS = Path(__file__).parents[3] / "benchmarks" / "faults.py"

#: How many of each scenario's cases are run here; the script runs them all.
SAMPLES = {
    "killed": 6,
    "shrunk": 2,
    "swept": 3,
    "silent": 2,
    "orphaned": 1,
    "confused": 4,
    "late": 6,
    "interrupted": 3,
    "parted": 1,
    "begun": 3,
}


@pytest.mark.parametrize(("scenario", "sample"), SAMPLES.items())
def test_the_others_hear_the_truth_soon(tmp_path: Path, scenario: str, sample: int) -> None:
    found = tmp_path / "found.json"
    command = [sys.executable, FAULTS, "--only", scenario, "--sample", str(sample), "--patience", "8", "--json", found]
    done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE_S, check=False)
    assert done.returncode == 0, f"{done.stdout}\n{_briefly(found)}\n{done.stderr[-2000:]}"
    assert scenario == "parted" or len(json.loads(found.read_text())[scenario]) == sample


def _briefly(found: Path) -> Any:
    return found.read_text()[-6000:] if found.exists() else ""
