"""What is published of each distribution: its licence, what belongs to it and nothing else, each time the same."""

import os
import shutil
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest
from tests.packaging.conftest import ROOT, native_source, run

LICENCE = (ROOT / "LICENSE").read_bytes()
#: All that are built by hatchling, in this process; the compiled parts take their time.
PROJECTS = [
    ROOT,
    *sorted(path.parent for path in ROOT.glob("plugins/*/pyproject.toml") if path.parent.name != "native"),
]
#: What each archive of sources may hold beside its package.
BESIDE = {"LICENSE", "README.md", "CHANGELOG.md", "PKG-INFO", "pyproject.toml", ".gitignore"}


def build(project, folder, monkeypatch):
    """Build the archive of a project's sources and its wheel, as all front ends do."""
    from hatchling.build import build_sdist, build_wheel

    folder.mkdir()
    monkeypatch.chdir(project)
    return folder / build_sdist(str(folder)), folder / build_wheel(str(folder))


def sources_in(path):
    """Return what an archive of sources holds, by its place in it."""
    with tarfile.open(path) as archive:
        members = [member for member in archive.getmembers() if member.isfile()]
        return {member.name.partition("/")[2]: archive.extractfile(member).read() for member in members}


def wheel_in(path):
    with zipfile.ZipFile(path) as wheel:
        return {name: wheel.read(name) for name in wheel.namelist()}


def licences_of(wheel):
    return [data for name, data in wheel.items() if name.endswith(".dist-info/licenses/LICENSE")]


@pytest.mark.parametrize("project", PROJECTS, ids=lambda project: project.name)
def test_it_holds_its_licence_and_what_belongs_to_it_and_is_the_same_each_time(project, tmp_path, monkeypatch):
    monkeypatch.setenv("SOURCE_DATE_EPOCH", "1700000000")
    first, again = (build(project, tmp_path / name, monkeypatch) for name in ("first", "again"))
    assert [path.read_bytes() for path in first] == [path.read_bytes() for path in again]
    sources, wheel = sources_in(first[0]), wheel_in(first[1])
    assert sources["LICENSE"] == LICENCE
    assert licences_of(wheel) == [LICENCE]
    room = "core/" if project == ROOT else "src/"
    assert [name for name in sources if not name.startswith(room) and name not in BESIDE] == []
    packages = {name.partition("/")[0] for name in wheel if ".dist-info/" not in name}
    assert all(package.startswith("rankwise") for package in packages)


def test_so_it_is_of_the_compiled_parts(tmp_path):
    if shutil.which(os.environ.get("CC", "cc")) is None:
        pytest.skip("there is no compiler")
    source = Path(native_source(tmp_path))
    # Each is built anew, and fast: what the compiler makes of it is the same on every level.
    terms = {"SOURCE_DATE_EPOCH": "1700000000", "RANKWISE_CFLAGS": "-O0", "RANKWISE_NATIVE_BUILD": "required"}
    both = (sys.executable, "-m", "build", "--no-isolation", "--sdist", "--wheel")
    built = []
    for name in ("first", "again"):
        folder = tmp_path / name
        run(*both, "--outdir", str(folder), str(source), env={**os.environ, **terms})
        built.append({path.suffix: path for path in folder.iterdir()})
        shutil.rmtree(source / "build")
    wheels = [each[".whl"].read_bytes() for each in built]
    assert wheels[0] == wheels[1]
    sources = sources_in(built[0][".gz"])
    assert sources["LICENSE"] == LICENCE
    assert licences_of(wheel_in(built[0][".whl"])) == [LICENCE]
    assert {name for name in sources if name.startswith("csrc/")} == {
        f"csrc/{path.name}" for path in source.glob("csrc/*.[ch]")
    }
