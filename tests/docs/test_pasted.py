"""Programs of the documentation run when they are pasted into `python`, where nobody has launched anything.

There a line that is not indented needs a blank one before it where a block ends.
"""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from rankwise_network.launcher_env import told_of_a_job

PATIENCE_S = 60.0

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", *sorted(ROOT.glob("plugins/*/README.md")), *sorted(ROOT.glob("docs/**/*.md"))]
#: Python blocks that need no file, no number of ranks, no launcher and nothing else.
BLOCK = re.compile(
    r"(?P<how>^[ ]*<!-- .* -->\n)?^(?P<indent>[ ]*)```python *\n(?P<body>.*?)^(?P=indent)```$", re.MULTILINE | re.DOTALL
)


def programs():
    """Return what there is to paste of each page; that each block runs alone too is tested elsewhere."""
    for page in PAGES:
        bodies = [
            re.sub(f"^{found['indent']}", "", found["body"], flags=re.MULTILINE)
            for found in BLOCK.finditer(page.read_text())
            if not found["how"] and "--8<--" not in found["body"]
        ]
        if bodies:
            yield pytest.param(bodies, id=str(page.relative_to(ROOT)))


@pytest.mark.parametrize("bodies", list(programs()))
def test_the_programs_of_a_page_run_when_they_are_pasted_one_after_the_other(bodies, tmp_path):
    kept = {name: value for name, value in os.environ.items() if not told_of_a_job({name: value})}
    done = subprocess.run(
        [sys.executable, "-i", "-q"],
        input="".join(f"{body}\n\n" for body in bodies),  # Enter, which ends a block
        env={**kept, "HOME": str(tmp_path)},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
    )
    assert not re.search(r"^Traceback|Error\b", done.stderr, re.MULTILINE), done.stderr
