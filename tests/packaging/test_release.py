"""`scripts/release` refuses what is no release, before it builds anything."""

import re
import shutil
import subprocess
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
    names += ["scripts/release", "scripts/environment.sh", "plugins/native/setup.py", "requirements/docs.txt"]
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
