"""The soak on `local`: its programs are right, it finds what is wrong, and makes it short."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

PATIENCE_S = 110.0

SOAK = Path(__file__).parents[2] / "benchmarks" / "soak"
LIARS = Path(__file__).with_name("liars")


def soak(*arguments, **variables):
    command = [sys.executable, str(SOAK), *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE_S, check=False, **variables)


def test_programs_go_well_on_an_honest_backend():
    done = soak("--backend", "local", "--seed", "1", "--count", "25", "--timeout", "20")
    assert done.returncode == 0, done.stdout + done.stderr
    assert re.search(r"^25 programs in \d+ s, 0 of them failed$", done.stdout, re.MULTILINE)


@pytest.mark.parametrize(
    ("name", "problem", "step"),
    [
        ("byte_order", r"AssertionError: broadcast .* elements are wrong", "collective|threads"),
        ("loses_at_destroy", "PeerDiedError: .* it has destroyed the group", "farewell"),
    ],
    ids=["byte_order", "loses_at_destroy"],
)
def test_a_planted_bug_is_found_and_made_short(name, problem, step, monkeypatch):
    monkeypatch.setenv("PYTHONPATH", str(LIARS))
    arguments = ["--backend", name, "--plugin-module", name, "--timeout", "20"]
    done = soak(*arguments, "--seed", "1", "--count", "200")
    assert done.returncode == 1, done.stdout + done.stderr
    assert re.search(problem, done.stdout), done.stdout
    assert len(re.findall(r"^    \d+: ", done.stdout, re.MULTILINE)) <= 2, done.stdout
    assert re.search(rf"^    \d+: ({step}) of ranks ", done.stdout, re.MULTILINE), done.stdout
    again = re.search(r"^replay: .* (--seed \d+ --keep \S+ --times \d+)$", done.stdout, re.MULTILINE)[1]
    assert any(soak(*arguments, *again.split()).returncode for _ in range(3))
