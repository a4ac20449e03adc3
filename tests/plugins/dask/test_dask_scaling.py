"""Clusters that grow and shrink under gangs: workers with ranks are busy for Dask, missing ones are waited for."""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import cloudpickle
import numpy as np
import pytest
from distributed import Client, Event, LocalCluster, get_worker

import rankwise as dist
import rankwise_dask
from rankwise_dask import replies

# Workers know nothing of this module.
cloudpickle.register_pickle_by_value(sys.modules[__name__])

#: Dask leaves some of its own sockets to the garbage collector.
pytestmark = [
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]

PATIENCE_S = 60.0


def total(group: dist.ProcessGroup) -> float:
    """Return what all ranks have in the end."""
    array = np.ones(3)
    dist.all_reduce(array, group=group)
    return float(array[0])


def works(group: dist.ProcessGroup, name: str) -> float:
    """Say that the ranks have begun, and work until told otherwise."""
    dist.barrier(group=group)
    Event(f"{name} has begun").set()
    assert Event(f"{name} may end").wait(PATIENCE_S)
    return total(group)


def until(condition: Callable[[], object]) -> None:
    """Wait until a condition holds."""
    deadline = time.monotonic() + PATIENCE_S
    while not condition():
        assert time.monotonic() < deadline, "it has not come about"
        time.sleep(0.02)


def on_scheduler(client: Client, ask: Callable[[Any], Any]) -> Any:
    """Return what a scheduler's methods tell."""

    def call(dask_scheduler: Any) -> Any:
        return ask(dask_scheduler)

    return client.run_on_scheduler(call)


@pytest.fixture
def small(request: pytest.FixtureRequest) -> Iterator[tuple[LocalCluster, Client]]:
    """Return a cluster of this test's own, with as many workers as it asks for, and a client."""
    with (
        LocalCluster(
            n_workers=request.param,
            threads_per_worker=1,
            dashboard_address=":0",
            env={"RANKWISE_HEARTBEAT_LIMIT_S": "2"},
        ) as cluster,
        Client(cluster) as client,
    ):
        client.wait_for_workers(request.param, timeout=120) if request.param else None
        yield cluster, client


def test_workers_with_ranks_are_busy_for_dask(client: Client) -> None:
    every = list(client.scheduler_info(n_workers=-1)["workers"])
    gang = rankwise_dask.start(client, works, "busy", workers=every[:2])
    assert Event("busy has begun").wait(PATIENCE_S)
    closable = on_scheduler(client, lambda scheduler: scheduler.workers_to_close(n=4))
    assert set(closable) == set(every[2:])
    assert not set(every[:2]) & set(on_scheduler(client, lambda scheduler: scheduler.workers_to_close(memory_ratio=0)))
    on_scheduler(client, lambda scheduler: setattr(scheduler, "idle_since", 1.0))
    until(lambda: on_scheduler(client, lambda scheduler: scheduler.idle_since) != 1.0)
    Event("busy may end").set()
    assert gang.result(PATIENCE_S) == [2.0, 2.0]
    assert len(on_scheduler(client, lambda scheduler: scheduler.workers_to_close(n=4))) == 4


@pytest.mark.parametrize("small", [3], indirect=True)
def test_an_adaptive_cluster_keeps_the_workers_of_ranks_and_retires_the_others(
    small: tuple[LocalCluster, Client],
) -> None:
    cluster, client = small
    gang = rankwise_dask.start(client, works, "kept", workers=2)
    assert Event("kept has begun").wait(PATIENCE_S)
    cluster.adapt(minimum=0, maximum=3, interval="50ms", wait_count=1)
    until(lambda: len(client.scheduler_info(n_workers=-1)["workers"]) == 2)
    assert client.retire_workers() == {}
    Event("kept may end").set()
    assert gang.result(PATIENCE_S) == [2.0, 2.0]
    until(lambda: not client.scheduler_info(n_workers=-1)["workers"])


@pytest.mark.parametrize("small", [0], indirect=True)
def test_an_adaptive_cluster_grows_for_those_who_wait(small: tuple[LocalCluster, Client]) -> None:
    cluster, client = small
    cluster.adapt(minimum=0, maximum=2, interval="50ms")
    assert rankwise_dask.run(client, total, workers=2) == [2.0, 2.0]


@pytest.mark.parametrize("end", ["cancelled", "the client goes"])
def test_who_waits_for_workers_no_more_asks_for_none(cluster: LocalCluster, client: Client, end: str) -> None:
    wanted = lambda: on_scheduler(client, lambda scheduler: scheduler.adaptive_target())  # noqa: E731
    with Client(cluster, set_as_default=False) as other:
        gang = rankwise_dask.start(other, total, workers=50)
        until(lambda: wanted() == 50)
        if end == "cancelled":
            gang.cancel("there is no use")
            with pytest.raises(dist.GroupAbortedError, match="there is no use"):
                gang.result(PATIENCE_S)
    until(lambda: wanted() < 50)
    with pytest.raises(Exception):  # noqa: B017, PT011 - what Dask says of a client that is closed is its own
        gang.result(PATIENCE_S)


