"""A plugin of pytest that writes what becomes of each test as it ends, also if the run is cut off later."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

#: The variable that says which file to write; each of its lines is a test.
FILE = "RANKWISE_GPU_REPORT"


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    """Note a test that has ended, or one that could not begin or be cleaned up."""
    path = os.environ.get(FILE)
    if path is None or (report.when != "call" and report.passed):
        return
    why = report.longrepr[2] if report.skipped and isinstance(report.longrepr, tuple) else ""
    with open(path, "a", encoding="utf-8") as file:
        print(json.dumps([report.nodeid, report.outcome, why]), file=file)


def read(path: Path) -> Iterator[tuple[str, str, str]]:
    """Give name, outcome and reason of each test; outcomes are "passed", "failed" and "skipped"."""
    for line in path.read_text(encoding="utf-8").splitlines() if path.exists() else ():
        name, outcome, why = json.loads(line)
        yield name, outcome, why
