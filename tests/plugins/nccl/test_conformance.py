"""The conformance suite on the double: all of the plugin but NCCL itself, with threads as ranks and no GPU."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from tests import kit
from tests.processes import environment

HERE = Path(__file__).parent

TIMEOUT_S = 280.0


@pytest.mark.parametrize("part", ["test_cell", "not test_cell"])
def test_the_capability_table_is_the_truth_on_the_double(part: str, tmp_path: Path) -> None:
    pytest.importorskip("ml_dtypes", reason="the suite needs ml_dtypes for bfloat16 and float8")
    report, env = tmp_path / "table.json", environment(HERE, HERE.parents[1] / "fakes")
    backend = ["--backend", "nccl", "--device", "cuda", "--plugin-module", "nccl_on_host"]
    kit.passes(*backend, "--report", str(report), "-k", part, cwd=tmp_path, timeout_s=TIMEOUT_S, env=env)
    assert json.loads(report.read_text())["differences"] == []
