"""The example `wire` as those have it who install it, on part of the kit; `rankwise conformance wire` runs all."""

import subprocess
import sys
from pathlib import Path

import pytest
from tests.processes import environment

SOURCE = Path(__file__).parents[2] / "examples" / "wire"
TIMEOUT_S = 60
#: What it does in ways of its own.
TESTS = "test_point_to_point or test_message_dtypes or test_uneven or test_mismatch or test_abort or test_endings"
TESTS += (
    " or test_death or test_callbacks or (any_count and (broadcast or all_reduce)) or (test_cell and all_reduce-AVG)"
)


@pytest.fixture(autouse=True)
def installed(tmp_path, monkeypatch):
    info = tmp_path / "rankwise_wire-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: rankwise-wire\nVersion: 1.0\n")
    points = (SOURCE / "pyproject.toml").read_text().split('[project.entry-points."')[1:]
    lines = "\n[".join(point.partition("\n[")[0].replace('"]', "]", 1).replace('"', "") for point in points)
    (info / "entry_points.txt").write_text(f"[{lines}\n")
    monkeypatch.setenv("PYTHONPATH", environment(tmp_path, SOURCE / "src")["PYTHONPATH"])


@pytest.mark.parametrize(("variant", "tests"), [("unix", TESTS), ("tcp", "test_point_to_point or test_death")])
def test_it_keeps_its_word(run, variant, tests):
    said = run("--backend", "wire", "--variant", variant, "--tb=short", "-k", tests)
    assert said.returncode == 0, said.stdout[-6000:] + said.stderr[-2000:]


#: Alone afterwards, where it is about nothing but what `create` is given.
PROGRAM = """
import sys
import numpy as np, rankwise as dist
from rankwise_wire.options import Options

dist.init_process_group("wire", pg_options=Options(family="tcp"))
array = np.full(5, dist.get_rank() + 1.0)
dist.all_reduce(array)
assert (array == 3).all()
rank = dist.get_rank()
dist.destroy_process_group()
alone = {"rank": 0, "world_size": 1, "init_method": f"file://{sys.argv[1]}{rank}"}
try:
    dist.init_process_group("wire", pg_options={"family": "tcp"}, **alone)
except TypeError as error:
    assert "pg_options must be a rankwise_wire.options.Options, not {'family'" in str(error), error
else:
    raise AssertionError("a dict is no Options")
"""


def rankwise(*arguments):
    command = [sys.executable, "-m", "rankwise", *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=TIMEOUT_S, check=False)


def test_it_has_options_of_its_own(tmp_path):
    (tmp_path / "program.py").write_text(PROGRAM)
    done = rankwise("run", "-n", "2", str(tmp_path / "program.py"), str(tmp_path / "again"))
    assert done.returncode == 0, done.stderr


def test_it_has_a_command_and_a_check_of_its_own():
    done = rankwise("wire", "--rounds", "2")
    assert done.returncode == 0, done.stderr
    assert [line.split()[0] for line in done.stdout.splitlines()] == ["8", "4096", "1048576"]
    assert "wire: sockets lie in " in rankwise("doctor", "--quick").stdout
