"""The conformance suite, in each way in which the backend can move bytes."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests import kit

TIMEOUT_S = 280.0


# On one host "auto" is "shm" in all but the listening socket that nobody comes to.
@pytest.mark.parametrize("transport", ["tcp", "auto"])
def test_the_capability_table_is_the_truth(transport: str, compiled: str, tmp_path: Path) -> None:
    if transport == "tcp" and compiled == "off":
        pytest.skip("what is compiled is the board, which the other way shows")
    variables = ["--env", f"RANKWISE_GLOO_TRANSPORT={transport}", "--env", f"RANKWISE_NATIVE={compiled}"]
    kit.passes("--backend", "gloo", *variables, cwd=tmp_path, timeout_s=TIMEOUT_S)
