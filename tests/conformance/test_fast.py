"""`rankwise conformance NAME --fast --badge FILE`: what they say of a backend, and that they end."""

import json
import re
import subprocess
import sys
import time
from pathlib import Path

import pytest
from tests.processes import environment

from rankwise_testing.suite.promises import NOT_TRIED, PROMISES, order, processor_s, promise_of

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
    # What it was cut off in proves nothing, and what nothing has proved is no success.
    assert said.returncode == NOT_TRIED, said.stdout[-4000:] + said.stderr[-2000:]
    assert re.search(r"^\d+ tests were not run, as a fast run ends after", said.stdout, re.MULTILINE)
    assert said.stdout.splitlines()[-1] == "not tried, for lack of time: nothing hangs"


def test_a_fast_run_tries_some_of_every_promise_before_the_rest_of_any():
    modules = [module for of in PROMISES.values() for module in of for _ in range(30)]
    places = order(modules, fast=True)
    first = [module for place, module in sorted(zip(places, modules, strict=True))][: len(modules) // 6]
    assert {promise_of(module) for module in first} == set(PROMISES)
    assert first.count("test_cells") == 30  # each operation
    assert order(modules, fast=False) == sorted(order(modules, fast=False))


def test_the_time_of_ranks_counts():
    before = processor_s()
    subprocess.run([sys.executable, "-c", "while __import__('time').process_time() < 0.5: pass"], check=True)
    assert 0.4 < processor_s() - before < 5


def test_the_test_behind_each_sentence_is_named(conformance, tmp_path):
    report = tmp_path / "report.json"
    arguments = ("-k", "longer_message or tags_tell", "--tb=line")
    done, badge = conformance("cuts_off", "--report", str(report), "--", *arguments)
    test = "test_a_longer_message_is_an_error_that_names_both_sizes"
    assert f"             by {test}\n" in done.stdout
    assert f"short_messages is declared, but does not work ({test})" in done.stdout
    assert json.loads(report.read_text())["broken_by"] == badge["broken_by"]
    assert badge["broken_by"] == {"messages arrive as they were sent": [test]}
