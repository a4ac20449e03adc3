"""The processor converts 16-bit floats to the bits that plain C gives; `scripts/native halves` tries all of 32 bits."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

_COMPILER = os.environ.get("CC", "cc")
#: Every how-manieth float of 32 bits is converted; odd, so that the last bits take all values.
_STEP = "37"
TIMEOUT_S = 60


@pytest.mark.skipif(shutil.which(_COMPILER) is None, reason="there is no C compiler")
def test_all_halves_are_converted_alike(tmp_path: Path) -> None:
    program, source = tmp_path / "halves", Path(__file__).with_name("halves.c")
    flags = ["-std=c11", "-O3", "-fno-math-errno", "-fno-trapping-math"]
    subprocess.run([_COMPILER, *flags, source, "-o", program], check=True, timeout=TIMEOUT_S)
    subprocess.run([program, _STEP], check=True, timeout=TIMEOUT_S)
