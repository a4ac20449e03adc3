"""The benchmark of the door runs, lets nobody in, and its third rank comes in."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

PATIENCE_S = 110.0

pytest.importorskip("rankwise_gloo_tcp")

BENCHMARK = Path(__file__).parents[2] / "benchmarks" / "hostile.py"


def test_hundreds_of_hostile_connections_leave_a_running_job_alone(tmp_path: Path) -> None:
    report = tmp_path / "report.json"
    command = [sys.executable, str(BENCHMARK), "--count", "300", "--json", str(report)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE_S)
    assert done.returncode == 0, done.stdout + done.stderr
    found = json.loads(report.read_text())
    assert found["connections"] == 300
    assert found["let_in"] == 0
    assert found["exit_codes"] == [0, 0, 0]
    assert found["memory_gained_nbytes"] < 16 << 20
    assert found["third_rank_joined_s"] < 30
