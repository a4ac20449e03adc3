"""A rank copies past the caches into memory that another reads, where its processor would take long to write there."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

_COMPILER = os.environ.get("CC", "cc")
TIMEOUT_S = 60


@pytest.mark.skipif(shutil.which(_COMPILER) is None, reason="there is no C compiler")
def test_copies_go_the_way_that_is_faster(tmp_path: Path) -> None:
    program, source = tmp_path / "outgoing", Path(__file__).with_name("outgoing.c")
    subprocess.run([_COMPILER, "-std=c11", "-O2", source, "-o", program], check=True, timeout=TIMEOUT_S)
    done = subprocess.run([program], text=True, capture_output=True, check=False, timeout=TIMEOUT_S)
    assert done.returncode == 0, done.stdout
