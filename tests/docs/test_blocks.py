"""Every code block of the documentation runs here, or says on its page why it cannot.

A comment before a block says how it runs:

    <!-- ranks: 2 -->         a program for `rankwise run -n 2`, over gloo
    <!-- mpiexec: 2 -->       a program for `mpiexec -n 2`
    <!-- file: hello.py -->   a file that the commands of the page use
    <!-- exit: 1 -->          commands that end with this exit code
    <!-- cell: how -->        a cell of a notebook, which scripts/notebook runs in a Jupyter server
    <!-- not run: reason -->  it is not run, and why

Without one a Python program runs alone, as a world of one, and commands run where the page's files are. A `text` block
after it is what is printed: `...` stands for anything, and the order of lines counts for a single process only.
"""

import os
import re
import shutil
import signal
import subprocess
import sys
import sysconfig
from functools import cache
from pathlib import Path
from typing import NamedTuple

import pytest

ROOT = Path(__file__).parents[2]
PAGES = sorted({*ROOT.glob("*.md"), *ROOT.glob("plugins/*/README.md"), *ROOT.glob("docs/**/*.md")})
SCRIPTS = Path(sysconfig.get_path("scripts"))
BLOCK = re.compile(
    r"(?:^[ ]*<!-- (?P<how>ranks|mpiexec|file|exit|cell|not run): (?P<what>.+?) -->\n)?"
    r"^(?P<indent>[ ]*)```(?P<language>\w*)(?P<options>[^\n]*)\n(?P<body>.*?)^(?P=indent)```$",
    re.MULTILINE | re.DOTALL,
)
PROJECTS = [ROOT / "tests/third_party/pyproject.toml", ROOT / "examples/wire/pyproject.toml"]
TIMEOUT_S = 60


class Block(NamedTuple):
    """One block, where it stands and how it is meant to be run."""

    page: Path
    line: int
    language: str
    #: What stands beside the language, such as a title.
    options: str
    how: str
    what: str
    body: str
    #: What the page says is printed, if it does.
    shown: str | None

    @property
    def place(self) -> str:
        return f"{self.page.relative_to(ROOT)}:{self.line}"


def blocks_of(page):
    return blocks_in(page.read_text(), page)


def blocks_in(text, page):
    matches = list(BLOCK.finditer(text))
    found = []
    for index, match in enumerate(matches):
        following = matches[index + 1] if index + 1 < len(matches) else None
        printed = following is not None and following["language"] == "text" and "--8<--" not in following["body"]
        shown = dedent(following) if printed and not text[match.end() : following.start()].strip() else None
        line = text[: match.start("body")].count("\n") + 1
        how, what = match["how"] or "", match["what"] or ""
        found.append(Block(page, line, match["language"], match["options"], how, what, dedent(match), shown))
    return found


def dedent(match):
    return re.sub(f"^{match['indent']}", "", match["body"], flags=re.MULTILINE)


BLOCKS = [block for page in PAGES for block in blocks_of(page)]
PROGRAMS = [
    b for b in BLOCKS if b.language == "python" and b.how in ("", "ranks", "mpiexec") and "--8<--" not in b.body
]
TYPED = [page for page in PAGES if any(b.language == "bash" and b.how in ("", "exit") for b in blocks_of(page))]


def environment(tmp_path, **more):
    """Return the environment of someone who has activated the virtual environment and knows nothing else."""
    # Unbuffered, the lines of processes that share a pipe would run into each other.
    others = ("RANKWISE_", "COLUMNS", "PYTHONUNBUFFERED")
    kept = {name: value for name, value in os.environ.items() if not name.startswith(others)}
    openmpi = {
        "OMPI_ALLOW_RUN_AS_ROOT": "1",
        "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
        "PRTE_MCA_rmaps_default_mapping_policy": ":oversubscribe",
    }
    return {
        **kept,
        **openmpi,
        "PATH": f"{SCRIPTS}:{os.environ['PATH']}",
        "HOME": str(tmp_path),
        "COLUMNS": "120",
        **more,
    }


def run(command, tmp_path, **more):
    """Run a command to its end, and all that it has started: what stands still is killed, and its words are shown."""
    around = {"cwd": tmp_path, "env": environment(tmp_path, **more), "start_new_session": True}
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, **around)
    try:
        output, errors = process.communicate(timeout=TIMEOUT_S)
        return subprocess.CompletedProcess(command, process.returncode, output, errors)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        output, errors = process.communicate()
        files = {path.name: path.read_text() for path in sorted(Path(tmp_path).glob("*.txt"))}
        errors += f"\nstood still for {TIMEOUT_S} s; it has written {files}"
        return subprocess.CompletedProcess(command, -signal.SIGKILL, output, errors)


def matches(shown, printed, ordered=True):
    """Tell whether output is as shown; `...` stands for anything, within a line or as a line for any number of them."""
    if ordered:
        pattern = re.escape(shown.strip()).replace(r"\.\.\.", ".*")
        return re.fullmatch(pattern, printed.strip(), re.DOTALL) is not None
    wanted, there = sorted(shown.strip().splitlines()), sorted(printed.strip().splitlines())
    if "..." in wanted:
        return all(any(matches(line, other) for other in there) for line in wanted)
    return len(wanted) == len(there) and all(map(matches, wanted, there))


def in_order(shown):
    """Tell whether the order of lines counts: not where several ranks have written them."""
    return not re.search(r"^\[\d+\]: ", shown, re.MULTILINE)


