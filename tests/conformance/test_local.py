"""The conformance suite on `local`, the in-process backend; its own output tells what is wrong."""

import json
import subprocess
import sys
from pathlib import Path

import rankwise.testing

SUITE = Path(rankwise.testing.__file__).with_name("suite")


def run(tmp_path, *arguments):
    command = [sys.executable, "-m", "pytest", "-c", str(SUITE / "pytest.ini"), "-p", "rankwise.testing.suite.plugin"]
    return subprocess.run(
        [*command, "--pyargs", "rankwise.testing.suite", "-q", *arguments],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=115,
        check=False,
    )


def test_local_is_what_it_declares(tmp_path):
    report = tmp_path / "local.json"
    said = run(tmp_path, "--backend", "local", "--report", str(report))
    assert said.returncode == 0, said.stdout[-8000:] + said.stderr[-2000:]
    measured = json.loads(report.read_text())
    assert measured["differences"] == []
    assert measured["measured"] == measured["declared"]
    assert measured["not_measured"] == ["split"]
