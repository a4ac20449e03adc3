"""What all public calls have in common: on which thread they run, and what they say when they are interrupted."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from tests.threads import at_once, on_ranks, soon

import rankwise as dist
from rankwise.basics.work import COMPLETED, FutureWork, Work
from rankwise.calls import calling
from rankwise.collective.call import Call
from rankwise.groups.world import current

PATIENCE_S = 20.0


@on_ranks(1)
def test_only_who_asks_for_a_work_or_collects_calls_does_not_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    group: Any = current().default
    asked: list[tuple[float, bool]] = []

    def run(call: Call, timeout_s: float, async_op: bool) -> Work:
        asked.append((timeout_s, async_op))
        return COMPLETED

    monkeypatch.setattr(group, "any_lane", lambda op: (SimpleNamespace(run=run), "cpu"))
    for async_op, timeout, wanted in (
        (False, None, (group.timeout_s, False)),
        (False, 3, (3.0, False)),
        (True, None, (group.timeout_s, True)),
        (True, 3, (3.0, True)),
    ):
        before = len(current().recorder.entries())
        assert (calling.carry_out(group, Call("barrier"), None, async_op, timeout) is not None) == async_op
        assert asked.pop() == wanted
        assert len(current().recorder.entries()) == before + 1  # noted as begun


@on_ranks(1)
def test_calls_of_other_threads_are_not_collected() -> None:
    mine, other = np.ones(2), np.ones(2)
    with dist.coalescing(async_ops=True) as block:
        assert dist.all_reduce(mine) is None
        assert at_once(lambda _: dist.all_reduce(other), [None], PATIENCE_S) == [None]
        work = at_once(lambda _: dist.all_reduce(other, async_op=True), [None], PATIENCE_S)[0]
        assert work is not None
        assert work.wait(PATIENCE_S)
        assert dist.all_reduce(mine) is None
    block.wait()


@pytest.mark.parametrize("raised", [True, False])
def test_an_interrupted_call_gives_its_group_up_by_its_name(raised: bool) -> None:
    told: list[tuple[BaseException, str]] = []
    group: Any = SimpleNamespace(interrupted=lambda *about: told.append(about))
    error = KeyboardInterrupt()
    if raised:
        with pytest.raises(KeyboardInterrupt):
            public_call(group, error)
    else:
        calling.broken(group, error)
    assert told == [(error, "public_call" if raised else "a call")]
    calling.broken(group, ValueError("the caller's mistake"))
    assert len(told) == 1
    calling.broken(None, error)
    assert len(told) == 1


def test_a_call_that_returns_no_work_has_ended() -> None:
    ended: list[bool] = []
    work = FutureWork()
    group: Any = SimpleNamespace(trail=SimpleNamespace(end=lambda: ended.append(work.is_completed())), collected={})
    soon(work.succeed)
    assert calling.finish(group, work, None, False) is None
    assert calling.finish(group, COMPLETED, None, False) is None
    assert ended == [True, True]


def test_a_call_that_fails_is_noted_as_broken() -> None:
    told: list[BaseException] = []
    group: Any = SimpleNamespace(trail=SimpleNamespace(broken=told.append))
    error = ValueError("the caller's mistake")
    calling.failed(group, error)
    assert told == [error]
    calling.failed(None, error)
    assert told == [error]


def test_results_are_put_back_with_what_lies_between_fields() -> None:
    dtype = np.dtype([("x", "i1"), ("y", ">f8")], align=True)
    for kind in (dtype, np.dtype("f8")):
        own, copy = np.zeros((2, 3), kind).T, np.zeros((3, 2), kind)
        copy.view(np.uint8)[...] = np.arange(copy.nbytes).reshape(3, -1)
        ordered = np.zeros(2, kind)
        assert calling.put_back(COMPLETED, [ordered], [ordered]) is COMPLETED
        assert calling.put_back(COMPLETED, [ordered, own], [ordered, copy]).wait()
        assert own[1, 1].tobytes() == copy[1, 1].tobytes()
        assert own[2, 0].tobytes() == copy[2, 0].tobytes()


def public_call(group: Any, error: BaseException) -> None:
    try:
        raise error
    except BaseException as caught:
        calling.broken(group, caught)
        raise
