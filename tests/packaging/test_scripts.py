"""What the scripts that make environments print: a line a step, and of pip only what has failed."""

import re
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PATIENCE_S = 60.0

#: Stands in for a Python: makes an environment whose pip says much, and ends as it is told.
FAKE = """#!/bin/sh
if [ "$2" = venv ]; then
    mkdir -p "$3/bin"
    cp "$0" "$3/bin/python"
else
    for number in $(seq 100); do echo "line $number of pip"; echo "warning $number" >&2; done
    exit "$PIP_ENDS"
fi
"""


def environment(folder: Path, pip_ends: int) -> subprocess.CompletedProcess[str]:
    fake = folder / "python"
    fake.write_text(FAKE)
    fake.chmod(0o755)
    program = (
        f'set -euo pipefail; . scripts/environment.sh; environment "{folder}/env" -e . -e ./plugins/watch; echo made'
    )
    variables = {"PATH": "/usr/bin:/bin", "PYTHON": str(fake), "PIP_ENDS": str(pip_ends)}
    command = ["bash", "-c", program]
    return subprocess.run(command, cwd=ROOT, env=variables, capture_output=True, text=True, timeout=PATIENCE_S)


def test_an_environment_is_made_in_two_lines_once(tmp_path: Path) -> None:
    run = environment(tmp_path, 0)
    assert (run.returncode, run.stdout) == (0, "made\n"), run.stderr
    first, second = run.stderr.splitlines()
    assert first == f"installing into {tmp_path}/env: rankwise, rankwise-watch (a minute or two, once)"
    assert second.startswith("installed in ")
    again = environment(tmp_path, 1)
    assert (again.returncode, again.stdout, again.stderr) == (0, "made\n", "")


@pytest.mark.parametrize("status", [1, 2])
def test_what_pip_says_is_kept_in_a_file_that_is_named_if_it_fails(tmp_path: Path, status: int) -> None:
    run = environment(tmp_path, status)
    assert (run.returncode, run.stdout) == (1, "")
    assert "line 100 of pip" in run.stderr
    assert "line 80 of pip" not in run.stderr
    log = tmp_path / "env" / "pip.log"
    assert run.stderr.splitlines()[-1] == f"pip could not install this; all that it said is in {log}"
    assert len(log.read_text().splitlines()) == 200
    assert environment(tmp_path, 0).returncode == 0, "it is tried again"


SCRIPTS = [*(path for path in ROOT.glob("scripts/*") if path.is_file()), *ROOT.glob(".github/workflows/*.yml")]
TEXTS = {path.name: path.read_text() for path in SCRIPTS}
#: An extra of the core that a script installs, or a folder of a distribution.
NAMED = re.compile(r"(?<![\w.])\.(?:/plugins/(?P<folder>\w+)|\[(?P<extras>[\w,]+)\])")


def requirements(project: Path, extras: str = "") -> set[str]:
    """Return the folders of those of our distributions that one requires, by itself or for an extra."""
    text = (project / "pyproject.toml").read_text()
    lists = ["dependencies", *filter(None, extras.split(","))]
    found = [re.search(rf"^{name} = \[(.*?)\]$", text, re.MULTILINE | re.DOTALL) for name in lists]
    names = [name for told in found if told for name in re.findall(r'"rankwise-([\w-]+)', told[1])]
    return {name.replace("-", "_") for name in names}


def lacking(line: str) -> set[str]:
    """Return what a command that installs distributions from their folders would look for in the package index."""
    named = [found.groupdict() for found in NAMED.finditer(line)]
    folders = {each["folder"] for each in named if each["folder"]}
    wanted = {name for folder in folders for name in requirements(ROOT / "plugins" / folder)}
    wanted |= {name for each in named if each["extras"] for name in requirements(ROOT, each["extras"])}
    return wanted - folders


INSTALLS = [line for text in TEXTS.values() for line in text.splitlines() if line.count("./plugins/") > 1]


@pytest.mark.parametrize("line", INSTALLS)
def test_what_is_installed_from_folders_is_complete(line: str) -> None:
    assert lacking(line) == set()


def test_what_an_installation_lacks_is_found() -> None:
    assert len(INSTALLS) >= 6
    assert lacking("pip install . ./plugins/local ./plugins/watch") == {"network"}
    assert lacking('".[cli]" ./plugins/network ./plugins/stores') == {"tools"}


@pytest.mark.parametrize("name", TEXTS)
def test_the_files_that_a_script_names_are_there(name: str) -> None:
    folders = "tests|scripts|benchmarks|examples|docs|requirements"
    named = re.findall(rf"(?<![$/\w])(?:{folders})/[\w/-]+\.(?:py|sh|txt|md)\b", TEXTS[name])
    assert [path for path in named if not (ROOT / path).exists()] == []
