"""What observes the beginnings and ends of groups: found by entry points, and the same on all ranks."""

from __future__ import annotations

import logging
import sys
import threading
from types import SimpleNamespace

import numpy as np
import pytest
from tests.threads import run_local

import rankwise as dist
from rankwise.basics.recording import SilentRecorder
from rankwise.groups import observers
from rankwise.groups.world import current
from rankwise_local import local_world


def observed_by(monkeypatch: pytest.MonkeyPatch, *points: tuple[str, str]) -> None:
    monkeypatch.setattr(observers, "_observers", {})
    monkeypatch.setattr(observers, "_installed", lambda: list(points))


def total() -> float:
    array = np.ones(2)
    dist.all_reduce(array)
    return float(array[0])


def test_an_observer_is_told_of_the_beginning_and_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    told: list[str] = []
    observer = SimpleNamespace(
        begin=lambda world, rank, ranks: told.append(f"begin {rank} of {ranks}"),
        start=lambda world: told.append(f"start {world.default.group_desc}"),
        stop=lambda world, reason: told.append(f"stop, {reason}"),
    )
    monkeypatch.setitem(sys.modules, "an_observer", observer)  # type: ignore[arg-type]
    observed_by(monkeypatch, ("mine", "an_observer"))
    with local_world(1) as ranks:
        assert ranks.run(total) == [1.0]
        assert told == ["begin 0 of (0,)", "start default"]
    assert told[2:] == ["stop, the groups were destroyed"]
    assert observers.names() == ["mine"]


def test_groups_begin_where_there_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    observed_by(monkeypatch)
    assert run_local(3, total) == [3.0, 3.0, 3.0]
    assert observers.names() == []


def numbered() -> list[str]:
    array = np.ones(2)
    works = [dist.all_reduce(array, async_op=True) for _ in range(2)]
    works += [dist.irecv(array, 1 - dist.get_rank()), dist.isend(array, 1 - dist.get_rank())]
    for work in works:
        work.wait()
    dist.monitored_barrier()  # the other rank has waited, too
    recorder, group = current().recorder, dist.group.WORLD
    assert isinstance(recorder, SilentRecorder)
    assert [recorder.entries(), recorder.trails(), list(group.trail.totals())] == [[], [], []]
    assert group.trail.marks() == (None, None, None, None)
    group.abort("at last")
    assert "GroupAbortedError" in group.trail.failure
    with pytest.raises(dist.GroupAbortedError):
        dist.barrier()
    return [repr(work) for work in works]


def test_where_nobody_reads_what_is_noted_works_have_their_numbers_all_the_same(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    observed_by(monkeypatch)
    monkeypatch.setattr("rankwise.basics.native.module", lambda: None)
    told = run_local(2, numbered)[0]
    named = ("all_reduce, number 0 ", "all_reduce, number 1 ", "irecv, number 0,", "isend, number 1,")
    assert all(name in text for name, text in zip(named, told, strict=True)), told


@pytest.mark.parametrize("value", ["no_module_of_this_name", "sys:no_such_name"])
def test_groups_begin_without_one_that_cannot_be_loaded(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, value: str
) -> None:
    observed_by(monkeypatch, ("broken", value))
    with caplog.at_level(logging.WARNING, "rankwise"):
        assert run_local(1, total) == [1.0]
    assert f"nothing is watched by broken ({value}): it cannot be loaded: " in caplog.text
    assert observers.names() == []


def test_ranks_that_are_not_watched_alike_make_no_group(monkeypatch: pytest.MonkeyPatch) -> None:
    """A rank that tells nothing of itself would be taken for a hung one."""
    first = threading.Lock()
    monkeypatch.setattr(observers, "names", lambda: ["watch"] if first.acquire(blocking=False) else [])
    with pytest.raises(dist.RendezvousError, match=r"watched by is \[('watch')?\] for rank \d"), local_world(2):
        pass
