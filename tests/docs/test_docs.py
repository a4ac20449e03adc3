"""The documentation says what is true: its programs run, its tables are fresh, its links lead somewhere."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").glob("**/*.md"))]
BLOCK = re.compile(r"^```python\n(.*?)^```\n(?:\n```text\n(.*?)^```)?", re.MULTILINE | re.DOTALL)


def blocks():
    """Yield every Python program of the documentation, with the output that the page shows for it."""
    for page in PAGES:
        for match in BLOCK.finditer(page.read_text()):
            line = page.read_text()[: match.start()].count("\n") + 2
            yield pytest.param(match[1], match[2], id=f"{page.relative_to(ROOT)}:{line}")


@pytest.mark.parametrize(("program", "shown"), list(blocks()))
def test_programs_run_and_print_what_is_shown(program, shown):
    env = {**os.environ, "RANK": "0", "WORLD_SIZE": "1"}
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, env=env)
    assert done.returncode == 0, done.stderr
    if shown is not None:
        assert done.stdout == shown


def test_the_complete_backend_is_the_one_that_is_tested():
    page = (ROOT / "docs" / "writing-a-backend.md").read_text()
    source = (ROOT / "tests/third_party/src/rankwise_mesh/__init__.py").read_text()
    assert f"```python\n{source}```" in page
    assert f"```toml\n{(ROOT / 'tests/third_party/pyproject.toml').read_text()}```" in page
    assert len([line for line in source.splitlines() if line.strip()]) <= 80


def test_the_tables_are_fresh():
    done = subprocess.run([sys.executable, "scripts/tables.py", "--check"], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_lead_somewhere(page):
    for target in re.findall(r"\]\(([^)#]+)", page.read_text()):
        if "://" not in target:
            assert (page.parent / target).exists(), target
