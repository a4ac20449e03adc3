"""Ranks compare what brings each backend before they use it: two versions may not understand each other."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from rankwise_testing import run_ranks

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE))
import meeting_programs as programs  # noqa: E402

TIMEOUT_S = 60.0


@pytest.mark.parametrize("core", ["", "0.1"], ids=["", "of one core"])
def test_two_versions_of_a_plugin_do_not_meet(tmp_path: Path, core: str) -> None:
    said = run_ranks(programs.begin_installed, 2, str(tmp_path), ["1.0", "2.0"], ["", ""], core, timeout=TIMEOUT_S)
    assert said[0] == said[1]
    assert "the ranks disagree: backend 'acme' is 'rankwise-acme " in said[0]
    assert {"rankwise-acme 1.0" in said[0], "rankwise-acme 2.0" in said[0]} == {True}


@pytest.mark.parametrize("meets", [["wire 7", "wire 7"], ["wire 7", "wire 8"]])
def test_a_plugin_says_which_of_its_versions_understand_each_other(tmp_path: Path, meets: list[str]) -> None:
    said = run_ranks(programs.begin_installed, 2, str(tmp_path), ["1.0", "2.0"], meets, timeout=TIMEOUT_S)
    assert said[0] == said[1]
    assert all(each in said[0] for each in meets) == (meets[0] != meets[1])


@pytest.mark.parametrize("differs", ["", "table", "contract"])
def test_declarations_that_differ_do_not_meet(differs: str) -> None:
    said = run_ranks(programs.begin_registered, 2, differs, timeout=TIMEOUT_S)
    assert said[0] == said[1]
    assert ("the ranks disagree: backend 'acme'" in said[0]) == bool(differs)
