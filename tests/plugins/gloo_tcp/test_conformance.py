"""The conformance suite, in each way in which the backend can move bytes."""

from __future__ import annotations

import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

TIMEOUT_S = 280.0


# On one host "auto" is "shm" in all but the listening socket that nobody comes to.
@pytest.mark.parametrize("transport", ["tcp", "auto"])
@pytest.mark.parametrize("part", ["test_cell", "not test_cell"])
def test_the_capability_table_is_the_truth(part: str, transport: str, compiled: str, tmp_path: Path) -> None:
    if transport == "tcp" and compiled == "off":
        pytest.skip("what is compiled is the board, which the other way shows")
    spec = find_spec("rankwise_testing.suite")
    assert spec is not None
    assert spec.origin is not None
    suite = Path(spec.origin).parent
    command = [sys.executable, "-m", "pytest", "-q", "-c", str(suite / "pytest.ini"), str(suite)]
    options = ["-p", "rankwise_testing.suite.plugin", "--backend", "gloo"]
    variables = ["--env", f"RANKWISE_GLOO_TRANSPORT={transport}", "--env", f"RANKWISE_NATIVE={compiled}", "-k", part]
    run = subprocess.run(
        [*command, *options, *variables], cwd=tmp_path, capture_output=True, text=True, timeout=TIMEOUT_S
    )
    assert run.returncode == 0, run.stdout[-6000:] + run.stderr[-2000:]
