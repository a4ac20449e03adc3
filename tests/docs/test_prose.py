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
parser.add_argument("--all", help="all at once")
'''
    assert [(line, why[:9]) for line, why in PROSE["docstrings"](source)] == [
        *((1, "'at once'"), (4, "'at once'"), (12, "'at once'"), (14, "'at once'"), (16, "'at once'"))
    ]


def test_docstrings_may_be_terser_than_pages_and_help_texts():
    stilted = "It goes by way of the host."
    assert list(PROSE["docstrings"](f'"""{stilted}"""')) == []
    assert [line for line, _ in PROSE["docstrings"](f'DESCRIPTION = "{stilted}"')] == [1]
    assert [line for line, _ in PROSE["found_in"](stilted)] == [1]


@pytest.mark.parametrize(
    ("text", "line", "words"),
    [
        ("# A page\n\nWhoever reads this stops.", 3, "'Whoever': write name the subject"),
        ("One line\nand at once\nanother.", 1, "'at once': write immediately"),
        ("What is wrong is mended.", 1, "'mended': write fix"),
        ("It is told to who asks.", 1, "'to who'"),
        ("- an item\n- those who wait", 2, "'those who'"),
        ("| a cell | hear of it |", 1, "'hear of'"),
        ("It has a thread of its own.", 1, "'a thread of its own': write its own thread"),
        ("It takes some 3.5 ms.", 1, "'some 3.5': write about"),
        ("It is done. Of the ranks one waits.", 1, "'Of the': write the subject first"),
        ("A shell is no rank.", 1, "'is no rank': write is not a"),
        ("It shows who is waited for.", 1, "'who is waited for': write the rank that the others wait for"),
        (f"It goes {'on and ' * 30}on.", 1, "a sentence of 63 words"),
    ],
)
def test_what_strangers_stumble_over_is_found_with_its_line(text, line, words):
    ((where, why),) = PROSE["found_in"](text)
    assert where == line
    assert why.startswith(words)


@pytest.mark.parametrize(
    "text",
    [
        "There is no rank left, some of the 3 ranks wait, and each has no lock of its own.",
        "The end of the page, of course, is one of the ranks' own.",
    ],
)
def test_plain_words_are_left_alone(text):
    assert [why for _, why in PROSE["found_in"](text) if "of course" not in why] == []


def test_code_and_comments_are_not_read():
    text = "```python\nwhoever = 1  # at once\n```\n\nThe name `whoever`.\n\n<!-- at once -->\n"
    assert list(PROSE["found_in"](text)) == []
