"""Runs the suite as its users do, in a process of its own."""

from pathlib import Path

import pytest
from tests import kit
from tests.processes import environment

LIARS = Path(__file__).with_name("liars")


@pytest.fixture
def run(tmp_path, request):
    """Return what runs the suite with some arguments."""

    def run(*arguments):
        return kit.run(*arguments, cwd=tmp_path, timeout_s=280 * request.config.slowness, env=environment(LIARS))

    return run
