"""Some failures of some calls: of the same type and in the same words as on gloo; the program tries all."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

PATIENCE_S = 120.0


def test_calls_fail_as_on_gloo() -> None:
    program = Path(__file__).with_name("failing_on_host.py")
    done = subprocess.run(
        [sys.executable, str(program), "--sample", "4"], capture_output=True, text=True, timeout=PATIENCE_S, check=False
    )
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-2000:]
