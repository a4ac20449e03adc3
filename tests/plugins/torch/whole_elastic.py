"""The example of DDP on ranks that die and come back."""

import re
import subprocess
import sys
from pathlib import Path

from rankwise_launch.launching import environment

ROOT = Path(__file__).parents[3]
EXAMPLE = "examples/elastic_ddp/train.py"
COMMAND = f"rankwise run -n 4 --elastic --max-restarts 3 {EXAMPLE}"
#: Each new process imports torch, twice.
DEADLINE_S = 180


def run():
    command = [sys.executable, "-m", *COMMAND.split()[:-1], str(ROOT / EXAMPLE)]
    return subprocess.run(
        command, env=environment(), stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=DEADLINE_S
    )


def sizes(text):
    return [int(size) for size in re.findall(r"epoch \d+: (\d) ranks", text)]


def test_ranks_die_and_come_back_and_the_others_go_on():
    """No step is lost: one process finds the same parameters."""
    done = run()
    assert done.returncode == 0, done.stdout + done.stderr
    assert sizes(done.stdout) == [4, 3, 4, 3, 4], done.stdout
    steps = [int(step) for step in re.findall(r"step (\d+): loss", done.stdout)]
    assert steps == [*range(20, steps[-1] + 1, 20)]
    losses = [float(loss) for loss in re.findall(r"loss (0\.\d{4})", done.stdout)]
    assert losses[-1] < losses[0] / 4
    assert "and one process finds the same parameters" in done.stdout
    assert "2 failures did not end the other ranks" in done.stderr


def test_what_the_page_shows_was_printed_so():
    """Until the next change of what the example prints."""
    printed = (ROOT / "docs/captured/elastic_ddp.txt").read_text()
    assert printed.startswith(f"$ {COMMAND}\n")
    assert sizes(printed) == [4, 3, 4, 3, 4]
