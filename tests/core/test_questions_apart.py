"""A question about all backends imports none of others into the program, whose answers are kept for the next one."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from tests.by_reference import command, returned
from tests.processes import environment

import rankwise as dist

PATIENCE_S = 60.0
SOURCE = """
import sys
from rankwise.backends import *
from rankwise.backends import hookimpl
with open(ASKED, "a") as file: print("NAME", file=file)
OPS = {**native("send", "recv"), **derived(*COLLECTIVES)}
@hookimpl
def rankwise_backend():
    FAULT
    return BackendSpec("NAME", 1, Capabilities("NAME", {"xpu": Device(OPS, native("tags"))}, range(1, 5)), create=print)
"""
FAULTS = {
    "good": "pass",
    "better": "print('{}')",
    "ends": "import os; os._exit(7)",
    "hangs": "import time; time.sleep(600)",
    "breaks": "1 / 0",
    "last": "pass",
}


class Site:
    """A folder with installed plugins, and a cache directory."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.cache, self._asked = folder, folder / "cache", folder / "asked"
        self.cache.mkdir(mode=0o700)

    def install(self, name: str, fault: str = "pass", version: str = "1.0") -> None:
        for old in self.folder.glob(f"{name}-*.dist-info"):
            old.rename(self.folder / f"{old.name}.old")
        info = self.folder / f"{name}-{version}.dist-info"
        info.mkdir()
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
        (info / "entry_points.txt").write_text(f"[rankwise.backends]\n{name} = plugin_{name}\n")
        source = SOURCE.replace("NAME", name).replace("FAULT", fault).replace("ASKED", repr(str(self._asked)))
        (self.folder / f"plugin_{name}.py").write_text(source)

    def ask(self) -> dict[str, list[int]]:
        """Have a program ask, and return the strangers that it knows, with their sizes of groups."""
        done = subprocess.run(
            command(about_all),
            env={**environment(self.folder), "XDG_CACHE_HOME": str(self.cache)},
            capture_output=True,
            text=True,
            timeout=PATIENCE_S,
            check=False,
        )
        assert (done.returncode, done.stderr) == (0, "")
        found, imported = returned(done.stdout)
        assert imported == []
        return found

    def asked(self) -> list[str]:
        """Return which plugins were run since this was asked last."""
        said = self._asked.read_text().split() if self._asked.exists() else []
        self._asked.unlink(missing_ok=True)
        return sorted(said)

    def kept(self) -> Path:
        [path] = (self.cache / "rankwise").iterdir()
        return path


def about_all() -> tuple[dict[str, list[int]], list[str]]:
    """Ask every question that names no backend."""
    assert not dist.supports("all_reduce", "xpu", "str")
    table = dist.capabilities()
    strangers = {each.backend: [each.sizes[0], each.sizes[-1]] for each in table if "xpu" in each.devices}
    for name in strangers:
        assert table[name].supports("all_gather_object", "xpu", size=4)
        assert not table[name].supports("all_reduce", "xpu", size=5)
    assert dist.supports("all_reduce", "xpu", "float32", "SUM") is bool(strangers)
    assert strangers.keys() <= dist.Backend.backend_capability.keys()
    return strangers, [name for name in sys.modules if name.startswith("plugin_")]


@pytest.fixture
def site(tmp_path: Path) -> Site:
    return Site(tmp_path)


def test_a_question_about_all_runs_no_strangers_plugin_in_the_program_whatever_they_do(site):
    for name, fault in FAULTS.items():
        site.install(name, fault)
    good = {"good": [1, 4], "better": [1, 4], "last": [1, 4]}
    assert site.ask() == good
    assert set(site.asked()) == set(FAULTS)
    assert site.ask() == good
    assert site.asked() == []  # the next program asks nobody, not even those that have failed


def test_another_version_is_asked_and_no_other(site):
    site.install("good")
    site.install("better")
    site.ask()
    assert site.asked() == ["better", "good"]
    site.install("good", version="1.1")
    assert site.ask() == {"good": [1, 4], "better": [1, 4]}
    assert site.asked() == ["good"]


def spoil_by_others(path: Path) -> None:
    path.chmod(0o666)


def spoil_by_a_link(path: Path) -> None:
    path.rename(path.with_name("elsewhere"))
    path.symlink_to(path.with_name("elsewhere"))


def spoil_the_folder(path: Path) -> None:
    path.parent.chmod(0o777)


def spoil_the_end(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-100])


def spoil_the_words(path: Path) -> None:
    path.write_text(json.dumps({"cells": [{"support": "nonsense"}], "answers": {"good": [1, 2, 3]}}))


def spoil_the_numbers(path: Path) -> None:
    found = json.loads(path.read_text())
    path.write_text(json.dumps({**found, "cells": []}))


@pytest.mark.parametrize(
    "spoil",
    [spoil_by_others, spoil_by_a_link, spoil_the_folder, spoil_the_end, spoil_the_words, spoil_the_numbers],
)
def test_what_somebody_else_may_have_written_or_is_no_answer_is_not_read(site, spoil):
    site.install("good")
    site.ask()
    site.asked()
    spoil(site.kept())
    assert site.ask() == {"good": [1, 4]}
    assert site.asked() == ["good"]


def test_without_a_place_to_keep_answers_the_question_is_answered_all_the_same(site):
    site.install("good")
    site.cache = site.folder / "plugin_good.py"  # which is no folder
    assert site.ask() == {"good": [1, 4]}
