"""Commands that start ranks: what they show on a terminal, and that nothing outlives them."""

from __future__ import annotations

import importlib.util
import os
import pty
import re
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from tests import warm
from tests.processes import alive, descendants, read_terminal, wait_until

import rankwise
from rankwise.backends.registry import registry
from rankwise_launch.demo_command import LiveTable

TIMEOUT_S = 60
SOURCE = Path(rankwise.__file__).parents[1]

needs_gloo = pytest.mark.skipif(not registry.availability("gloo"), reason="gloo is not installed")
needs_rich = pytest.mark.skipif(importlib.util.find_spec("rich") is None, reason="rich is not installed")


def environment(**variables: str) -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if "RANK" not in name and name != "NO_COLOR"}
    path = os.pathsep.join([str(SOURCE), kept.get("PYTHONPATH", "")]).rstrip(os.pathsep)
    return {**kept, "PYTHONPATH": path, "TERM": "xterm-256color", "COLUMNS": "100", **variables}


@contextmanager
def on_a_terminal(*arguments: str, **variables: str) -> Iterator[tuple[warm.Process, int]]:
    """Start `rankwise` on a terminal of its own; yield the process and the terminal's other end."""
    leader, follower = pty.openpty()
    words = ["-m", "rankwise", *arguments]
    process = warm.start(words, env=environment(**variables), stdout=follower, stderr=follower)
    os.close(follower)
    try:
        yield process, leader
    finally:
        process.kill()
        process.wait()
        os.close(leader)


@needs_gloo
@needs_rich
def test_the_demo_draws_a_live_table_on_a_terminal() -> None:
    with on_a_terminal("demo", "-n", "2", "--backend", "gloo", "--steps", "40") as (process, leader):
        shown = read_terminal(leader, TIMEOUT_S)
        assert process.wait(TIMEOUT_S) == 0, shown
    words = ["step 40 of 40", "loss at first", "all_reduce", "\x1b[", "The ranks exchanged", "identical, bit for bit"]
    assert [each for each in words if each not in shown] == []
    assert len(re.findall(r"step \d+ of 40", shown)) > 20


@needs_gloo
def test_the_demo_is_plain_lines_where_colours_are_not_wanted() -> None:
    with on_a_terminal("demo", "-n", "2", "--backend", "gloo", "--steps", "40", NO_COLOR="1") as (process, leader):
        shown = read_terminal(leader, TIMEOUT_S)
        assert process.wait(TIMEOUT_S) == 0, shown
    assert "\x1b" not in shown
    assert re.search(r"\[0\]: 40 +\d\.\d{4} +\d\.\d{4} .* MB/s", shown)


def test_without_rich_there_is_no_live_table(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rankwise_launch.demo_command.use_colour", lambda stream: True)
    monkeypatch.setitem(sys.modules, "rich", None)
    assert LiveTable.for_terminal(2, 10) is None


@needs_rich
def test_the_live_table_passes_on_what_is_no_figure(capsys: pytest.CaptureFixture[str]) -> None:
    lines = ["[0]: 10     1.5000    1.2500    0.9     300 MB/s\n", "[1]: [something] else\n"]
    LiveTable(12, 10).follow(lines)
    shown = capsys.readouterr().out
    assert "[1]: [something] else" in shown
    assert "and 4 more ranks" in shown


@needs_gloo
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL], ids=["INT", "TERM", "KILL"])
@pytest.mark.parametrize("command", ["demo", "bench"])
def test_nothing_outlives_a_command(command: str, number: int) -> None:
    """Told to the command alone, as `kill` does, and not to its children."""
    endless = {
        "demo": ["demo", "-n", "2", "--backend", "gloo", "--steps", "100000000"],
        "bench": ["bench", "--backend", "gloo", "--iterations", "100000000", "--sizes", "1KiB"],
    }
    with on_a_terminal(*endless[command], NO_COLOR="1") as (process, leader):
        if command == "demo":
            read_terminal(leader, TIMEOUT_S, "step ")
        assert wait_until(lambda: len(descendants(process.pid)) >= 4, TIMEOUT_S)  # the launcher, its guard, two ranks
        started = descendants(process.pid)
        process.send_signal(number)
        process.wait(TIMEOUT_S)
        assert process.returncode == (130 if number == signal.SIGINT else -number)
        assert wait_until(lambda: not any(map(alive, started)), 10.0)
