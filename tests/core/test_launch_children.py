"""What ranks of `rankwise run` start may begin a job of its own, and is no rank unless it is let in."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.command_line import Launcher
from tests.core import child_programs
from tests.core.child_programs import CHILDREN

TIMEOUT_S = 120


@pytest.mark.parametrize("size", [1, 2])
def test_whatever_a_rank_starts_works(tmp_path: Path, size: int) -> None:
    """Also where all ranks start the same at the same time: their children do not get in each other's way."""
    done = Launcher(tmp_path, TIMEOUT_S).run("-n", str(size), child_programs.__file__, "start_all")
    assert (done.returncode, done.stderr) == (0, "")
    whole = {"its_place that inherits": f"world of {size}", "forked": f"world of {size}"}
    expected = {child.__name__: said[size - 1] for child, said in CHILDREN.items()} | whole
    for rank in range(size):
        mine = [line.split(": ", 1)[1] for line in done.stdout.splitlines() if line.startswith(f"[{rank}]")]
        assert dict(line.split(": ", 1) for line in mine) == expected
