"""`rankwise new-backend`: a distribution with a backend that passes the kit, to begin from."""

from __future__ import annotations

import argparse
import re
from pathlib import Path

from rankwise.kits import not_a_name
from rankwise_launch.toolbox import CommandError

DESCRIPTION = """\
Write a distribution with a complete backend: one socket for each pair of ranks, all collectives derived. It passes the
conformance kit unchanged. Replace the sockets with your library's calls, and declare what the library does natively.
With --full the backend has what a published one needs: a rendezvous with a deadline, options, native collectives,
messages that carry their dtype, detection of deaths, figures, variants, checks and a command."""

EXAMPLES = """\
examples:
  rankwise new-backend acme && pip install -e rankwise-acme && rankwise conformance acme --fast
  rankwise new-backend acme --full        # with options, native collectives, checks and a command"""

_TEMPLATES = Path(__file__).with_name("template")

_PROJECT = """\
[build-system]
requires = ["hatchling>=1.21"]
build-backend = "hatchling.build"

[project]
name = "rankwise-NAME"
version = "0.1.0"
description = "The backend NAME of rankwise."
readme = "README.md"
requires-python = ">=3.10"
# The watch tells the ranks of each other's deaths.
dependencies = ["rankwise~=0.1.0", "rankwise-watch~=0.1.0"]

[project.optional-dependencies]
test = ["rankwise-testing~=0.1.0"]

[project.entry-points."rankwise.backends"]
NAME = "rankwise_NAME"

[tool.hatch.build.targets.wheel]
packages = ["src/rankwise_NAME"]
"""

_COMMAND = """
[project.entry-points."rankwise.commands"]
NAME = "rankwise_NAME.command"
"""

_TEST = '''\
"""The kit proves what the table declares."""

from rankwise_testing import conformance


def test_it_is_what_it_declares():
    assert conformance("NAME", extra_args=["-q"]) == 0
'''

_PROGRAM = '''\
"""Ranks add up arrays over NAME."""

import numpy as np

import rankwise as dist

dist.init_process_group("NAME")
array = np.full(3, dist.get_rank() + 1.0)
dist.all_reduce(array)
print(array)
dist.destroy_process_group()
'''

_README = """\
# rankwise-NAME

The backend `NAME` of [rankwise](https://pypi.org/project/rankwise/).

```bash
pip install -e '.[test]'
rankwise run -n 2 program.py          # an all_reduce over it
rankwise conformance NAME --fast      # while you write it
rankwise conformance NAME             # before you publish it
```
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add what the command takes."""
    parser.add_argument("backend", metavar="NAME", help="the backend's name, as in init_process_group(NAME)")
    parser.add_argument("--full", action="store_true", help="add everything that a published backend needs")
    parser.add_argument("--folder", type=Path, metavar="DIR", help="the folder to write to; default rankwise-NAME")


def run(options: argparse.Namespace) -> int:
    """Run the command, and return the exit code."""
    name: str = options.backend
    if reason := not_a_name(name):
        raise CommandError(f"{name!r} is no name of a backend: {reason}", 2)
    folder: Path = options.folder or Path(f"rankwise-{name.replace('_', '-')}")
    if folder.exists():
        raise CommandError(f"{folder} is there already", 2)
    for path, text in (_full if options.full else _short)(name).items():
        target = folder / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(text, encoding="utf-8")
    print(
        f"{folder} has a backend {name!r}; next:\n  pip install -e {folder}\n"
        f"  rankwise run -n 2 {folder / 'program.py'}\n  rankwise conformance {name} --fast"
    )
    return 0


def _short(name: str) -> dict[str, str]:
    """Return the files of a backend in one module."""
    source = _text("backend.txt").replace("MeshCommunicator", f"{_class_name(name)}Communicator")
    return {**_project(name), f"src/rankwise_{name}/__init__.py": source.replace('"mesh"', f'"{name}"')}


def _full(name: str) -> dict[str, str]:
    """Return the files of a backend that has all: the example `wire`, under another name."""
    folder = _TEMPLATES / "full"
    files = {path.stem: _renamed(_text(f"full/{path.name}"), name) for path in sorted(folder.glob("*.txt"))}
    readme = _README.replace("NAME", name) + files.pop("readme")
    project = _PROJECT.replace('"rankwise-watch~=', '"rankwise-launch~=0.1.0", "rankwise-watch~=')
    return {
        **_project(name, project + _COMMAND, readme),
        **{f"src/rankwise_{name}/{module}.py": text for module, text in files.items()},
    }


def _project(name: str, project: str = _PROJECT, readme: str = _README) -> dict[str, str]:
    files = {"pyproject.toml": project, "README.md": readme, "program.py": _PROGRAM, "tests/test_conformance.py": _TEST}
    return {path: text.replace("NAME", name) for path, text in files.items()}


def _renamed(text: str, name: str) -> str:
    text = text.replace("rankwise_wire", f"rankwise_{name}").replace("WIRE_", f"{name.upper()}_")
    return re.sub(r"\bwire\b", name, text).replace("WireCommunicator", f"{_class_name(name)}Communicator")


def _text(path: str) -> str:
    return (_TEMPLATES / path).read_text(encoding="utf-8")


def _class_name(name: str) -> str:
    return "".join(word.capitalize() for word in name.split("_"))