@pytest.mark.parametrize("block", PROGRAMS, ids=lambda block: block.place)
def test_programs_run_and_print_what_is_shown(block, tmp_path):
    program = tmp_path / "program.py"
    program.write_text(block.body)
    command = [sys.executable, str(program)]
    if block.how == "ranks":
        done = run([str(SCRIPTS / "rankwise"), "run", "-n", block.what, str(program)], tmp_path)
    elif block.how == "mpiexec":
        mpiexec = shutil.which("mpiexec", path=environment(tmp_path)["PATH"])
        if mpiexec is None:
            pytest.skip("there is no mpiexec on this machine")
        done = run([mpiexec, "-n", block.what, *command], tmp_path)
    else:
        done = run(command, tmp_path)
    assert done.returncode == 0, f"{block.place} failed:\n{done.stdout}{done.stderr}"
    if block.shown is not None:
        assert matches(block.shown, done.stdout, in_order(block.shown) and not block.how), (
            f"{block.place} printed:\n{done.stdout}"
        )


@pytest.mark.parametrize("page", TYPED, ids=lambda page: str(page.relative_to(ROOT)))
def test_a_page_typed_in_line_by_line(page, tmp_path):
    for block in blocks_of(page):
        if block.how == "file":
            (tmp_path / block.what).write_text(block.body)
        elif block.language == "bash" and block.how in ("", "exit"):
            done = run(["bash", "-euc", block.body], tmp_path)
            said = done.stdout + done.stderr
            hint = "if it cannot run here, say so: <!-- not run: reason -->"
            assert done.returncode == int(block.what or 0), (
                f"{block.place} ended with {done.returncode}; {hint}\n{said}"
            )
            if block.shown is not None:
                assert matches(block.shown, said, in_order(block.shown)), f"{block.place} printed:\n{said}"


@pytest.mark.parametrize("block", BLOCKS, ids=lambda block: block.place)
def test_blocks_are_of_a_kind_that_is_tested(block):
    if block.how == "not run":
        assert len(block.what.split()) >= 3, f"{block.place}: give the reason why it is not run"
    elif block.how == "cell":
        assert block.page.name == "notebooks.md", f"{block.place}: scripts/notebook does not read this page"
    elif block.how == "file":
        assert f'title="{block.what}"' in block.options, f"{block.place}: show the reader the file's name"
    elif block.language == "toml":
        lines = set(block.body.splitlines())
        tested = any(lines <= set(project.read_text().splitlines()) for project in PROJECTS)
        assert tested, f"{block.place}: nothing tests it"
    else:
        assert block.language in ("python", "bash", "text"), f"{block.place}: nothing tests {block.language!r}"


#: So many letters of a program there is room for beside the pages' names, on a screen of 1280 pixels.
ROOM = 80


@pytest.mark.parametrize("block", [b for b in BLOCKS if b.language == "bash"], ids=lambda block: block.place)
def test_commands_can_be_pasted_and_their_comments_read(block):
    installing = re.findall(r"^(?:pip|uv|uv pip) (?:install|add) .*", block.body, re.MULTILINE)
    assert len(installing) <= 1, f"{block.place}: who pastes it installs {' and '.join(installing)}"
    for line in block.body.splitlines():
        assert len(line) <= ROOM or " # " not in line, f"{block.place}: out of sight: {line[ROOM:]}"


def test_the_comparison_can_fail():
    assert matches("a ... c\n", "a b c\n")
    assert matches("b\na\n", "a\nb\n", ordered=False)
    assert matches("...\nb ...\n", "b 1\na\n", ordered=False)
    assert not matches("...\nb\n", "a\nc\n", ordered=False)
    assert not matches("a\nb\n", "a\nb\nc\n", ordered=False)
    assert not matches("b\na\n", "a\nb\n")
    assert not matches("a\n", "a\nb\n")


def test_blocks_are_found_with_what_is_said_about_them():
    page = ROOT / "docs" / "none.md"
    lines = [
        "<!-- ranks: 2 -->",
        "```python",
        "print(1)",
        "```",
        "",
        "```text",
        "1",
        "```",
        "  ```yaml",
        "  a: 1",
        "  ```",
    ]
    found = [*blocks_in("\n".join(lines) + "\n", page)]
    assert [(b.line, b.language, b.how, b.what, b.body, b.shown) for b in found] == [
        (3, "python", "ranks", "2", "print(1)\n", "1\n"),
        (7, "text", "", "", "1\n", None),
        (10, "yaml", "", "", "a: 1\n", None),
    ]


# ---------------------------------------------------------------------- commands that are not run


NOT_RUN = [b for b in BLOCKS if b.language == "bash" and b.how == "not run"]


@pytest.mark.parametrize("block", NOT_RUN, ids=lambda block: block.place)
def test_commands_that_are_not_run_exist_at_least(block):
    for line in block.body.replace("\\\n", " ").splitlines():
        words = line.partition("#")[0].split()
        while words and re.fullmatch(r"[A-Z_]+=\S*", words[0]):
            words.pop(0)
        if words and words[0].startswith(("scripts/", "benchmarks/", ".ci/")):
            assert (ROOT / words[0]).exists(), f"{block.place}: {words[0]} is not there"
        if "pip" not in words and "rankwise" in words and words.index("rankwise") + 1 < len(words):
            check_options(block, words[words.index("rankwise") + 1 :])


@cache
def help_of(command):
    return run([str(SCRIPTS / "rankwise"), command, "--help"], ROOT)


def check_options(block, words):
    """See that a command line of rankwise names a command, and options that its help knows."""
    command, *others = words
    shown = help_of(command)
    assert shown.returncode == 0, f"{block.place}: there is no rankwise {command}"
    for word in others:
        if word.endswith(".py"):
            break  # the program's own options
        if word.startswith("-"):
            option = word.partition("=")[0]
            assert re.search(rf"(?<![\w-]){re.escape(option)}(?![\w-])", shown.stdout), f"{block.place}: {option}"
