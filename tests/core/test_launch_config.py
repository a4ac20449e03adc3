"""What the launcher makes of words: options, streams, and the last words of a rank."""

from __future__ import annotations

import os

import pytest

from rankwise_launch.config import Streams, count_processes, parse_streams
from rankwise_launch.failures import excerpt, shell_exit_code

PLAIN = ["Traceback (most recent call last):", '  File "x.py", line 1, in <module>', "ValueError: one"]


@pytest.mark.parametrize(
    ("text", "streams"), [("0", [0, 0, 0]), ("3", [3, 3, 3]), ("1:2", [0, 2, 0]), ("0:1,2:3", [1, 0, 3])]
)
def test_streams_are_chosen_as_for_torchrun(text: str, streams: list[int]) -> None:
    assert [parse_streams(text).of(local_rank) for local_rank in range(3)] == streams


@pytest.mark.parametrize("text", ["", "4", "-1", "0:4", "0:1:2", "a:1", "0:1,", "both"])
def test_other_notations_are_refused(text: str) -> None:
    with pytest.raises(ValueError, match="must be 0 to 3"):
        parse_streams(text)


def test_processes_are_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    cores = len(os.sched_getaffinity(0))
    assert count_processes("3") == 3
    assert count_processes("cpu") == cores
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    assert count_processes("auto") == cores
    with pytest.raises(ValueError, match="no NVIDIA GPU"):
        count_processes("gpu")
    with pytest.raises(ValueError, match="must be a number, or auto"):
        count_processes("2.5")


@pytest.mark.parametrize(
    ("before", "lines"),
    [
        (["noise", *PLAIN, "between"], PLAIN),
        (["noise"], [*PLAIN, "", "During handling of the above exception, another exception occurred:", "", *PLAIN]),
        ([], ["[rank1]: " + line for line in PLAIN]),
        ([], ["Fatal Python error: Segmentation fault", "Thread 0x1:"]),
        ([str(i) for i in range(50)], [str(i) for i in range(20)]),
        ([], []),
    ],
    ids=["the last", "chained", "prefixed", "none", "long", "silent"],
)
def test_the_last_traceback_is_found(before: list[str], lines: list[str]) -> None:
    assert excerpt([*before, *lines]) == lines


@pytest.mark.parametrize(("code", "shown"), [(0, 0), (3, 3), (-9, 137), (-15, 143)])
def test_signals_become_the_exit_codes_of_a_shell(code: int, shown: int) -> None:
    assert shell_exit_code(code) == shown


def test_streams_are_nothing_by_default() -> None:
    assert Streams() == Streams(0)
