"""What the scripts that make environments print: a line a step, and of pip only what has failed."""

import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PATIENCE_S = 60.0

#: Stands in for a Python: makes an environment whose pip says much, and ends as it is told.
FAKE = """#!/bin/sh
if [ "$2" = venv ]; then
    mkdir -p "$3/bin"
    cp "$0" "$3/bin/python"
else
    for number in $(seq 100); do echo "line $number of pip"; echo "warning $number" >&2; done
    exit "$PIP_ENDS"
fi
"""


def environment(folder: Path, pip_ends: int) -> subprocess.CompletedProcess[str]:
    fake = folder / "python"
    fake.write_text(FAKE)
    fake.chmod(0o755)
    program = (
        f'set -euo pipefail; . scripts/environment.sh; environment "{folder}/env" -e . -e ./plugins/watch; echo made'
    )
    variables = {"PATH": "/usr/bin:/bin", "PYTHON": str(fake), "PIP_ENDS": str(pip_ends)}
    command = ["bash", "-c", program]
    return subprocess.run(command, cwd=ROOT, env=variables, capture_output=True, text=True, timeout=PATIENCE_S)


def test_an_environment_is_made_in_two_lines_once(tmp_path: Path) -> None:
    run = environment(tmp_path, 0)
    assert (run.returncode, run.stdout) == (0, "made\n"), run.stderr
    first, second = run.stderr.splitlines()
    assert first == f"installing into {tmp_path}/env: rankwise, rankwise-watch (a minute or two, once)"
    assert second.startswith("installed in ")
    again = environment(tmp_path, 1)
    assert (again.returncode, again.stdout, again.stderr) == (0, "made\n", "")


@pytest.mark.parametrize("status", [1, 2])
def test_what_pip_says_is_kept_in_a_file_that_is_named_if_it_fails(tmp_path: Path, status: int) -> None:
    run = environment(tmp_path, status)
    assert (run.returncode, run.stdout) == (1, "")
    assert "line 100 of pip" in run.stderr
    assert "line 80 of pip" not in run.stderr
    log = tmp_path / "env" / "pip.log"
    assert run.stderr.splitlines()[-1] == f"pip could not install this; all that it said is in {log}"
    assert len(log.read_text().splitlines()) == 200
    assert environment(tmp_path, 0).returncode == 0, "it is tried again"
