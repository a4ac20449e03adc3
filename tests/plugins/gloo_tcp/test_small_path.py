"""Benchmarks that know the insides, of the board or of plain sockets, still do what the docs say."""

import os
import re
import subprocess
import sys
from pathlib import Path

PATIENCE_S = 120.0

PROGRAM = Path(__file__).parents[3] / "benchmarks/small_path.py"


def test_the_parts_of_a_small_call_and_the_cost_of_counting_are_printed(compiled):
    env = {**os.environ, "RANKWISE_NATIVE": compiled}
    done = subprocess.run([sys.executable, str(PROGRAM)], env=env, capture_output=True, text=True, timeout=PATIENCE_S)
    assert done.returncode == 0, done.stderr
    assert re.search(r"^all_reduce of 8 bytes, without waiting: +[\d.]+ us$", done.stdout, re.MULTILINE)
    recorders = re.findall(r"^  (compiled|in Python): +[\d.]+ +[\d.]+ +[+-][\d.]+$", done.stdout, re.MULTILINE)
    assert recorders == (["compiled", "in Python"] if compiled == "on" else ["in Python"])


def test_contenders_over_tcp_are_set_beside_plain_sockets():
    options = "--loopback --rounds 1 --turns 1 --sizes 8 --only".split()
    only = ["rankwise in Python", "gloo", "MPICH"]
    command = [sys.executable, str(PROGRAM.with_name("wire_peers.py")), *options, *only]
    done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE_S)
    assert done.returncode == 0, done.stderr
    for call in ("all_reduce", "message", "broadcast", "barrier"):
        assert re.search(rf"^\| {call} 8 \| [\d.]+ \| [\d.]+, [\d.]+x", done.stdout, re.MULTILINE)
    assert "MPICH is left out: " in done.stdout or " MPICH |" in done.stdout
