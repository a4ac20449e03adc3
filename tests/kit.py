"""The conformance kit as a program, as its users run it."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import rankwise_testing

_SUITE = "rankwise_testing.suite"
_SETTINGS = Path(rankwise_testing.__file__).with_name("suite") / "pytest.ini"


def run(
    *arguments: str, cwd: Path, timeout_s: float, env: Mapping[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    """Run the kit in a process of its own."""
    settings = ["-c", str(_SETTINGS), "-p", f"{_SUITE}.plugin"]
    return subprocess.run(
        [sys.executable, "-m", "pytest", "-q", *settings, "--pyargs", _SUITE, *arguments],
        cwd=cwd,
        env=env,
        capture_output=True,
        text=True,
        timeout=timeout_s,
        check=False,
    )


def passes(*arguments: str, cwd: Path, timeout_s: float, env: Mapping[str, str] | None = None) -> None:
    """Run the kit likewise, and say what fails."""
    done = run(*arguments, cwd=cwd, timeout_s=timeout_s, env=env)
    assert done.returncode == 0, done.stdout[-6000:] + done.stderr[-2000:]
