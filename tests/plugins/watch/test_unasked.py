"""Works that nobody asks: they count as pending for as long as their operations are, and no longer."""

from __future__ import annotations

import gc
import threading
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import pytest
from tests.processes import wait_until
from tests.threads import run_local

import rankwise as dist
from rankwise.basics.recording import Trail
from rankwise.basics.work import BoundWork, FutureWork, Work
from rankwise.errors import DistBackendError
from rankwise.groups.world import current
from rankwise_watch.noting import PythonRecorder
from rankwise_watch.recorder import entries, progress, states

PATIENCE_S = 10.0
KEPT: list[Work] = []

LOOKS: dict[str, Callable[[Work], object]] = {
    "nobody has it": lambda work: None,
    "nobody asks it": KEPT.append,
    "a callback saw it": lambda work: work.add_done_callback(lambda _: None),
    "a future was taken": lambda work: KEPT.append(work.get_future()),  # type: ignore[arg-type]
}


def pending() -> list[str]:
    return [f"{step['op']} #{step['number']}" for step in progress(current().recorder)["default"]["pending"]]


@pytest.mark.parametrize("look", LOOKS.values(), ids=LOOKS)
def test_what_has_ended_is_not_pending_whoever_has_asked(look: Callable[[Work], object]) -> None:
    def program() -> tuple[list[str], list[str]]:
        for _ in range(3):
            look(dist.all_reduce(np.ones(4), async_op=True))  # type: ignore[arg-type]
            look(dist.isend(np.ones(4), 1 - dist.get_rank()))  # type: ignore[arg-type]
            dist.recv(np.ones(4), 1 - dist.get_rank())
        last = dist.all_reduce(np.ones(4), async_op=True)
        assert wait_until(last.is_completed, PATIENCE_S)  # type: ignore[union-attr]
        gc.collect()
        return pending(), states(entries(current().recorder))

    for left, noted in run_local(2, program, timeout=PATIENCE_S):
        assert left == []
        assert set(noted) == {"done"}
    KEPT.clear()


def test_what_stands_still_is_told_by_its_own_name() -> None:
    come = threading.Event()

    def program() -> list[str] | None:
        for _ in range(3):
            dist.all_reduce(np.ones(4), async_op=True)
        dist.barrier()
        if dist.get_rank() == 1:
            assert come.wait(PATIENCE_S)
            dist.broadcast(np.ones(4), 0)
            return None
        work = dist.broadcast(np.ones(4), 0, async_op=True)
        told = pending()
        come.set()
        work.wait()
        return told

    assert run_local(2, program, timeout=PATIENCE_S)[0] == ["broadcast #4"]


class Polled(FutureWork):
    """A work of a backend that makes progress where it is asked, which not just any thread may do."""

    def is_completed(self) -> bool:
        raise AssertionError("the watch has asked it")

    def exception(self) -> BaseException | None:
        assert self.ended, "the watch has asked it"
        return super().exception()


def noted(trail: Trail, inner: FutureWork | None = None) -> Any:
    trail.begin("all_reduce")
    ticket = trail.issued()
    return ticket, None if inner is None else BoundWork(inner, None, (0,), partial(trail.ended, ticket))


def test_a_work_that_only_its_own_threads_may_ask_is_left_alone() -> None:
    recorder = PythonRecorder()
    trail = recorder.trail("dp", "dp", (0, 1))
    _, work = noted(trail, Polled())
    assert states(entries(recorder)) == ["issued"]
    later, _ = noted(trail)
    trail.ended(later)
    assert states(entries(recorder)) == ["done", "done"]  # since those of a group end in their order
    del work


def test_its_end_is_noted_as_soon_as_it_is_known() -> None:
    recorder = PythonRecorder()
    trail = recorder.trail("dp", "dp", (0, 1))
    inners = [Polled(), Polled()]
    kept = [noted(trail, inner) for inner in inners]
    inners[0].succeed()
    inners[1].fail(DistBackendError("broken"))
    assert states(entries(recorder)) == ["done", "failed"]
    del kept


def test_what_has_failed_unseen_is_told_as_failed() -> None:
    recorder = PythonRecorder()
    trail = recorder.trail("dp", "dp", (0, 1))
    inner = FutureWork()
    _, work = noted(trail, inner)
    assert states(entries(recorder)) == ["issued"]
    inner.fail(DistBackendError("broken"))
    assert states(entries(recorder)) == ["failed"]
    del work
