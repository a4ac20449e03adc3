"""`rankwise conformance NAME --fast --badge FILE`: what they say of a backend, and that they end."""

import json
import re
import subprocess
import sys
import time
from pathlib import Path

import pytest
from tests.processes import environment

LIARS = Path(__file__).with_name("liars")
TIMEOUT_S = 120.0
PLANTED = """\
from messages import cuts_off
from rankwise.backends import hookimpl
@hookimpl
def rankwise_backend(): return cuts_off()
"""


@pytest.fixture
def conformance(tmp_path):
    """Return what runs the command where the backend `cuts_off` is installed, and returns its result and the badge."""
    info = tmp_path / "planted-1.5.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: planted\nVersion: 1.5\n")
    (info / "entry_points.txt").write_text("[rankwise.backends]\ncuts_off = planted\n")
    (tmp_path / "planted.py").write_text(PLANTED)

    def run(name, *arguments):
        done = subprocess.run(
            [sys.executable, "-m", "rankwise", "conformance", name, "--fast", "--badge", "badge.json", *arguments],
            cwd=tmp_path,
            env=environment(tmp_path, LIARS),
            capture_output=True,
            text=True,
            timeout=TIMEOUT_S,
            check=False,
        )
        return done, json.loads((tmp_path / "badge.json").read_text())

    return run


def test_of_a_good_one_it_tells_every_promise(conformance):
    one_of_each = "point_to_point test_uneven test_async test_mismatch test_abort test_groups test_cells".split()
    done, badge = conformance("local", "--", "-k", " or ".join(one_of_each))
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-2000:]
    assert re.search(r"^\d{3} tests, which take about \d+ (s|minutes)$", done.stdout, re.MULTILINE)
    assert re.search(r"^\.[.s]+ +\[ *\d+%\]$", done.stdout, re.MULTILINE)  # how far it is
    kept = re.findall(r"^  kept       (.+) \(\d+ passed", done.stdout, re.MULTILINE)
    assert kept == list(badge["promises"])
    assert len(kept) == 7
    assert (badge["schemaVersion"], badge["color"], badge["backend"]) == (1, "yellow", "local")
    passed = sum(promise["passed"] for promise in badge["promises"].values())
    assert passed > 150
    # A fast run tries one dtype of each operation, and claims nothing else.
    assert badge["message"] == f"{passed} tests, {badge['covered']['cells']} cells, not complete"
    assert "declared, but not run: dtypes" in done.stdout


def test_of_a_bad_one_it_tells_the_promise_that_is_broken_first(conformance):
    done, badge = conformance("cuts_off", "--", "-x", "--tb=line")
    assert done.returncode == 1
    assert re.search(r"^  BROKEN     messages arrive as they were sent", done.stdout, re.MULTILINE)
    assert re.search(r"^  not tried  the table tells the truth", done.stdout, re.MULTILINE)
    assert (badge["color"], badge["provider"]) == ("red", "planted 1.5")
    assert re.fullmatch(r"1 of \d+ tests fail", badge["message"])
    assert badge["promises"]["messages arrive as they were sent"]["failed"] == 1


def test_a_fast_run_ends_even_if_a_backend_stands_still(run, request):
    begin = time.monotonic()
    arguments = ["--backend", "never_in_time", "--plugin-module", "never_in_time", "--tb=line", "-p", "hasty"]
    said = run(*arguments, "--fast", "-k", "test_timeouts")
    assert time.monotonic() - begin < 14 + 10 * request.config.slowness
    assert said.returncode == 0, said.stdout[-4000:] + said.stderr[-2000:]  # what it was cut off in proves nothing
    assert re.search(r"^\d+ tests were not run, as a fast run ends after 14 s$", said.stdout, re.MULTILINE)
