"""Links that leave the site are few: each has a reason and a proper form, and one into the repository a target.

Links within the site are checked when it is built (`mkdocs build --strict`) and by tests/docs/test_docs.py. Nothing is
fetched: whether somebody else's page is still there is looked at by hand before a release.
"""

import re
import subprocess
from pathlib import Path
from urllib.parse import urlsplit

import pytest

ROOT = Path(__file__).parents[2]
HOME = re.findall(r'^Source = "(.+)"$', (ROOT / "pyproject.toml").read_text(), re.M)[0]
#: Where links outside of this repository lead, and why they are needed.
ELSEWHERE = {
    "https://pypi.org/project/rankwise/": "the core, from the page of a plugin in the package index",
    "https://ui.perfetto.dev": "opens the timelines that `rankwise trace` writes",
    "http://www.w3.org/2000/svg": "a namespace of XML, not a page",
}
KINDS = ("*.md", "*.toml", "*.yml", "*.yaml", "*.cff")
URL = re.compile(r"https?://[^\s)>\"'`\]]+")


def files():
    """Return the files that people read on the site, in the package index or in the repository."""
    listed = subprocess.run(["git", "ls-files", *KINDS], cwd=ROOT, capture_output=True, text=True, check=False).stdout
    return [name for name in listed.split() if not name.startswith(("tests/", "benchmarks/", ".github/workflows/"))]


LINKS = {(name, url.rstrip(".,;")) for name in files() for url in URL.findall((ROOT / name).read_text())}
ABROAD = sorted({url for _, url in LINKS if not url.startswith(HOME) and "127.0.0.1" not in url})
AT_HOME = sorted({url for _, url in LINKS if url.startswith(HOME)})


@pytest.mark.parametrize("url", ABROAD)
def test_a_link_to_somebody_else_is_listed_with_its_reason(url):
    assert url in ELSEWHERE


@pytest.mark.parametrize("url", [*ABROAD, *AT_HOME])
def test_a_link_has_a_proper_form(url):
    parts = urlsplit(url)
    assert re.fullmatch(r"[a-z0-9.-]+\.[a-z]+", parts.netloc)
    assert not parts.query
    assert url.isascii()


@pytest.mark.parametrize("url", AT_HOME)
def test_a_link_into_the_repository_has_a_target(url):
    kind, _, path = url.removeprefix(HOME).strip("/").partition("/main/")
    if kind in ("blob", "tree"):
        assert (ROOT / path.partition("#")[0]).exists()
    else:
        assert kind in ("", "issues", "security/advisories/new"), url


def test_there_are_links_to_check():
    assert len(AT_HOME) > 10