@pytest.mark.parametrize("small", [3], indirect=True)
@pytest.mark.parametrize("workers", [3, [2, 0, 1]])
def test_a_retry_waits_for_the_worker_that_is_started_again(
    small: tuple[LocalCluster, Client], workers: Any, tmp_path: Path
) -> None:
    def dies_once(group: dist.ProcessGroup, mark: Path) -> float:
        dist.barrier(group=group)
        if dist.get_rank(group) == 1 and not mark.exists():
            mark.touch()
            os.kill(os.getpid(), signal.SIGKILL)
        return total(group)

    terms: dict[str, Any] = {"workers": workers, "retries": 1, "placement_timeout": PATIENCE_S}
    assert rankwise_dask.run(small[1], dies_once, tmp_path / "died", **terms) == [3.0] * 3


@pytest.mark.parametrize("small", [2], indirect=True)
def test_the_first_cause_is_told_where_no_worker_comes_again(small: tuple[LocalCluster, Client]) -> None:
    cluster, client = small
    gang = rankwise_dask.start(client, works, "shrunk", workers=2, retries=3, placement_timeout=0.2)
    assert Event("shrunk has begun").wait(PATIENCE_S)
    cluster.scale(1)
    until(lambda: len(client.scheduler_info(n_workers=-1)["workers"]) == 1)
    Event("shrunk may end").set()
    with pytest.raises(dist.PeerDiedError):
        gang.result(PATIENCE_S)


@pytest.mark.parametrize("small", [3], indirect=True)
def test_a_stopped_worker_keeps_nobody_from_the_error(small: tuple[LocalCluster, Client]) -> None:
    def beats(group: dist.ProcessGroup) -> None:
        dist.barrier(group=group)
        Event("all beat").set()
        while True:
            dist.all_reduce(np.ones(3), group=group)
            time.sleep(0.02)

    client = small[1]
    gang = rankwise_dask.start(client, beats, workers=[0, 1, 2])
    assert Event("all beat").wait(PATIENCE_S)
    stopped = next(pid for name, pid in on_workers(client).items() if name == 1)
    os.kill(stopped, signal.SIGSTOP)
    try:
        with pytest.raises(dist.PeerDiedError, match="stopped by a signal") as caught:
            gang.result(PATIENCE_S)
        assert caught.value.rank == 1
    finally:
        os.kill(stopped, signal.SIGCONT)


class Stops:
    """An argument that stops the process which it comes to, if its worker has this name."""

    def __init__(self, name: int) -> None:
        self.name = name

    def __setstate__(self, state: dict[str, Any]) -> None:
        if get_worker().name == state["name"]:
            os.kill(os.getpid(), signal.SIGSTOP)


@pytest.mark.parametrize("small", [3], indirect=True)
@pytest.mark.parametrize("stage", ["before it keeps a seat", "before it has come to the others"])
def test_a_worker_that_is_stopped_before_the_ranks_meet_is_named(
    small: tuple[LocalCluster, Client], monkeypatch: pytest.MonkeyPatch, stage: str
) -> None:
    monkeypatch.setattr(replies, "_SILENT_S", 1.0)
    client = small[1]
    process = on_workers(client)[1]
    began = time.monotonic()
    try:
        if stage == "before it keeps a seat":
            os.kill(process, signal.SIGSTOP)
            with pytest.raises(RuntimeError, match=r"keep no seat: .* is stopped by a signal"):
                rankwise_dask.run(client, total, workers=[0, 1, 2], placement_timeout=0)
        else:
            with pytest.raises(dist.PeerDiedError, match="is stopped by a signal") as caught:
                rankwise_dask.run(client, lambda group, _: total(group), Stops(1), workers=[0, 1, 2])
            assert caught.value.rank == 1
        assert time.monotonic() - began < PATIENCE_S / 2
    finally:
        os.kill(process, signal.SIGCONT)


def on_workers(client: Client) -> dict[Any, int]:
    """Return the process of each worker, by its name."""

    def who(dask_worker: Any) -> tuple[Any, int]:
        return dask_worker.name, os.getpid()

    return dict(client.run(who).values())


def test_a_rank_that_hears_nothing_keeps_nobody_from_the_error(client: Client) -> None:
    def fails(group: dist.ProcessGroup) -> None:
        dist.barrier(group=group)
        if dist.get_rank(group) == 0:
            raise KeyError("mine")
        Event("it may hear").wait(PATIENCE_S)

    began = time.monotonic()
    try:
        with pytest.raises(KeyError, match="mine"):
            rankwise_dask.run(client, fails)
        assert time.monotonic() - began < PATIENCE_S / 2
    finally:
        Event("it may hear").set()
