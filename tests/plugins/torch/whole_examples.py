"""The examples and the documentation's blocks for torch run under torchrun, and say that their results are right."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
LAST_WORDS = {
    "ddp": "parameters of all ranks are identical, bit for bit",
    "fsdp": "right: rank 0 keeps",
    "unchanged": "right: gloo here is rankwise_torch",
}
BLOCKS = {
    f"{page.name}:{match.start()}": match[1]
    for page in (ROOT / "docs/torch.md", ROOT / "plugins/torch/README.md")
    for match in re.finditer(r"```python\n(.*?)```", page.read_text(encoding="utf-8"), re.DOTALL)
    if "--8<--" not in match[1]  # an example, which has a test of its own
}


def under_torchrun(program, size=2):
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(size)]
    found = subprocess.run([*command, program], capture_output=True, text=True, timeout=100)
    assert found.returncode == 0, found.stderr
    return found.stdout


@pytest.mark.parametrize("name", LAST_WORDS)
def test_examples(name):
    """On two ranks."""
    assert LAST_WORDS[name] in under_torchrun(ROOT / f"examples/torch/{name}.py")


def test_every_example_is_run():
    """None is left out."""
    assert {path.stem for path in (ROOT / "examples/torch").glob("*.py")} == set(LAST_WORDS)


@pytest.mark.parametrize("block", BLOCKS)
def test_blocks(block, tmp_path):
    """The blocks of the documentation."""
    program = tmp_path / "program.py"
    program.write_text(BLOCKS[block], encoding="utf-8")
    under_torchrun(program)
