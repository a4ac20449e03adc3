"""Runs the suite as its users do, in a process of its own."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

import rankwise_testing

LIARS = Path(__file__).with_name("liars")
SUITE = Path(rankwise_testing.__file__).with_name("suite")


@pytest.fixture
def run(tmp_path, request):
    """Return what runs the suite with some arguments."""

    def run(*arguments):
        command = [sys.executable, "-m", "pytest", "-c", str(SUITE / "pytest.ini")]
        paths = [str(LIARS), os.environ.get("PYTHONPATH", "")]
        return subprocess.run(
            [*command, "-p", "rankwise_testing.suite.plugin", "--pyargs", "rankwise_testing.suite", "-q", *arguments],
            cwd=tmp_path,
            capture_output=True,
            text=True,
            timeout=280 * request.config.slowness,
            check=False,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(paths).rstrip(os.pathsep)},
        )

    return run
