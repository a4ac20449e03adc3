"""The conformance suite on the double: all of the plugin but NCCL itself, with threads as ranks and no GPU."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

import rankwise_testing.suite

HERE = Path(__file__).parent
SETTINGS = Path(rankwise_testing.suite.__file__).with_name("pytest.ini")

TIMEOUT_S = 280.0


@pytest.mark.parametrize("part", ["test_cell", "not test_cell"])
def test_the_capability_table_is_the_truth_on_the_double(part: str, tmp_path: Path) -> None:
    pytest.importorskip("ml_dtypes", reason="the suite needs ml_dtypes for bfloat16 and float8")
    report = tmp_path / "table.json"
    command = [sys.executable, "-m", "pytest", "-q", "-c", str(SETTINGS), "-p", "rankwise_testing.suite.plugin"]
    backend = ["--backend", "nccl", "--device", "cuda", "--plugin-module", "nccl_on_host"]
    paths = [str(HERE), str(HERE.parents[1] / "fakes"), os.environ.get("PYTHONPATH", "")]
    run = subprocess.run(
        [*command, "--pyargs", "rankwise_testing.suite", *backend, "--report", str(report), "-k", part],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
        check=False,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(paths).rstrip(os.pathsep)},
    )
    assert run.returncode == 0, run.stdout[-6000:] + run.stderr[-2000:]
    assert json.loads(report.read_text())["differences"] == []
