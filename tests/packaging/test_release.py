"""`scripts/release` refuses what is no release, before it builds anything; a dry run shows every step all the same."""

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

PATIENCE_S = 60.0

ROOT = Path(__file__).parents[2]
VERSION = re.search(r'^version = "(.+)"$', (ROOT / "pyproject.toml").read_text(), re.MULTILINE)[1]
GIT = ("git", "-c", "user.name=t", "-c", "user.email=t@example.org")


@pytest.fixture(scope="module")
def tree(tmp_path_factory):
    """A repository of what the script looks at."""
    if shutil.which("git") is None:
        pytest.skip("there is no git on this machine")
    folder = tmp_path_factory.mktemp("release") / "tree"
    names = ["pyproject.toml", "README.md", "CITATION.cff", "CHANGELOG.md", "core/rankwise/basics/version.py"]
    names += ["scripts/release", "scripts/environment.sh", "scripts/archives.py", "scripts/sbom.py", "LICENSE"]
    names += ["plugins/native/setup.py", "plugins/native/csrc/module.c", "requirements/docs.txt", ".gitignore"]
    names += [str(path.relative_to(ROOT)) for path in ROOT.glob("plugins/*/pyproject.toml")]
    for name in names:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / name, folder / name)
    subprocess.run([*GIT, "init", "-q"], cwd=folder, check=True, timeout=PATIENCE_S)
    commit(folder)
    return folder


def commit(folder):
    subprocess.run([*GIT, "add", "-A"], cwd=folder, check=True, timeout=PATIENCE_S)
    subprocess.run([*GIT, "commit", "-q", "-m", "x"], cwd=folder, check=True, timeout=PATIENCE_S)


def refused(folder, *arguments):
    done = subprocess.run(
        ["scripts/release", *arguments], cwd=folder, capture_output=True, text=True, timeout=PATIENCE_S
    )
    assert done.returncode == 1
    assert not (folder / "dist").exists()
    return done.stderr


def test_the_version_is_asked_for_and_must_be_everywhere(tree):
    assert "give the version" in refused(tree)
    assert "give the version" in refused(tree, "1.x")
    assert "pyproject.toml does not say version 9.9.9" in refused(tree, "9.9.9")


def test_an_unclean_tree_is_refused(tree):
    (tree / "new.txt").write_text("not committed\n")
    assert "the tree is not clean: ?? new.txt" in refused(tree, VERSION)
    (tree / "new.txt").unlink()


def test_a_version_without_a_day_and_one_that_differs_somewhere_are_refused(tree):
    assert f"CHANGELOG.md has no day for {VERSION}" in refused(tree, VERSION)
    (tree / "CITATION.cff").write_text("version: 0.0.0\n")
    commit(tree)
    assert f"CITATION.cff does not say version {VERSION}" in refused(tree, VERSION)


def test_the_citation_and_the_front_page_have_the_version():
    assert f"\nversion: {VERSION}\n" in (ROOT / "CITATION.cff").read_text()
    assert f"\nVersion {VERSION}, " in (ROOT / "README.md").read_text()


#: Stands in for the Python of .venv-release: its `build` writes a wheel of what a project says of itself. Where PLACE
#: is set the wheel tells the folder in which it was built; where NAKED is set, it holds no licence.
FAKE = """#!{python}
import os, pathlib, re, shutil, sys, zipfile
arguments = sys.argv[1:]
if arguments[:2] == ["-m", "venv"]:
    (pathlib.Path(arguments[2]) / "bin").mkdir(parents=True)
    shutil.copy(__file__, pathlib.Path(arguments[2]) / "bin" / "python")
elif arguments[:2] == ["-m", "build"]:
    folder, project = map(pathlib.Path, arguments[-2:])
    text = (project / "pyproject.toml").read_text()
    name, version = (re.search(rf'^{{key}} = "(.+)"$', text, re.M)[1] for key in ("name", "version"))
    told = f"Name: {{name}}\\nVersion: {{version}}\\nSummary: x\\nLicense: BSD-3-Clause\\n"
    folder.mkdir(exist_ok=True)
    stem = name.replace("-", "_")
    with zipfile.ZipFile(folder / f"{{stem}}-{{version}}-py3-none-any.whl", "w") as wheel:
        def hold(name, data):
            wheel.writestr(zipfile.ZipInfo(name), data)
        hold(f"{{stem}}-{{version}}.dist-info/METADATA", told)
        hold(f"{{stem}}/built.txt", str(project) if "PLACE" in os.environ else os.environ["SOURCE_DATE_EPOCH"])
        if "NAKED" not in os.environ:
            hold(f"{{stem}}-{{version}}.dist-info/licenses/LICENSE", pathlib.Path("LICENSE").read_bytes())
elif arguments[:2] != ["-m", "pip"]:
    os.execv({python!r}, [{python!r}, *arguments])
"""


def dry_run(tree, where, **variables):
    """Run a dry run in a copy of the tree; return the copy, and what the script has said."""
    folder, fake = shutil.copytree(tree, where / "tree"), where / "python"
    fake.write_text(FAKE.format(python=sys.executable))
    fake.chmod(0o755)
    environment = {**os.environ, "PYTHON": str(fake), **variables}
    command = ["scripts/release", "--dry-run"]
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, timeout=PATIENCE_S)
    return folder / "dist", done


def test_a_dry_run_shows_every_step_and_what_is_left_to_do(tree, tmp_path):
    dist, done = dry_run(tree, tmp_path)
    assert done.returncode == 0, done.stderr
    built, again, checked, bill, sums, left, *refused = done.stdout.splitlines()
    projects = 1 + len(list(ROOT.glob("plugins/*/pyproject.toml")))
    assert built == f"built {projects} wheels and 0 archives of sources"
    assert again == "built them again in another folder: the same bytes"
    assert checked == "each holds its licence, what belongs to it, and nothing else"
    assert (bill, sums) == ("wrote dist/rankwise.cdx.json (CycloneDX 1.6)", "wrote dist/SHA256SUMS")
    assert left.startswith("left to .github/workflows/release.yml: ")
    assert f"a release would be refused: CHANGELOG.md has no day for {VERSION}" in refused
    listed = json.loads((dist / "rankwise.cdx.json").read_text())["dependencies"][0]["dependsOn"]
    assert len(listed) == projects
    summed = {line.split()[1] for line in (dist / "SHA256SUMS").read_text().splitlines()}
    assert summed == {path.name for path in dist.iterdir()} - {"SHA256SUMS"}


@pytest.mark.parametrize(
    ("variable", "says"),
    [("PLACE", "differs from one build to the next"), ("NAKED", "does not hold the licence")],
)
def test_a_dry_run_fails_as_a_release_would(tree, tmp_path, variable, says):
    dist, done = dry_run(tree, tmp_path, **{variable: "1"})
    assert done.returncode == 1
    assert says in done.stderr
    assert not (dist / "SHA256SUMS").exists()
