"""The conformance kit as a program, as its users run it."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

import rankwise_testing

__all__ = ["PARTS", "passes", "run"]

_SUITE = "rankwise_testing.suite"
_FOLDER = Path(rankwise_testing.__file__).with_name("suite")
#: The modules of the kit.
PARTS = tuple(sorted(f"{_SUITE}.{file.stem}" for file in _FOLDER.glob("test_*.py")))


def run(
    *arguments: str, cwd: Path, timeout_s: float, parts: Sequence[str] = (_SUITE,), env: Mapping[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    """Run the kit, or parts of it, in a process of its own."""
    settings = ["-c", str(_FOLDER / "pytest.ini"), "-p", f"{_SUITE}.plugin"]
    return subprocess.run(
        [sys.executable, "-m", "pytest", "-q", *settings, "--pyargs", *parts, *arguments],
        cwd=cwd,
        env=env,
        capture_output=True,
        text=True,
        timeout=timeout_s,
        check=False,
    )


def passes(
    *arguments: str, cwd: Path, timeout_s: float, parts: Sequence[str] = (_SUITE,), env: Mapping[str, str] | None = None
) -> None:
    """Run the kit likewise, and say what fails."""
    done = run(*arguments, cwd=cwd, timeout_s=timeout_s, parts=parts, env=env)
    assert done.returncode == 0, done.stdout[-6000:] + done.stderr[-2000:]
