"""The core calls a plugin for as long as the program allows; and who cannot take part tells all the others at once."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator

import numpy as np
import pytest
from tests.busy_machine import slowness
from tests.core import supervised_programs as programs
from tests.core.supervised_programs import CLOSED, TOLD, Late, Sleeper, Told, register, sleep, told

import rankwise as dist
from rankwise.backends import Runtime
from rankwise.kits import registry
from rankwise_testing import run_ranks

#: How soon all must know.
SOON_S = 1.0


@pytest.fixture(autouse=True)
def forgotten() -> Iterator[None]:
    TOLD.clear()
    CLOSED.clear()
    yield
    TOLD.set()
    if dist.is_initialized():
        dist.destroy_process_group()
    if "acme" in registry.names():
        registry.unregister("acme")


def is_soon(after_s: float, at_s: float = 0.0) -> bool:
    return at_s - 0.1 <= after_s < at_s + SOON_S * slowness()


def test_a_create_that_does_not_return_ends_at_the_time_out_on_all_ranks() -> None:
    others, culprit = run_ranks(programs.begin_with_one_that_sleeps, 2)
    assert [said[0] for said in (others, culprit)] == ["DistTimeoutError", "DistTimeoutError"]
    assert "`create` of backend 'acme', from this process, does not answer" in culprit[1]
    assert "rank 1" in others[1]
    assert is_soon(others[2], 2)
    assert is_soon(culprit[2], 2)


@pytest.mark.parametrize(
    ("program", "error", "words"),
    [
        (programs.begin_without, "BackendUnavailableError", "'acme' cannot run here: no such hardware; buy some"),
        (programs.begin_without_plugin, "BackendNotFoundError", "no backend 'acme' is installed"),
    ],
)
def test_a_rank_that_cannot_have_its_backend_tells_the_others(program: object, error: str, words: str) -> None:
    others, culprit = run_ranks(program, 2)  # type: ignore[arg-type]
    assert others[0] == culprit[0] == error
    assert words in culprit[1]
    assert others[1].startswith("init_process_group: rank 1 cannot take part: ")
    assert words in others[1]
    assert is_soon(others[2])


def test_one_that_does_not_say_whether_it_can_run_leaves_time_to_tell_the_others() -> None:
    others, culprit = run_ranks(programs.begin_with_one_that_does_not_say, 2)
    for error, words, after_s in (others, culprit):
        assert error == "BackendUnavailableError"
        assert "`availability` of backend 'acme', from this process, does not answer" in words
        assert is_soon(after_s, 2)


@pytest.mark.parametrize("how", ["new", "local", "alone", "split", "subgroups", "create"])
def test_so_it_does_where_groups_are_made_and_the_world_goes_on(how: str) -> None:
    told_all: list[tuple[Told, float]] = run_ranks(programs.make_without, 2, how)
    for (error, words, after_s), total in told_all:
        if how != "alone" or words:
            assert error == "BackendUnavailableError", words
            assert "no such hardware" in words
        assert is_soon(after_s)
        assert total == 2


def test_all_may_begin_with_another_backend_then() -> None:
    for (error, _, _), total in run_ranks(programs.try_again, 2):
        assert error == "BackendUnavailableError"
        assert total == 2


def test_an_abort_that_does_not_return_keeps_nobody() -> None:
    register(Sleeper)
    dist.init_process_group("acme", timeout=2)
    error, words, after_s = told(dist.abort_process_group)
    assert (error, words) == ("", "")
    assert is_soon(after_s, 0.5)
    assert told(lambda: dist.isend(np.ones(1), 0))[0] == "GroupAbortedError"


def test_a_close_that_does_not_return_ends_at_the_time_out() -> None:
    register(Sleeper)
    dist.init_process_group("acme", timeout=1)
    error, words, after_s = told(dist.destroy_process_group)
    assert error == "DistTimeoutError"
    assert "`close` of backend 'acme', from this process, does not answer" in words
    assert is_soon(after_s, 2)  # it is given up first, which may wait for the abort
    assert not dist.is_initialized()


def test_a_runtime_that_does_not_return_ends_at_the_time_out() -> None:
    def runtime(timeout_s: float) -> Runtime:
        sleep()
        return Runtime(0, 1)

    register(runtime=runtime)
    error, words, after_s = told(lambda: dist.init_process_group("acme", timeout=1))
    assert error == "DistTimeoutError"
    assert "`runtime` of backend 'acme', from this process, does not answer" in words
    assert is_soon(after_s, 1)


def test_a_backend_that_does_not_say_whether_it_can_run_cannot(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rankwise.backends.registry._ANSWER_S", 0.5)

    def availability() -> dist.Availability:
        sleep()
        return dist.Availability(True)

    register(availability=availability)
    began = time.monotonic()
    answer = dist.availability("acme")
    assert not answer
    assert "`availability` of backend 'acme', from this process, does not answer" in answer.reason
    assert is_soon(time.monotonic() - began, 0.5)


def test_what_comes_too_late_is_closed() -> None:
    register(Late)
    assert told(lambda: dist.init_process_group("acme", timeout=0.5))[0] == "DistTimeoutError"
    TOLD.set()
    until = time.monotonic() + 10
    while not CLOSED and time.monotonic() < until:
        threading.Event().wait(0.01)
    assert CLOSED == ["default"]
