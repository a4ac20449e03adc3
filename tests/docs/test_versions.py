"""What docs/versions.md says of Pythons and systems is what the distributions say, and tells who has run them."""

import re
from datetime import date
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs/versions.md").read_text()
PROJECT = (ROOT / "pyproject.toml").read_text()
#: The systems that classifiers name, as the page calls them.
SYSTEMS = {"POSIX :: Linux": "Linux", "MacOS": "macOS", "Microsoft :: Windows": "Windows"}
PYTHONS = re.findall(r'"Programming Language :: Python :: (3\.\d+)"', PROJECT)


def tables():
    """Return the page's tables whose columns are systems: rows by their names."""
    found = []
    for table in re.findall(r"(?:^\|.*\n)+", PAGE, re.MULTILINE):
        rows = [[cell.strip() for cell in line.strip("|\n").split("|")] for line in table.splitlines()]
        if "Linux" in rows[0]:
            found.append((rows[0][1:], {row[0]: row[1:] for row in rows[2:]}))
    return found


def test_every_system_that_is_named_has_a_column():
    named = [SYSTEMS[system] for system in re.findall(r'"Operating System :: (.+)"', PROJECT)]
    for columns, _ in tables():
        assert sorted(columns) == sorted(named)


def test_every_python_that_is_named_has_a_row_that_tells_who_has_run_it():
    _, (_, rows) = tables()
    assert list(rows) == [*(f"Python {version}" for version in PYTHONS), "Python 3.14, free-threaded"]
    matrix = yaml.safe_load((ROOT / ".github/workflows/systems.yml").read_text())["jobs"]["portability"]["strategy"]
    assert len(matrix["matrix"]["python"]) == len(rows)


@pytest.mark.parametrize("cell", sorted({cell for row in tables()[1][1].values() for cell in row}))
def test_a_run_names_what_was_run_and_when(cell):
    if cell not in ("nobody yet", "all tests, at each change"):
        script, day = re.fullmatch(r"`([\w/.]+)`, (\d{4}-\d\d-\d\d)", cell).groups()
        assert (ROOT / script).exists()
        assert date(2026, 11, 1) <= date.fromisoformat(day)


def test_what_it_says_of_interpreters_is_what_they_are_told():
    source = (ROOT / "core/rankwise/basics/systems.py").read_text()
    for advice in ("PYTHON_GIL=1", "python -X gil=1", "WSGIApplicationGroup %{GLOBAL}", "rankwise.spawn"):
        assert advice in source
        assert f"`{advice}`" in PAGE
