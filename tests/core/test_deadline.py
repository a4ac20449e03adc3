"""Time-outs and deadlines, by a clock of the test."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import numpy as np
import pytest

from rankwise.basics import deadline
from rankwise.basics.arguments import whole_number
from rankwise.basics.deadline import Deadline, seconds


@pytest.mark.parametrize(
    ("given", "wanted"), [(timedelta(minutes=2), 120.0), (0, 0.0), (2, 2.0), (0.5, 0.5), (timedelta(0), 0.0)]
)
def test_time_outs_are_seconds(given: Any, wanted: float) -> None:
    assert seconds(given) == wanted
    assert type(seconds(given)) is float


@pytest.mark.parametrize("given", [float("inf"), 1e300, timedelta.max])
def test_for_ever_is_a_time_that_every_wait_takes(given: Any) -> None:
    assert seconds(given) == deadline._FOREVER_S


@pytest.mark.parametrize(
    ("given", "error", "said"),
    [
        (True, TypeError, "not True"),
        ("1", TypeError, "not '1'"),
        (None, TypeError, "not None"),
        (float("nan"), ValueError, "not nan"),
        (-0.5, ValueError, "not be negative, got -0.5"),
        (timedelta(seconds=-1), ValueError, "not be negative"),
    ],
)
def test_what_is_no_time_out_is_refused(given: Any, error: type[Exception], said: str) -> None:
    with pytest.raises(error, match=f"^timeout must .*{said}"):
        seconds(given)
    with pytest.raises(error, match=f"^patience must .*{said}"):
        seconds(given, "patience")


@pytest.mark.parametrize("given", [1.5, True, "2", float("nan"), None, np.ones(3)])
def test_what_is_no_whole_number_is_refused(given: Any) -> None:
    with pytest.raises(TypeError, match=r"^ranks must be a whole number, not "):
        whole_number(given, "ranks")


def test_whole_numbers_are_not_less_than_the_least() -> None:
    assert [whole_number(given, "ranks", 2) for given in (2, np.int64(3))] == [2, 3]
    assert whole_number(0, "retries") == 0
    for given, least in ((1, 2), (-1, 0)):
        with pytest.raises(ValueError, match=f"^ranks must be at least {least}, not {given}$"):
            whole_number(given, "ranks", least)


def test_a_deadline_is_a_moment(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 100.0
    monkeypatch.setattr(deadline, "monotonic", lambda: now)
    end = Deadline(10.0)
    told = []
    for now in (100.0, 107.0, 110.0, 113.0):  # noqa: B007
        told.append((end.remaining(), end.overdue_s(), end.expired()))
    assert told == [(10.0, -10.0, False), (3.0, -3.0, False), (0.0, 0.0, True), (0.0, 3.0, True)]
    assert end.timeout_s == 10.0
