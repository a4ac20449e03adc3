"""Copies of the source tree with changes, and the processes that run in them."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any, NamedTuple

import pytest

__all__ = ["END", "ROOT", "Copy", "Edit", "copy_of_the_tree"]

ROOT = Path(__file__).parents[2]
#: Where a text goes that is the last of its file.
END = "the end of the file"


class Edit(NamedTuple):
    """A change of one file.

    Attributes:
        path: The file.
        text: What is added.
        after: Behind which text of the file it goes, or `END`; nothing where the file is new.
    """

    path: str
    text: str
    after: str = ""


class Copy:
    """A copy of the tree, whose distributions are those that its processes import."""

    def __init__(self, root: Path) -> None:
        self.root = root

    @property
    def environment(self) -> dict[str, str]:
        """What its processes are told."""
        sources = [path for path in sorted(self.root.glob("plugins/*/src")) if path.parent.name != "native"]
        path = [self.root / "installed", self.root / "core", *sources]
        told = {name: value for name, value in os.environ.items() if not name.startswith("RANKWISE_")}
        return {**told, "PYTHONPATH": os.pathsep.join(map(str, path))}

    def change(self, edits: Iterable[Edit]) -> None:
        """Make some changes."""
        for edit in edits:
            path = self.root / edit.path
            if not edit.after:
                assert not path.exists(), f"{edit.path} is there already"
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_text(edit.text)
                continue
            before = path.read_text()
            assert edit.after == END or edit.after in before, f"{edit.path} has no {edit.after!r}"
            at = len(before) if edit.after == END else before.index(edit.after) + len(edit.after)
            path.write_text(before[:at] + edit.text + before[at:])

    def install(self) -> None:
        """Write what pip would leave of each distribution, from its project file: its name and its entry points."""
        for file in [self.root / "pyproject.toml", *self.root.glob("plugins/*/pyproject.toml")]:
            project = parsed(file)["project"]
            if project["name"] == "rankwise-native":
                continue  # the compiled parts are those that are installed
            info = self.root / "installed" / f"{project['name'].replace('-', '_')}-0.1.0.dist-info"
            info.mkdir(parents=True)
            requires = "".join(f"Requires-Dist: {line}\n" for line in project["dependencies"])
            (info / "METADATA").write_text(
                f"Metadata-Version: 2.1\nName: {project['name']}\nVersion: 0.1.0\n{requires}"
            )
            groups = project.get("entry-points", {}).items()
            lines = [line for group, points in groups for line in (f"[{group}]", *map(" = ".join, points.items()))]
            (info / "entry_points.txt").write_text("\n".join(lines) + "\n")

    def run(self, *arguments: str, timeout_s: float, folder: Path | None = None) -> subprocess.CompletedProcess[str]:
        """Run Python with the copy's sources."""
        return subprocess.run(
            [sys.executable, *arguments],
            cwd=folder or self.root,
            env=self.environment,
            capture_output=True,
            text=True,
            timeout=timeout_s,
            check=False,
        )

    def unlisted(self) -> list[str]:
        """Return the sources that a list of the tools lacks, and the modules that are in no layer of their package."""
        tools = parsed(self.root / "pyproject.toml")["tool"]
        folders = {str(path.relative_to(self.root)) for path in self.root.glob("plugins/*/src")}
        packages = {path.parent.name for path in self.root.glob("plugins/*/src/*/__init__.py")}
        missing = sorted(packages - {*tools["importlinter"]["root_packages"]})
        missing += [f for path in (tools["ruff"]["src"], tools["mypy"]["mypy_path"]) for f in folders - {*path}]
        for contract in tools["importlinter"]["contracts"]:
            if contract.get("exhaustive"):
                listed = {name.strip() for layer in contract["layers"] for name in re.split(r"[|:]", layer)}
                for package in contract["containers"]:
                    missing += [f"{package}.{name}" for name in self._modules(package) - listed]
        return missing

    def _modules(self, package: str) -> set[str]:
        roots = [self.root / "core", *self.root.glob("plugins/*/src")]
        (folder,) = [found for root in roots if (found := root / package.replace(".", "/")).is_dir()]
        inside = [path for path in folder.iterdir() if path.suffix == ".py" or (path / "__init__.py").exists()]
        return {path.stem for path in inside} - {"__init__"}


def parsed(file: Path) -> dict[str, Any]:
    """Return what a project file says."""
    try:
        import tomllib
    except ImportError:  # before Python 3.11
        from pip._vendor import tomli as tomllib
    return tomllib.loads(file.read_text())


def copy_of_the_tree(folder: Path) -> Copy:
    """Copy all that belongs to the repository."""
    if shutil.which("git") is None:
        pytest.skip("there is no git on this machine, which knows what belongs to the repository")
    listed = subprocess.run(
        ["git", "ls-files", "-co", "--exclude-standard", "-z"], cwd=ROOT, capture_output=True, text=True, check=True
    )
    for name in filter(None, listed.stdout.split("\0")):
        if (ROOT / name).is_file():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(ROOT / name, folder / name)
    return Copy(folder)
