"""What is published of each distribution: its licence, what belongs to it and nothing else, each time the same."""

import io
import os
import runpy
import shutil
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest
from tests.packaging.conftest import ROOT, native_source, run

ARCHIVES = runpy.run_path(str(ROOT / "scripts/archives.py"))
#: All that are built by hatchling, in this process; the compiled parts take their time.
PROJECTS = [
    ROOT,
    *sorted(path.parent for path in ROOT.glob("plugins/*/pyproject.toml") if path.parent.name != "native"),
]


def build(project, folder, monkeypatch):
    """Build the archive of a project's sources and its wheel, as all front ends do."""
    from hatchling.build import build_sdist, build_wheel

    folder.mkdir()
    monkeypatch.chdir(project)
    build_sdist(str(folder))
    build_wheel(str(folder))


def wrong_in(folder):
    return [what for path in ARCHIVES["files_of"](folder) for what in ARCHIVES["wrong_in"](path)]


@pytest.mark.parametrize("project", PROJECTS, ids=lambda project: project.name)
def test_it_holds_its_licence_and_what_belongs_to_it_and_is_the_same_each_time(project, tmp_path, monkeypatch):
    monkeypatch.setenv("SOURCE_DATE_EPOCH", "1700000000")
    first, again = tmp_path / "first", tmp_path / "again"
    for folder in (first, again):
        build(project, folder, monkeypatch)
    assert len(ARCHIVES["files_of"](first)) == 2
    assert list(ARCHIVES["differing"](first, again)) == []
    assert wrong_in(first) == []


def test_so_it_is_of_the_compiled_parts_wherever_they_are_built(tmp_path):
    if shutil.which(os.environ.get("CC", "cc")) is None:
        pytest.skip("there is no compiler")
    # Fast, and with the names of files for debuggers, as many Pythons ask of the compiler: they may name no folder.
    terms = {"SOURCE_DATE_EPOCH": "1700000000", "RANKWISE_CFLAGS": "-O0 -g", "RANKWISE_NATIVE_BUILD": "required"}
    for name in ("first", "again"):
        source = Path(native_source(tmp_path / f"{name} folder"))
        for path in source.rglob("*.c"):
            os.utime(path, (0, 1600000000 + len(name)))
        both = (sys.executable, "-m", "build", "--no-isolation", "--sdist", "--wheel")
        run(*both, "--outdir", str(tmp_path / name), str(source), env={**os.environ, **terms})
    assert list(ARCHIVES["differing"](tmp_path / "first", tmp_path / "again")) == []
    assert wrong_in(tmp_path / "first") == []
    (sources,) = (tmp_path / "first").glob("*.tar.gz")
    assert {name for name in ARCHIVES["sources_in"](sources) if name.startswith("csrc/")} == {
        f"csrc/{path.name}" for path in source.glob("csrc/*.[ch]")
    }


def wheel(folder, **held):
    folder.mkdir(exist_ok=True)
    with zipfile.ZipFile(folder / "rankwise-1-py3-none-any.whl", "w") as archive:
        for name, text in held.items():
            archive.writestr(name.replace("__", "/"), text)


def sources(folder, **held):
    folder.mkdir(exist_ok=True)
    with tarfile.open(folder / "rankwise-1.tar.gz", "w:gz") as archive:
        for name, text in held.items():
            member = tarfile.TarInfo("rankwise-1/" + name.replace("__", "/"))
            member.size = len(text)
            archive.addfile(member, io.BytesIO(text.encode()))


@pytest.mark.parametrize(
    ("make", "held", "says"),
    [
        (wheel, {"rankwise__x.py": ""}, "does not hold the licence"),
        (wheel, {"rankwise-1.dist-info__licenses__LICENSE": "another"}, "does not hold the licence"),
        (wheel, {"tests__x.py": ""}, "what does not belong there: tests/x.py"),
        (wheel, {"rankwise__x.pyc": ""}, "what does not belong there: rankwise/x.pyc"),
        (sources, {"core__x.py": ""}, "does not hold the licence"),
        (sources, {"tests__core__x.py": ""}, "what does not belong there: tests/core/x.py"),
    ],
)
def test_what_is_wrong_with_a_file_is_said(make, held, says, tmp_path, capsys):
    make(tmp_path, **held)
    assert ARCHIVES["main"]("check", str(tmp_path)) == 1
    assert says in capsys.readouterr().err


def test_a_folder_without_files_is_no_release(tmp_path):
    assert ARCHIVES["main"]("check", str(tmp_path)) == 1


def test_two_builds_that_differ_are_told_apart_and_not_joined(tmp_path, capsys):
    for name, text in (("one", "1"), ("two", "2")):
        wheel(tmp_path / name, rankwise__x=text)
    sources(tmp_path / "two", core__x="2")
    folders = [str(tmp_path / name) for name in ("one", "two")]
    assert ARCHIVES["main"]("same", *folders) == 1
    said = capsys.readouterr().err.splitlines()
    assert said == [
        f"{name} differs from one build to the next" for name in ("rankwise-1-py3-none-any.whl", "rankwise-1.tar.gz")
    ]
    assert ARCHIVES["main"]("join", str(tmp_path / "all"), *folders) == 1
    assert "rankwise-1-py3-none-any.whl differs from one machine to the next" in capsys.readouterr().err
    assert ARCHIVES["main"]("join", str(tmp_path / "both"), folders[1], folders[1]) == 0
    assert ARCHIVES["main"]("same", str(tmp_path / "both"), folders[1]) == 0
