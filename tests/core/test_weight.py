"""`import rankwise` loads what every program needs; the rest comes with the first name or call that needs it."""

from __future__ import annotations

import runpy
import sys
from pathlib import Path

import pytest

import rankwise as dist

ROOT = Path(__file__).parents[2]


def test_an_import_stays_small() -> None:
    imported = runpy.run_path(str(ROOT / "benchmarks" / "weight.py"))["imported"]
    _, modules, lines = imported()
    assert modules <= 60
    assert lines <= 9_000


def test_every_public_name_is_found_and_kept() -> None:
    for name in dist.__all__:
        found = getattr(dist, name)
        assert vars(dist)[name] is found


def test_a_name_that_is_not_there_is_refused_in_words() -> None:
    with pytest.raises(AttributeError, match="module 'rankwise' has no attribute 'all_redcue'"):
        dist.all_redcue  # noqa: B018
    assert "rankwise.all_redcue" not in sys.modules
