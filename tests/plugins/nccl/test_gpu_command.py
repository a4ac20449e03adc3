"""`scripts/test-gpu`: what it does where there is no GPU, and how it counts where there is one."""

from __future__ import annotations

import ctypes
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

PATIENCE_S = 60.0

ROOT = Path(__file__).parents[3]
sys.path.insert(0, str(Path(__file__).with_name("on_gpu")))

import run_all  # noqa: E402

TESTS = """
import time, pytest
def test_good(): pass
def test_bad(): assert 1 == 2
def test_not_here(): pytest.skip("for want of a second GPU")
@pytest.fixture
def broken(): raise ValueError
def test_unprepared(broken): pass
def test_slow(): time.sleep(SECONDS)
"""


def run(folder: Path, seconds: float, limit_s: float = PATIENCE_S) -> dict[str, Any]:
    file = folder / "test_sample.py"
    file.write_text(TESTS.replace("SECONDS", str(seconds)))
    arguments = [str(file), "-c", "/dev/null", "--rootdir", str(folder), "-p", "no:cacheprovider"]
    return run_all.pytest(folder, arguments, limit_s)


def test_without_a_driver_it_says_so_at_once_and_exits_with_2() -> None:
    try:
        ctypes.CDLL("libcuda.so.1")
    except OSError:
        pass
    else:
        pytest.skip("there is a driver here")
    for command in (["scripts/test-gpu"], [sys.executable, "benchmarks/nccl.py"]):
        said = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=PATIENCE_S, check=False)
        assert said.returncode == 2
        assert "there is no NVIDIA driver" in said.stderr


def test_what_passed_failed_and_was_skipped_is_counted(tmp_path: Path) -> None:
    found = run(tmp_path, 0)
    assert (found["status"], found["passed"]) == (1, 2)
    assert [name.partition("::")[2] for name in found["failed"]] == ["test_bad", "test_unprepared"]
    assert [why for why in found["skipped"].values()] == ["Skipped: for want of a second GPU"]


def test_a_run_that_is_cut_off_tells_what_it_had_found(tmp_path: Path) -> None:
    found = run(tmp_path, 60, 8)
    assert (found["status"], found["passed"], len(found["failed"])) == ("cut off", 1, 2)
