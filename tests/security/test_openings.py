"""What others can reach is what docs/openings.md says: what is opened is declared beside the code, and has a test."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[2] / "scripts"))
import openings

import rankwise as dist
from rankwise_testing import run_ranks

ROOT = openings.ROOT
TIMEOUT_S = 60.0


def test_whatever_is_opened_is_declared_beside_it() -> None:
    assert openings.undeclared() == []


def test_the_page_is_what_the_declarations_say() -> None:
    assert openings.PAGE.read_text(encoding="utf-8") == openings.page(), "run scripts/openings.py"


@pytest.mark.parametrize("what", openings.rows())
def test_each_row_says_who_what_guards_and_which_test_there_is(what: str) -> None:
    fields, _ = openings.rows()[what]
    assert sorted(fields) == sorted(openings.FIELDS)
    path, _, function = fields["proved by"].partition("::")
    assert (ROOT / path).is_file()
    assert f"def {function}" in (ROOT / path).read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("name", "code", "found"),
    [
        ("a.py", "import socket\ndef f():\n    socket.socket().bind(('', 1))\n", ["bind"]),
        ("a.py", "import zmq\nclass A:\n    def f(self):\n        self.socket.bind('tcp://*:1')\n", ["bind"]),
        ("a.py", "def f(call):\n    return call.bind(1)\n", []),
        ("a.py", "import os\nHELD = os.memfd_create('x')\n", ["memfd_create"]),
        ("a.py", "import os\ndef f(path):\n    os.open(path, os.O_CREAT)\n    os.open(os.devnull, 0)\n", ["open"]),
        ("a.py", "def f(path):\n    return open(path)\n", ["open"]),
        ("a.py", "def f(pid):\n    return open('/proc/stat'), open(f'/proc/{pid}/stat')\n", []),
        ("a.py", "def f(pid, n):\n    return open(f'/proc/{pid}/fd/{n}')\n", ["open"]),
        ("a.py", "class Server(HTTPServer):\n    pass\n", ["HTTPServer"]),
        ("a.py", "async def f(path):\n    path.write_text('')\n", ["write_text"]),
        ("a.c", "static int f(void)\n{\n    return open(path, O_RDWR);\n}\n", ["open"]),
        ("a.c", "static int f(void)\n{\n    return reopen(path) + it->open(path); /* open(path) */\n}\n", []),
    ],
)
def test_what_is_opened_is_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, code: str, found: list[str]
) -> None:
    monkeypatch.setattr(openings, "ROOT", tmp_path)
    path = tmp_path / name
    path.write_text(code)
    assert [opening.call for opening in openings.openings(path)] == found
    assert all(openings.of(opening, openings.declarations(path)) is None for opening in openings.openings(path))


def inherited() -> list[str]:
    """Return what a child of this rank would inherit beside the standard streams."""
    dist.init_process_group("gloo")
    found = []
    for name in os.listdir("/proc/self/fd"):
        try:
            if int(name) > 2 and os.get_inheritable(int(name)):
                found.append(os.readlink(f"/proc/self/fd/{name}"))
        except OSError:
            continue  # that of the list itself
    dist.barrier()
    dist.destroy_process_group()
    return found


@pytest.mark.skipif(not os.path.isdir("/proc/self/fd"), reason="this system does not tell which descriptors there are")
def test_a_child_inherits_nothing_that_was_not_handed_over() -> None:
    for transport in ("shm", "tcp"):
        env = {"RANKWISE_GLOO_TRANSPORT": transport}
        assert run_ranks(inherited, 2, env=env, timeout=TIMEOUT_S) == [[], []]
