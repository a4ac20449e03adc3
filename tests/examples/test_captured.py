"""What the documentation shows of the commands is what they print today, but for the figures."""

from __future__ import annotations

import importlib.util
import re
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

from rankwise.backends.registry import KNOWN, registry

ROOT = Path(__file__).parents[2]
TIMEOUT_S = 100


def capture() -> ModuleType:
    spec = importlib.util.spec_from_file_location("capture", ROOT / "scripts/capture.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


COMMANDS = capture().COMMANDS


@pytest.mark.parametrize("name", COMMANDS)
def test_what_the_documentation_shows_is_printed_today(name: str) -> None:
    if not set(KNOWN) <= set(registry.names()):
        pytest.skip("what is shown needs all backends of the project")
    if name.endswith(".svg"):
        pytest.importorskip("rich", reason="rich draws the picture")
    done = subprocess.run(
        [sys.executable, "scripts/capture.py", "--check", name],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
    )
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("name", COMMANDS)
def test_another_form_is_noticed(name: str) -> None:
    module = capture()
    shown = (ROOT / f"docs/captured/{name}").read_text()
    assert module.stale(name, shown) == ""
    # Lines of text, or the pieces of text in a picture.
    lines = re.split(r"(?=<text )" if name.endswith(".svg") else r"(?<=\n)", shown)
    middle = next(i for i in range(len(lines) // 2, len(lines)) if re.search(r"^\S*\w+", lines[i]))
    assert module.stale(name, "".join(lines[:middle] + lines[middle + 1 :]))
    assert module.stale(name, "".join([*lines[:middle], lines[middle], *lines[middle:]]))


@pytest.mark.parametrize("name", COMMANDS)
def test_nothing_of_the_machine_is_shown(name: str) -> None:
    shown = (ROOT / f"docs/captured/{name}").read_text()
    assert str(ROOT) not in shown
    assert sys.prefix not in shown
    assert "\x1b" not in shown
