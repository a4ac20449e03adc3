"""`conformance`: the suite as a function."""

from __future__ import annotations

import contextlib
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from rankwise_launch.toolbox import die_with_parent

_SUITE = "rankwise_testing.suite"
#: How long pytest may take to end its workers.
_GRACE_S = 10.0


def conformance(name: str, device: str = "cpu", extra_args: Sequence[str] = ()) -> int:
    """Run the conformance suite on a backend, in a process of its own, and return pytest's exit code: 0 if all is well.

    Args:
        name: The backend.
        device: The kind of device to prove it on.
        extra_args: Further arguments for pytest, those of the suite included (`--report FILE`, `--variant NAME`).
    """
    return _run(command(name, device, extra_args))


def command(name: str, device: str = "cpu", extra_args: Sequence[str] = ()) -> list[str]:
    """Return what runs the suite on a backend."""
    # The suite's own settings, whatever project this is called in.
    settings = Path(__file__).with_name("suite") / "pytest.ini"
    pytest = [sys.executable, "-m", "pytest", "-c", str(settings), "-p", f"{_SUITE}.plugin", "--pyargs", _SUITE]
    return [*pytest, "--backend", name, "--device", device, *extra_args]


def _run(command: Sequence[str]) -> int:
    """Run pytest, which ends its workers as after Ctrl-C when this process is ended, in whatever way."""
    process = subprocess.Popen(command, preexec_fn=die_with_parent(signal.SIGINT))
    try:
        return process.wait()
    finally:
        if process.poll() is None:
            process.send_signal(signal.SIGINT)
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(_GRACE_S)
            process.kill()
            process.wait()
