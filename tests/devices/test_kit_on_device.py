"""The conformance kit on a device that a stranger brings: with a backend of its own, and by way of gloo."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from tests import kit
from tests.devices.conftest import install
from tests.processes import environment

TIMEOUT_S = 280.0


@pytest.mark.parametrize("part", ["test_cell", "not test_cell"])
@pytest.mark.parametrize("backend", ["entangled", "gloo"])
def test_the_table_is_the_truth_on_a_device_of_somebody_elses(backend: str, part: str, tmp_path: Path) -> None:
    pytest.importorskip("ml_dtypes", reason="the suite needs ml_dtypes for bfloat16 and float8")
    report, env = tmp_path / "table.json", environment(*install(tmp_path / "installed"))
    options = ["--backend", backend, "--device", "quantum", "--report", str(report), "-k", part]
    kit.passes(*options, cwd=tmp_path, timeout_s=TIMEOUT_S, env=env)
    assert json.loads(report.read_text())["differences"] == []
