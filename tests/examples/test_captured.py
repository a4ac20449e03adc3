"""What the documentation shows of the commands is what they print today, but for the figures."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from rankwise.backends.registry import KNOWN, registry

sys.path.insert(0, str(Path(__file__).parents[2] / "scripts"))
import capture

ROOT = Path(__file__).parents[2]
TIMEOUT_S = 100


@pytest.mark.parametrize("name", capture.COMMANDS)
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


@pytest.mark.parametrize("name", capture.COMMANDS)
def test_another_form_is_noticed(name: str) -> None:
    shown = (ROOT / f"docs/captured/{name}").read_text()
    assert capture.stale(name, shown) == ""
    # Lines of text, or the pieces of text in a picture.
    lines = re.split(r"(?=<text )" if name.endswith(".svg") else r"(?<=\n)", shown)
    middle = next(i for i in range(len(lines) // 2, len(lines)) if re.search(r"^\S*\w+", lines[i]))
    assert capture.stale(name, "".join(lines[:middle] + lines[middle + 1 :]))
    assert capture.stale(name, "".join([*lines[:middle], lines[middle], *lines[middle:]]))


@pytest.mark.parametrize("name", capture.COMMANDS)
def test_nothing_of_the_machine_is_shown(name: str) -> None:
    shown = (ROOT / f"docs/captured/{name}").read_text()
    assert str(ROOT) not in shown
    assert sys.prefix not in shown
    assert "\x1b" not in shown
