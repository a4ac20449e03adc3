"""`expect_notice`: which signals are the notice, and which are more than that."""

from __future__ import annotations

import signal
from collections.abc import Iterator

import pytest

from rankwise_elastic import notices

GRACE_S = 30.0


@pytest.fixture
def others(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[int]]:
    """Return the signals that what was there before the notice has got."""
    got: list[int] = []
    before = signal.signal(signal.SIGUSR1, lambda number, frame: got.append(number))
    monkeypatch.setattr(notices, "_end_at", float("inf"))
    yield got
    signal.signal(signal.SIGUSR1, before)


def test_a_signal_that_comes_twice_at_once_is_one_notice(others: list[int]) -> None:
    """As from a scheduler that signals each process, and from the launcher that passes on what it has got too."""
    notices.expect_notice(signal.SIGUSR1, GRACE_S)
    signal.raise_signal(signal.SIGUSR1)
    signal.raise_signal(signal.SIGUSR1)
    assert notices.leaving()
    assert 0 < notices.seconds_left() <= GRACE_S
    assert others == []


def test_a_later_one_does_what_it_did_before(others: list[int], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(notices, "_SAME_NOTICE_S", -1.0)
    notices.expect_notice(signal.SIGUSR1, GRACE_S)
    for _ in range(3):
        signal.raise_signal(signal.SIGUSR1)
    assert notices.leaving()
    assert others == [signal.SIGUSR1] * 2


def test_a_notice_by_another_signal_is_taken_too(others: list[int], monkeypatch: pytest.MonkeyPatch) -> None:
    before = signal.getsignal(signal.SIGUSR2)
    try:
        notices.expect_notice(signal.SIGUSR1, GRACE_S)
        notices.expect_notice(signal.SIGUSR2, 1.0)
        signal.raise_signal(signal.SIGUSR1)
        signal.raise_signal(signal.SIGUSR2)
        assert notices.seconds_left() <= 1.0
    finally:
        signal.signal(signal.SIGUSR2, before)
