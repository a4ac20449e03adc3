"""docs/where-to-change.md holds row by row: a copy of the tree is changed as the page says, in no other files."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))
from copies import ROOT, Copy, copy_of_the_tree
from trials import TRIALS, UNTRIED, Trial

PATIENCE_S = 100.0
ROWS = {
    cells[0].strip(): " ".join(cells)
    for line in (ROOT / "docs/where-to-change.md").read_text().partition("|---|")[2].splitlines()
    if len(cells := line.split(" | ")) == 3 and (cells := [cell.strip("| ") for cell in cells])
}
NOTICED = [trial.noticed for trial in TRIALS.values() if trial.noticed]


@pytest.fixture(scope="module")
def bare(tmp_path_factory: pytest.TempPathFactory) -> Copy:
    """A copy with what makes the new things work, and without what else changes."""
    copy = copy_of_the_tree(tmp_path_factory.mktemp("bare"))
    copy.change(edit for trial in TRIALS.values() for edit in trial.edits)
    copy.install()
    return copy


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Copy:
    """A copy with all that the rows tell."""
    copy = copy_of_the_tree(tmp_path_factory.mktemp("whole"))
    copy.change(edit for trial in TRIALS.values() for edit in (*trial.edits, *trial.else_))
    copy.install()
    return copy


def test_each_row_is_tried_or_has_the_reason_why_not() -> None:
    assert len(ROWS) > 30
    assert sorted(ROWS) == sorted([*TRIALS, *UNTRIED])
    tests = {name for reason in UNTRIED.values() for name in re.findall(r"tests/[\w/]+(?:\.py)?", reason)}
    assert all((ROOT / name).exists() for name in tests)


@pytest.mark.parametrize("trial", TRIALS.values(), ids=TRIALS)
def test_a_change_is_in_the_files_that_its_row_names(trial: Trial) -> None:
    named = re.findall(r"`([\w./-]+)`", ROWS[trial.row])
    for edit in (*trial.edits, *trial.else_):
        is_free = edit.path == trial.anywhere
        assert is_free or any(is_named(edit.path, name) for name in named), f"the row does not name {edit.path}"


def is_named(path: str, name: str) -> bool:
    """Tell whether a row means this file: by its path, by its folder, or by a form such as `NAME_command.py`."""
    form = re.escape(name).replace("NAME", r"\w+") + (".*" if name.endswith("/") else "")
    roots = ("", "core/rankwise/", *(["(?:.*/)?"] if "NAME" in name or name == "pyproject.toml" else []))
    return any(re.fullmatch(root + form, path) for root in roots)


@pytest.mark.parametrize("trial", TRIALS.values(), ids=TRIALS)
def test_what_the_row_tells_is_enough(trial: Trial, whole: Copy, tmp_path: Path) -> None:
    (tmp_path / "program.py").write_text(trial.program)
    launcher = ["-m", "rankwise", "run", "-n", str(trial.ranks)] if trial.ranks else []
    done = whole.run(*launcher, "program.py", timeout_s=PATIENCE_S, folder=tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr


def test_the_tests_that_the_page_promises_ask_for_the_rest(bare: Copy) -> None:
    done = bare.run("-m", "pytest", "-q", "-p", "no:cacheprovider", *NOTICED, timeout_s=PATIENCE_S)
    failed = re.findall(r"^FAILED (\S+)", done.stdout, re.MULTILINE)
    missed = [test for test in NOTICED if not any(name.startswith(test) for name in failed)]
    assert missed == [], done.stdout + done.stderr


def test_with_all_of_it_the_pages_are_right(whole: Copy) -> None:
    for script in ("scripts/tables.py", "scripts/stub.py"):
        done = whole.run(script, timeout_s=PATIENCE_S)
        assert done.returncode == 0, done.stdout + done.stderr
    pages = [test for test in NOTICED if "test_docs" in test or "test_extras" in test]
    done = whole.run("-m", "pytest", "-q", "-p", "no:cacheprovider", *pages, timeout_s=PATIENCE_S)
    assert done.returncode == 0, done.stdout + done.stderr


def test_the_lists_of_the_tools_have_every_new_module(whole: Copy) -> None:
    assert whole.unlisted() == []
