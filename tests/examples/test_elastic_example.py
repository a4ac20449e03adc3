"""The example of a job that changes size: ranks are shot and come back, and no step is lost."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

from rankwise_launch.launching import environment

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "examples/elastic"
DEADLINE_S = 90
#: What a line says behind its time. After two shots the newcomers may come one after the other.
KINDS = {
    "begins": r"epoch 1: 4 ranks; rank 0 joined; rank 1 joined; rank 2 joined; rank 3 joined",
    "step": r"step \d+: loss 0\.\d{4}",
    "shot": r"shot: [12] of 4 ranks",
    "death": r"epoch \d+: \d ranks; rank \d left: .+",
    "join": r"epoch \d+: \d ranks; rank \d joined(?:; rank \d joined)?",
    "right": r"right: \d+ steps on 4 ranks, and one process finds the same weights",
}


def kinds(text: str) -> list[str]:
    """Return of what kind each line is; "?" for one that is of none."""
    said = [re.sub(r"^ *\d+\.\d\d s  ", "", line) for line in text.splitlines()]
    return [next((kind for kind, form in KINDS.items() if re.fullmatch(form, line)), "?") for line in said]


def run(program: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, str(program)],
        env=environment(),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=DEADLINE_S,
    )


def test_ranks_are_shot_and_come_back_and_the_weights_are_right() -> None:
    done = run(FOLDER / "shoot.py")
    assert done.returncode == 0, done.stdout + done.stderr
    found = kinds(done.stdout)
    assert "?" not in found, done.stdout
    assert found[0] == "begins"
    assert found[-1] == "right"
    assert found.count("shot") == 2
    assert found.count("death") >= 2
    assert found.count("join") >= 2
    steps = [int(step) for step in re.findall(r"step (\d+)", done.stdout)]
    assert steps == sorted(steps)
    assert steps[-1] >= 400


def test_what_the_picture_shows_was_printed_so() -> None:
    command, _, printed = (ROOT / "docs/captured/elastic.txt").read_text().partition("\n")
    assert command == "$ python examples/elastic/shoot.py"
    assert set(kinds(printed)) == set(KINDS)


def test_wrong_weights_are_noticed(tmp_path: Path) -> None:
    """The survivors leave out the examples of those that have been shot."""
    for program in FOLDER.glob("*.py"):
        (tmp_path / program.name).write_text(program.read_text())
    train = tmp_path / "train.py"
    wrong = train.read_text().replace(
        "slice(dist.get_rank(), None, dist.get_world_size())", "slice(dist.get_rank(), None, size)"
    )
    assert wrong != train.read_text()
    train.write_text(wrong)
    done = run(tmp_path / "shoot.py")
    assert done.returncode == 4, done.stdout + done.stderr
    assert done.stderr.count("the weights are not those of one process") == 4
    assert "right" not in kinds(done.stdout)
