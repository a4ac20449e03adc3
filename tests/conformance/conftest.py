"""Runs the suite as its users do, in a process of its own."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

import rankwise.testing

LIARS = Path(__file__).with_name("liars")
SUITE = Path(rankwise.testing.__file__).with_name("suite")


@pytest.fixture
def run(tmp_path):
    """Return what runs the suite with some arguments."""

    def run(*arguments):
        command = [sys.executable, "-m", "pytest", "-c", str(SUITE / "pytest.ini")]
        paths = [str(LIARS), os.environ.get("PYTHONPATH", "")]
        return subprocess.run(
            [*command, "-p", "rankwise.testing.suite.plugin", "--pyargs", "rankwise.testing.suite", "-q", *arguments],
            cwd=tmp_path,
            capture_output=True,
            text=True,
            timeout=115,
            check=False,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(paths).rstrip(os.pathsep)},
        )

    return run
