"""What rankwise itself says fits a terminal of 60 columns."""

import os
import runpy
import shlex
import sys
from pathlib import Path

import pytest

from rankwise.cli import COMMANDS, main
from rankwise_launch.parser import _broken
from rankwise_launch.run_command import older

run_on_terminal = runpy.run_path(str(Path(__file__).parents[2] / "scripts/terminal.py"))["run_on_terminal"]

COLUMNS, TIMEOUT_S = 60, 60
WRONG = """\
import numpy as np
import rankwise as dist

dist.init_process_group("gloo")
dist.all_reduce(np.ones(4 if dist.get_rank() == 1 else 3))
"""


def shown(folder, *arguments):
    """Return the lines that a command shows on a narrow terminal."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("RANKWISE_")}
    command = [sys.executable, "-m", "rankwise", *arguments]
    _, text = run_on_terminal(command, COLUMNS, folder, {**kept, "NO_COLOR": "1"}, TIMEOUT_S)
    return text.replace("\r", "").split("\n")


@pytest.mark.parametrize(
    "arguments",
    [
        ["bench", "--backend", "one-that-is-not-installed-anywhere"],
        ["explain", "all_reduce", "--ranks", "2", "--hosts", "3", "--gbit-per-s", "-5"],
        ["run", "--no-python", "a-program-with-a-name-that-is-nowhere-on-the-path"],
        ["run", "--nnodes", "2", "--node-rank", "0", "--master-addr", "127.0.0.1", "--master-port", "65535", "x.py"],
    ],
    ids=lambda arguments: arguments[0],
)
def test_errors_of_commands_are_broken_into_lines(arguments, tmp_path):
    lines = shown(tmp_path, *arguments)
    assert lines[0].startswith("rankwise")
    assert all(len(line) <= COLUMNS for line in lines), lines


def test_the_report_of_a_failure_is_broken_into_lines(tmp_path):
    (tmp_path / "wrong.py").write_text(WRONG)
    lines = shown(tmp_path, "run", "-n", "2", "wrong.py")
    report = lines[lines.index("=" * COLUMNS) :]
    assert "failed first" in report[1]
    source = ("  File ", "    ")
    assert all(len(line) <= COLUMNS for line in report if not line.startswith(source)), report
    assert any("CollectiveMismatchError" in line for line in report)


HELP = [f"rankwise {name}" for name in ("", *COMMANDS, "secret new")] + ["rankwise_launch"]


@pytest.mark.parametrize("columns", [40, 60])
@pytest.mark.parametrize("command", HELP)
def test_help_is_broken_into_lines(command, columns, monkeypatch, capsys):
    module, *words = command.split()
    monkeypatch.setenv("COLUMNS", str(columns))
    monkeypatch.setenv("NO_COLOR", "1")
    monkeypatch.setattr(sys, "argv", ["rankwise_launch", "--help"])
    with pytest.raises(SystemExit, match=r"^0$"):
        main([*words, "--help"]) if module == "rankwise" else older()
    out, err = capsys.readouterr()
    lines = out.splitlines()
    assert err == ""
    assert len(lines) > 10
    # A word is never broken: it would be another one when it is pasted.
    assert all(len(line) <= columns or len(line.split()) == 1 or " > " in line for line in lines), lines


def test_an_example_that_is_broken_into_lines_is_the_same_command():
    example = "  FILE=here rankwise run -n 8 --launch 'mpiexec -n {size}' train.py --lr 0.1   # why it is done"
    comment, *lines = _broken(example, 40)
    assert comment == "  # why it is done"
    assert len(lines) == 3
    assert all(line.endswith(" \\") and len(line) <= 40 for line in lines[:-1])
    joined = "\n".join(lines).replace("\\\n", "")
    assert shlex.split(joined) == shlex.split(example, comments=True)
