"""The pages are written for strangers: docs/prose.py finds nothing in them, and finds what it is there for."""

import runpy
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PROSE = runpy.run_path(str(ROOT / "docs/prose.py"))


@pytest.mark.parametrize("page", PROSE["pages"](), ids=lambda page: str(page.relative_to(ROOT)))
def test_a_page_reads_well(page):
    assert list(PROSE["found_in"](page.read_text())) == []


def test_the_docstrings_of_all_sources_read_well():
    modules = PROSE["modules"]()
    assert ROOT / "core/rankwise/store/base.py" in modules
    found = [
        f"{path.relative_to(ROOT)}:{line}: {why}"
        for path in modules
        for line, why in PROSE["docstrings"](path.read_text())
    ]
    assert found == []


def test_every_docstring_is_read_but_no_examples_and_no_code():
    source = '''"""A module that begins at once."""

def call():
    """Return at once.

    Examples:
        >>> print("at once")
    """
    print("at once")

class _Own:
    """Waits at once."""

DESCRIPTION = "Start all at once."
EXAMPLES = "at once"
'''
    assert [(line, why[:9]) for line, why in PROSE["docstrings"](source)] == [
        *((1, "'at once'"), (4, "'at once'"), (12, "'at once'"), (14, "'at once'"))
    ]


@pytest.mark.parametrize(
    ("text", "line", "words"),
    [
        ("# A page\n\nWhoever reads this stops.", 3, "'Whoever': write name the subject"),
        ("One line\nand at once\nanother.", 1, "'at once': write immediately"),
        ("What is wrong is mended.", 1, "'mended': write fix"),
        ("It is told to who asks.", 1, "'to who'"),
        ("- an item\n- those who wait", 2, "'those who'"),
        ("| a cell | hear of it |", 1, "'hear of'"),
        (f"It goes {'on and ' * 30}on.", 1, "a sentence of 63 words"),
    ],
)
def test_what_strangers_stumble_over_is_found_with_its_line(text, line, words):
    ((where, why),) = PROSE["found_in"](text)
    assert where == line
    assert why.startswith(words)


def test_code_and_comments_are_not_read():
    text = "```python\nwhoever = 1  # at once\n```\n\nThe name `whoever`.\n\n<!-- at once -->\n"
    assert list(PROSE["found_in"](text)) == []
