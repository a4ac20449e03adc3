"""The documentation is complete and fresh: its tables and lists are those of the code, its links lead somewhere."""

import math
import re
import shutil
import subprocess
import sys
from functools import cache
from pathlib import Path

import pytest

from rankwise import errors
from rankwise.cli import COMMANDS
from rankwise_launch.config import DESCRIPTIONS

PATIENCE_S = 60.0

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
PAGES = sorted({*ROOT.glob("*.md"), *ROOT.glob("plugins/*/README.md"), *DOCS.glob("**/*.md")})
IDS = {"ids": lambda page: str(page.relative_to(ROOT))}


def text(name):
    return (DOCS / name).read_text()


def test_the_complete_backend_is_the_one_that_is_tested():
    page = text("writing-a-backend.md")
    source = (ROOT / "tests/third_party/src/rankwise_mesh/__init__.py").read_text()
    assert f"```python\n{source}```" in page
    assert f"```toml\n{(ROOT / 'tests/third_party/pyproject.toml').read_text()}```" in page
    assert len([line for line in source.splitlines() if line.strip()]) <= 80


GENERATING = (
    *("scripts/tables.py", "scripts/stub.py"),
    *("docs/images/draw.py", "docs/images/elastic.py", "docs/images/gallery.py"),
)


@pytest.mark.parametrize("script", GENERATING)
def test_what_is_generated_is_fresh(script):
    done = subprocess.run(
        [sys.executable, script, "--check"], cwd=ROOT, capture_output=True, text=True, timeout=PATIENCE_S
    )
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("page", PAGES, **IDS)
def test_links_and_pictures_lead_somewhere(page):
    for target in re.findall(r"\]\(([^)#\s]+)", page.read_text()):
        if "://" not in target:
            assert (page.parent / target).exists(), target


@pytest.mark.parametrize("page", PAGES, **IDS)
def test_what_is_included_is_there(page):
    for target, section in re.findall(r'--8<-- "([^":]+):?([^"]*)"', page.read_text()):
        assert (ROOT / target).exists(), target
        assert not section or f"--8<-- [start:{section}]" in (ROOT / target).read_text(), section


SMALL, LARGE = range(1 << 16 | 1), range(1 << 20, 1 << 30)


@pytest.mark.parametrize(
    ("begin", "end", "sizes", "column"),
    [
        ("### Two ranks", "### Four", SMALL, 8),
        ("### Two ranks", "### Four", LARGE, 9),
        ("### Four ranks", "Measured", SMALL, 10),
        ("### Four ranks", "Measured", LARGE, 11),
        ("between two hosts", "Measured", SMALL, 4),
        ("between two hosts", "Measured", LARGE, 5),
    ],
)
def test_the_ratios_at_a_glance_are_the_means_of_the_tables(begin, end, sizes, column):
    table = text("performance-tables.md").partition(begin)[2].partition(end)[0]
    number = r"([\d.]+)"
    row = rf"^\| \w+ \| (\d+) \| {number} \(.*?\) \| {number}, {number}x \|(?: {number}, {number}x \|)?$"
    rows = [found for found in re.findall(row, table, re.MULTILINE) if int(found[0]) in sizes]
    means = [mean_ratio([(float(found[1]), float(found[peer])) for found in rows if found[peer]]) for peer in (2, 4)]
    assert shown_ratios()[column] == [mean for mean in means if mean]


def test_the_ratios_of_mpi_at_a_glance_are_the_means_of_its_table():
    table = text("performance-tables.md").partition("## What `mpi` adds")[2]
    rows = [line.split("|")[1:-1] for line in table.splitlines() if line.startswith("| `") and line.count("|") == 8]
    for column, large in ((6, False), (7, True)):
        chosen = [row for row in rows if ("iB" in row[0]) == large]
        bare = [[float(re.search(r"-?[\d.]+", cell)[0]) for cell in row[1:]] for row in chosen]
        means = [mean_ratio([(row[at] + row[at + 1], row[at]) for row in bare]) for at in (0, 3)]
        assert shown_ratios()[column] == means


