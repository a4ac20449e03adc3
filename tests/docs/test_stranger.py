"""What a stranger looks for is there, two clicks from the front page: what docs/developers/stranger.md lists."""

import re
from functools import cache
from pathlib import Path

import pytest

from rankwise.cli import COMMANDS

DOCS = Path(__file__).parents[2] / "docs"
SCRIPT = DOCS / "developers/stranger.md"
ROW = re.compile(
    r"^\| (?P<task>[^|]+?) \| (?P<words>[^|]+?) \| \[[^]]+\]\((?P<page>[^)#]+)(?:#(?P<anchor>[^)]+))?\) \|$", re.M
)
TASKS = [found.groupdict() for found in ROW.finditer(SCRIPT.read_text())]


def slug(heading):
    """Return the anchor of a heading, as Python-Markdown makes it."""
    words = re.sub(r"\[([^]]*)\]\([^)]*\)|`", r"\1", heading)
    return re.sub(r"[-\s]+", "-", re.sub(r"[^\w\s-]", "", words).strip().lower())


@cache
def text(page):
    """Return a page with what it includes."""
    root = DOCS.parent

    def included(found):
        path, _, section = found[1].partition(":")
        whole = (root / path).read_text()
        return whole.partition(f"[start:{section}]")[2].partition(f"[end:{section}]")[0] if section else whole

    return re.sub(r'^ *--8<-- "([^"]+)"', included, (DOCS / page).read_text(), flags=re.M)


def anchors(page):
    outside = re.sub(r"^( *)```.*?^\1```$", "", text(page), flags=re.M | re.S)
    return {slug(heading) for heading in re.findall(r"^#+ (.+)$", outside, re.M)}


@cache
def navigation():
    """Return the tabs of mkdocs.yml: the pages below each, in order."""
    tabs = []
    for line in (DOCS.parent / "mkdocs.yml").read_text().partition("\nnav:\n")[2].splitlines():
        if line.startswith("  - "):
            tabs.append([])
        tabs[-1] += re.findall(r"([\w/-]+\.md)$", line)
    return tabs


@cache
def clicks():
    """Return how many clicks each page is from the front page: by tabs, by the column at the left, and by links."""
    found = {"index.md": 0}
    found |= {tab[0]: 1 for tab in navigation() if tab[0] != "index.md"}
    found |= {page: 1 for page in re.findall(r"\]\(([\w/-]+\.md)", text("index.md"))}
    for tab in navigation():
        found |= {page: 2 for page in tab if page not in found}
    return found


def test_there_are_sixty_tasks_each_its_own():
    assert len(TASKS) == 60
    assert len({task["task"] for task in TASKS}) == 60


@pytest.mark.parametrize("task", TASKS, ids=lambda task: task["task"])
def test_the_answer_is_there_and_two_clicks_away(task):
    page = (SCRIPT.parent / task["page"]).resolve().relative_to(DOCS).as_posix()
    assert (DOCS / page).exists()
    assert task["anchor"] is None or task["anchor"] in anchors(page)
    assert clicks().get(page, 9) <= 2
    for command in re.findall(r"\brankwise ([a-z-]+)", task["words"]):
        assert command in COMMANDS


@pytest.mark.parametrize("task", TASKS, ids=lambda task: task["task"])
def test_the_words_to_search_for_are_on_the_page(task):
    page = (SCRIPT.parent / task["page"]).resolve().relative_to(DOCS).as_posix()
    words = {word.lower() for word in re.findall(r"[\w.-]+", task["words"])}
    missing = {word for word in words if word not in text(page).lower() and word.rstrip("s") not in text(page).lower()}
    assert not missing


def test_what_is_not_there_is_missed():
    assert slug("rankwise.spawn") == "rankwisespawn"
    assert "no-such-heading" not in anchors("install.md")
    assert "no-such-page.md" not in clicks()
