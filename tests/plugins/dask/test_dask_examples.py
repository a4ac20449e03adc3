"""The examples for Dask and joblib run, and check their own results."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parents[3] / "examples"
TIMEOUT_S = 60


@pytest.mark.parametrize(
    ("program", "last"),
    [
        ("dask/standardise.py", "4000 rows on 2 workers: the two differ by less than 1e-9"),
        ("joblib/ranks.py", "3 ranks have [6.0, 6.0, 6.0, 6.0]"),
    ],
)
def test_an_example_says_what_its_page_says(program: str, last: str) -> None:
    if program.startswith("joblib"):
        pytest.importorskip("joblib")
    done = subprocess.run(
        [sys.executable, str(EXAMPLES / program)], capture_output=True, text=True, timeout=TIMEOUT_S, check=False
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-1] == last
