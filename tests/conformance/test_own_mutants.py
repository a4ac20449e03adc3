"""`rankwise conformance NAME --mutants`: mistakes in an author's own backend, and how many the kit notices."""

import re
import shutil
import subprocess
import sys
from pathlib import Path

from tests.processes import environment

SOURCE = Path(__file__).parents[1] / "third_party" / "src" / "rankwise_mesh"
TIMEOUT_S = 150.0


def test_mutants_of_ones_own_are_noticed_and_the_code_stays_as_it_is(tmp_path, request):
    shutil.copytree(SOURCE, tmp_path / "rankwise_mesh", ignore=shutil.ignore_patterns("__pycache__"))
    info = tmp_path / "rankwise_mesh-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: rankwise-mesh\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("[rankwise.backends]\nmesh = rankwise_mesh\n")
    command = [
        sys.executable,
        "-m",
        "rankwise",
        "conformance",
        "mesh",
        "--mutants",
        "4",
        "--",
        "-k",
        "test_point_to_point",
    ]
    done = subprocess.run(
        command,
        cwd=tmp_path,
        env=environment(tmp_path),
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S * request.config.slowness,
        check=False,
    )
    noticed = re.search(r"^the kit has noticed (\d) of 4 mutants", done.stdout, re.MULTILINE)
    assert noticed, done.stdout[-3000:] + done.stderr[-2000:]
    assert int(noticed[1]) >= 2
    survivors = done.stdout.count("+++ mutant")
    assert (survivors, done.returncode) == (4 - int(noticed[1]), int(survivors > 0))
    assert (tmp_path / "rankwise_mesh" / "__init__.py").read_text() == (SOURCE / "__init__.py").read_text()