@pytest.mark.parametrize(("ranks", "small", "column"), [(2, True, 0), (2, False, 1), (4, True, 2), (4, False, 3)])
def test_the_ratios_of_the_compiled_parts_at_a_glance_are_the_means_of_their_table(ranks, small, column):
    table = text("native.md").partition(f"| {ranks} ranks | bytes |")[2].partition("\n\n")[0]
    rows = re.findall(r"^\| \w+ \| (\d+) \| ([\d.]+) \|(.*)\|$", table, re.MULTILINE)
    chosen = [(float(ours), rivals) for nbytes, ours, rivals in rows if (int(nbytes) <= 64 << 10) == small]
    times = [(ours, [float(cell.split(",")[0]) for cell in rivals.split("|")]) for ours, rivals in chosen]
    _, openmpi, mpich, gloo = (mean_ratio([(ours, each[peer]) for ours, each in times]) for peer in range(4))
    assert shown_ratios()[column] == [gloo, openmpi, mpich]


def test_the_front_page_shows_the_ratios_of_what_is_installed_by_default():
    bars = [float(ratio) for ratio in re.findall(r"</span>([\d.]+)x</td>", text("index.md"))]
    assert bars == [ratio for gloo, openmpi, _ in shown_ratios()[:2] for ratio in (openmpi, gloo)]


def test_the_error_on_the_front_page_is_one_that_is_tested():
    shown = text("index.md").partition("CollectiveMismatchError")[2].partition("\n```")[0]
    run = text("first-five-minutes.md").partition("CollectiveMismatchError")[2]
    assert [line.split(" at ")[0] for line in shown.splitlines()] == [
        line.split(" at ")[0] for line in run.splitlines()[: shown.count("\n") + 1]
    ]


def mean_ratio(times):
    """Return the geometric mean of the second time by the first, with two digits; None of nothing."""
    if not times:
        return None
    return float(f"{math.exp(sum(math.log(theirs / ours) for ours, theirs in times) / len(times)):.2g}")


def shown_ratios():
    table = text("performance.md").partition("| --- |")[2]
    return [[float(ratio) for ratio in re.findall(r"([\d.]+)x", line)] for line in table.splitlines() if "| `" in line]


#: What explains the sources to developers, and names them.
DESIGN = [DOCS / "design.md", *sorted(DOCS.glob("developers/*.md"))]


@cache
def tracked():
    """Return the files of the repository, each with a mark in front of its first folder, and their folders."""
    if shutil.which("git") is None:
        pytest.skip("there is no git on this machine, which knows what belongs to the repository")
    command = ["git", "ls-files", "-co", "--exclude-standard"]
    listed = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True, timeout=PATIENCE_S)
    files = [f"/{name}" for name in listed.stdout.splitlines()]
    return sorted({*files, *(f"{name.rpartition('/')[0]}/" for name in files)})


@pytest.mark.parametrize("page", DESIGN, **IDS)
def test_a_page_for_developers_names_files_that_are_there(page):
    named = re.findall(r"`(?:python )?(\w[\w./-]*(?:/|\.(?:py|pyi|c|h|toml)))(?: [^`]*)?`", page.read_text())
    named += [f"{name.replace('.', '/')}" for name in re.findall(r"`(rankwise_\w+(?:\.\w+)+)`", page.read_text())]
    missing = [name for name in named if not any(is_named(path, name) for path in tracked())]
    assert not missing


def is_named(path, name):
    """Tell whether this is the file, the folder, or the module that the page calls so."""
    return path.endswith((f"/{name}", f"/{name}.py", f"/{name}/"))


def test_the_design_is_a_page_of_ten_minutes():
    assert len((DOCS / "design.md").read_bytes()) <= 15_000


def test_where_to_change_what_names_files_that_are_there():
    table = text("where-to-change.md").partition("| you want")[2]
    named = [name for name in re.findall(r"`(\w[\w/]*(?:/|\.py))`", table) if "NAME" not in name]
    assert len(named) > 30
    for name in named:
        roots = (ROOT, ROOT / "core/rankwise", ROOT / "plugins/gloo_tcp/src/rankwise_gloo_tcp/transport")
        assert any((root / name).exists() for root in roots), name


def test_nothing_is_fetched_from_elsewhere_while_reading():
    for page in PAGES:
        assert not re.search(r"!\[[^]]*\]\(\w+://|<(?:img|script|link|iframe)\b[^>]*://", page.read_text()), page


