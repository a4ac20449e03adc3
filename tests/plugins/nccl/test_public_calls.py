"""Programs that use the public calls, in processes that have a stand-in for CuPy, and the double for NCCL."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import overhead
import pytest
from tests.processes import environment

PATIENCE_S = 100.0

HERE = Path(__file__).parent


@pytest.mark.parametrize("program", ["devices_program.py", "gpu_programs_on_host.py"])
def test_a_program_does_what_it_says(program: str) -> None:
    run = subprocess.run(
        [sys.executable, str(HERE / program)],
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=False,
        env=environment(HERE, HERE.parents[1] / "fakes"),
    )
    assert run.returncode == 0, run.stderr[-3000:]
    assert run.stdout == "done\n"


def test_the_time_that_python_takes_can_be_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(overhead, "CALLS", 20)
    monkeypatch.setattr(overhead, "ROUNDS", 2)
    assert all(0 < time_taken < 1e6 for time_taken in overhead.added_us().values())
