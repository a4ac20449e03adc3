"""What is completed on one rank needs that rank no more: it may end at once."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

PATIENCE_S = 110.0


HERE = Path(__file__).parent


@pytest.mark.parametrize("how", ["at once", "by the end of the script"])
@pytest.mark.parametrize("transport", ["tcp", "shm"])
def test_a_rank_that_ends_after_a_collective_fails_nobody(tmp_path: Path, transport: str, how: str) -> None:
    found = subprocess.run(
        [sys.executable, "ending_programs.py", how, str(tmp_path)],
        cwd=HERE,
        env={**os.environ, "RANKWISE_GLOO_TRANSPORT": transport},
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
    )
    assert found.stdout.split() == ["0"], found.stderr[-3000:]