@pytest.mark.parametrize("picture", sorted(DOCS.glob("images/**/*.svg")), ids=lambda path: path.name)
def test_pictures_are_well_formed(picture):
    from xml.etree import ElementTree

    tree = ElementTree.parse(picture).getroot()
    assert tree.tag == "{http://www.w3.org/2000/svg}svg"


def test_the_navigation_has_every_page_once():
    listed = re.findall(r"^ +- (?:[\w ]+: )?([\w/.-]+\.md)$", (ROOT / "mkdocs.yml").read_text(), re.MULTILINE)
    assert sorted(listed) == sorted(str(page.relative_to(DOCS)) for page in DOCS.glob("**/*.md"))


def test_every_error_has_its_section_and_its_place_in_the_tree():
    page = text("errors.md")
    tree = page.partition("```text\n")[2].partition("```")[0]
    drawn = re.findall(r"^ *[│└├─ ]*(\w*(?:Error|Exception))\b", tree, re.MULTILINE)
    assert sorted(drawn) == sorted([*errors.__all__, "RuntimeError"])
    sections = re.findall(r"^## (\w+(?:Error|Exception))$", page, re.MULTILINE)
    assert sorted(sections) == sorted(errors.__all__)


def test_the_launchers_exit_codes_are_listed():
    rows = dict(re.findall(r"^\| (\d+) \| (.+) \|$", text("errors.md"), re.MULTILINE))
    assert rows == {str(int(code)): sentence for code, sentence in DESCRIPTIONS.items()}


def test_every_example_is_shown():
    shown = re.findall(r'"(examples/[^"]+)"', text("examples.md"))
    assert sorted(shown) == sorted(str(path.relative_to(ROOT)) for path in ROOT.glob("examples/*.py"))


def test_every_command_is_listed():
    rows = dict(re.findall(r"^\| `rankwise ([\w-]+)` \| (.+) \|$", text("command-line.md"), re.MULTILINE))
    assert list(rows) == list(COMMANDS)
    assert all(f"## rankwise {name}\n" in text("command-line.md") for name in COMMANDS)


def readers() -> dict[str, set[str]]:
    """Return for each variable of ours the distributions in whose sources its name stands by itself."""
    found: dict[str, set[str]] = {}
    for folder in (ROOT, *(path.parent for path in ROOT.glob("plugins/*/pyproject.toml"))):
        name = re.findall(r'^name = "(.+)"', (folder / "pyproject.toml").read_text(), re.MULTILINE)[0]
        sources = folder.glob("core/**/*.py") if folder == ROOT else [*folder.glob("src/**/*.py"), *folder.glob("*.py")]
        for path in sources:
            for variable in re.findall(r'"(RANKWISE_[A-Z_]+)"', path.read_text()):
                found.setdefault(variable, set()).add(name)
    return found


def whole(page: str) -> str:
    """Return a page with the files that it brings in."""
    brought = re.findall(r'--8<-- "([^":]+)', text(page))
    return text(page) + "".join((ROOT / name).read_text() for name in brought)


def test_every_setting_is_listed_with_its_readers_and_a_page_that_explains_it():
    rows = re.findall(r"^\| (`.+?) \| (.+?) \| (.+) \| (.+?) \|$", text("settings.md"), re.MULTILINE)
    told = {
        variable: (set(by.split(", ")), meaning)
        for variables, _, meaning, by in rows
        for variable in re.findall(r"`(RANKWISE_[A-Z_]+)`", variables)
    }
    assert told.keys() == readers().keys()
    for variable, (by, meaning) in told.items():
        assert by == readers()[variable] - {"rankwise-testing"}, variable
        page = re.findall(r"\]\(([\w/-]+\.md)", meaning)[-1]
        assert variable in whole(page), f"{page} does not explain {variable}"


def test_no_page_tells_of_a_setting_that_is_not_listed():
    listed = set(re.findall(r"RANKWISE_[A-Z_]+", text("settings.md")))
    pages = [path for name in ("docs/**/*.md", "*.md", "plugins/*/README.md") for path in ROOT.glob(name)]
    told = {name for path in pages for name in re.findall(r"RANKWISE_[A-Z_]+", path.read_text())}
    assert {name for name in told - listed if not name.startswith("RANKWISE_BACKEND_")} == set()
