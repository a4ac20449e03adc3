"""Look at the files of a release, which end with status 1 if they are not as they must be.

python scripts/archives.py check DIST          each holds its licence, what belongs to it, and nothing else
python scripts/archives.py same FIRST AGAIN    two builds have made the same files
python scripts/archives.py join DIST FROM...   put what several machines have built together; what more than one of
                                               them has built must be the same
"""

from __future__ import annotations

import shutil
import sys
import tarfile
import zipfile
from collections.abc import Iterator
from pathlib import Path

LICENCE = Path(__file__).parents[1] / "LICENSE"
#: What each archive of sources may hold beside its package.
BESIDE = {"LICENSE", "README.md", "CHANGELOG.md", "PKG-INFO", "pyproject.toml", ".gitignore", "setup.py", "setup.cfg"}
#: Where the sources lie in an archive: the core's, the plugins', and what is compiled.
SOURCES = ("core/", "src/", "csrc/")


def sources_in(path: Path) -> dict[str, bytes]:
    """Return what an archive of sources holds, by its place in it."""
    with tarfile.open(path) as archive:
        members = [(member.name, archive.extractfile(member)) for member in archive.getmembers() if member.isfile()]
        return {name.partition("/")[2]: file.read() for name, file in members if file}


def wheel_in(path: Path) -> dict[str, bytes]:
    """Return what a wheel holds, by its place in it."""
    with zipfile.ZipFile(path) as wheel:
        return {name: wheel.read(name) for name in wheel.namelist()}


def wrong_in(path: Path) -> Iterator[str]:
    """Return what is wrong with a wheel or an archive of sources."""
    licence = LICENCE.read_bytes()
    if path.suffix == ".whl":
        held = wheel_in(path)
        texts = [data for name, data in held.items() if name.endswith(".dist-info/licenses/LICENSE")]
        strays = [name for name in held if ".dist-info/" not in name and not name.startswith("rankwise")]
    else:
        held = sources_in(path)
        texts = [data for name, data in held.items() if name == "LICENSE"]
        strays = [name for name in held if not name.startswith(SOURCES) and name not in BESIDE]
    strays += [name for name in held if name.endswith((".pyc", ".o")) or "__pycache__" in name]
    if texts != [licence]:
        yield f"{path.name} does not hold the licence"
    if strays:
        yield f"{path.name} holds what does not belong there: {', '.join(strays[:3])}"


def differing(first: Path, again: Path) -> Iterator[str]:
    """Return what differs between the files of two folders."""
    files = [{path.name: path.read_bytes() for path in folder.iterdir()} for folder in (first, again)]
    for name in sorted(files[0].keys() | files[1].keys()):
        if files[0].get(name) != files[1].get(name):
            yield f"{name} differs from one build to the next"


def join(folder: Path, origins: list[Path]) -> Iterator[str]:
    """Put the files of several folders into one, and return the names of those that differ between them."""
    folder.mkdir(parents=True, exist_ok=True)
    for path in (path for origin in origins for path in sorted(origin.iterdir())):
        if not (folder / path.name).exists():
            shutil.copy(path, folder)
        elif (folder / path.name).read_bytes() != path.read_bytes():
            yield f"{path.name} differs from one machine to the next"


def main(act: str, *folders: str) -> int:
    """Do what the command line says; return the status to exit with."""
    paths = [Path(folder) for folder in folders]
    if act == "check":
        wrong = [what for path in files_of(paths[0]) for what in wrong_in(path)]
    elif act == "same":
        wrong = list(differing(*paths))
    else:
        wrong = list(join(paths[0], paths[1:]))
    print(*wrong, sep="\n", file=sys.stderr, end="\n" if wrong else "")
    return 1 if wrong or not files_of(paths[0]) else 0


def files_of(folder: Path) -> list[Path]:
    """Return the wheels and archives in a folder."""
    return sorted([*folder.glob("*.whl"), *folder.glob("*.tar.gz")])


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
