"""Ranks on Dask's workers: all at once or not at all, whatever the workers do otherwise, and told of what happens."""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from collections.abc import Callable
from typing import Any

import cloudpickle
import dask.array as da
import numpy as np
import pytest
from distributed import Client, Event, LocalCluster, wait

import rankwise as dist
import rankwise_dask

# Workers know nothing of this module.
cloudpickle.register_pickle_by_value(sys.modules[__name__])

#: Dask leaves some of its own sockets to the garbage collector.
pytestmark = [
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]

PATIENCE_S = 30.0


def total(group: dist.ProcessGroup, *more: float) -> float:
    """Return what all ranks have in the end."""
    array = np.full(3, dist.get_rank(group) + 1.0 + sum(more))
    dist.all_reduce(array, group=group)
    return float(array[0])


def waits(group: dist.ProcessGroup, begun: str) -> None:
    """Say that the ranks have begun, and wait for one that never comes."""
    dist.barrier(group=group)
    if dist.get_rank(group) == 0:
        Event(begun).set()
        dist.recv(np.ones(1), src=1, group=group)
    dist.recv(np.ones(1), src=0, group=group)


def addresses(client: Client) -> list[str]:
    """Return where the workers are."""
    return list(client.scheduler_info(n_workers=-1)["workers"])


def inside(client: Client) -> dict[str, Any]:
    """Return for each worker its threads and descriptors, and what is left of gangs."""

    def count() -> tuple[list[str], int, int]:
        from rankwise_dask import seats

        names = [thread.name for thread in threading.enumerate() if "rankwise" in thread.name]
        return names, len(os.listdir("/proc/self/fd")), len(seats._seats)

    return client.run(count)


def left_on_scheduler(client: Client) -> int:
    """Return how many gangs the scheduler knows."""

    def count(dask_scheduler: Any) -> int:
        return len(dask_scheduler.plugins["rankwise"].orders)

    return int(client.run_on_scheduler(count))


def no_seats(client: Client) -> bool:
    """Tell whether no worker keeps a seat."""
    return not any(seats for _, _, seats in inside(client).values())


def until(condition: Callable[[], object]) -> None:
    """Wait until a condition holds."""
    deadline = time.monotonic() + PATIENCE_S
    while not condition():
        assert time.monotonic() < deadline, "it has not come about"
        time.sleep(0.02)


# ---------------------------------------------------------------------- where ranks run


def test_one_rank_a_worker_and_results_in_their_order(client: Client) -> None:
    assert rankwise_dask.run(client, total) == [10.0] * 4
    assert rankwise_dask.run(client, lambda group: dist.get_rank(group)) == [0, 1, 2, 3]
    assert rankwise_dask.run(client, total, 1.0, workers=2) == [5.0] * 2
    assert left_on_scheduler(client) == 0


def test_chosen_workers_have_the_ranks_in_the_order_given(client: Client) -> None:
    chosen, pids = addresses(client)[:3][::-1], client.run(os.getpid)
    expected = [pids[worker] for worker in chosen]
    assert rankwise_dask.run(client, lambda group: os.getpid(), workers=chosen) == expected
    names = [client.scheduler_info(n_workers=-1)["workers"][worker]["name"] for worker in chosen]
    assert rankwise_dask.run(client, lambda group: os.getpid(), workers=names) == expected


@pytest.mark.parametrize(
    ("workers", "words"),
    [
        (5, "5 workers are wanted, and the cluster has 4"),
        (["tcp://127.0.0.1:1"], "no worker tcp://127.0.0.1:1 is there"),
    ],
)
def test_workers_that_do_not_come_are_named(client: Client, workers: Any, words: str) -> None:
    with pytest.raises(RuntimeError, match=words):
        rankwise_dask.run(client, total, workers=workers, placement_timeout=0.2)
    assert left_on_scheduler(client) == 0
    assert no_seats(client)


def test_no_rank_begins_where_one_worker_keeps_no_seat(client: Client) -> None:
    def broken() -> None:
        """Have a worker refuse, as one would that has no memory left."""
        from rankwise_dask import seats

        seats.kept, seats.Seat = seats.Seat, None

    def mended() -> None:
        from rankwise_dask import seats

        seats.Seat = seats.kept

    client.run(broken, workers=addresses(client)[3:])
    try:
        with pytest.raises(RuntimeError, match=r"1 of 4 workers keep no seat.*not callable"):
            rankwise_dask.run(client, lambda group: Event("it began").set())
    finally:
        client.run(mended, workers=addresses(client)[3:])
    assert not Event("it began").is_set()
    assert no_seats(client)


def test_a_worker_named_twice_is_refused(client: Client) -> None:
    address = addresses(client)[0]
    name = client.scheduler_info(n_workers=-1)["workers"][address]["name"]
    for twice in ([address, address], [address, name]):
        with pytest.raises(ValueError, match="named twice"):
            rankwise_dask.run(client, total, workers=twice)


def test_a_function_may_end_its_group_itself(client: Client) -> None:
    def ends(group: dist.ProcessGroup) -> float:
        found = total(group)
        dist.destroy_process_group(group)
        return found

    assert rankwise_dask.run(client, ends) == [10.0] * 4


def test_several_workers_of_one_process_have_a_rank_each() -> None:
    with (
        LocalCluster(n_workers=2, processes=False, threads_per_worker=1, dashboard_address=":0") as cluster,
        Client(cluster) as client,
    ):
        assert rankwise_dask.run(client, total) == [3.0, 3.0]


def test_an_asynchronous_client_is_refused() -> None:
    class Pretender:
        asynchronous = True

    with pytest.raises(TypeError, match="not asynchronous"):
        rankwise_dask.start(Pretender(), total)


# ---------------------------------------------------------------------- what else the workers do


def test_busy_workers_are_no_obstacle(client: Client) -> None:
    free = Event("the tasks may end")
    tasks = client.map(lambda _: Event("the tasks may end").wait(PATIENCE_S), range(8), pure=False)
    until(lambda: all(client.processing().values()))
    assert rankwise_dask.run(client, total) == [10.0] * 4
    assert not any(task.done() for task in tasks)
    free.set()
    client.gather(tasks)


def test_gangs_on_the_same_workers_do_not_hold_each_other_up(client: Client) -> None:
    """Each waits for the other: both run at once, though a worker has one thread."""

    def meets(group: dist.ProcessGroup, mine: str, other: str) -> float:
        Event(mine).set()
        assert Event(other).wait(PATIENCE_S)
        return total(group)

    chosen = addresses(client)
    for turn in range(3):
        names = f"a{turn}", f"b{turn}"
        one = rankwise_dask.start(client, meets, *names, workers=chosen)
        other = rankwise_dask.start(client, meets, *names[::-1], workers=chosen[::-1])
        assert one.result(PATIENCE_S) == other.result(PATIENCE_S) == [10.0] * 4


def test_the_cluster_goes_on_while_ranks_run(client: Client) -> None:
    gang = rankwise_dask.start(client, waits, "they wait")
    assert Event("they wait").wait(PATIENCE_S)
    assert client.gather(client.map(lambda number: number + 1, range(20))) == list(range(1, 21))
    gang.cancel()
    with pytest.raises(dist.GroupAbortedError):
        gang.result(PATIENCE_S)


# ---------------------------------------------------------------------- how it ends


def test_a_ranks_own_error_is_raised_with_its_traceback(client: Client) -> None:
    def fails(group: dist.ProcessGroup) -> None:
        if dist.get_rank(group) == 2:
            raise KeyError("mine")
        dist.barrier(group=group)

    began = time.monotonic()
    with pytest.raises(KeyError, match="mine") as caught:
        rankwise_dask.run(client, fails)
    assert time.monotonic() - began < PATIENCE_S / 2
    assert "on rank 2:" in str(caught.value.__cause__)
    assert "in fails" in str(caught.value.__cause__)  # some versions of cloudpickle take the file's name away
    assert rankwise_dask.run(client, total) == [10.0] * 4


def test_an_error_that_cannot_be_pickled_is_told_by_its_text(client: Client) -> None:
    class OddError(Exception):
        def __reduce__(self) -> Any:
            raise TypeError("no")

    def fails(group: dist.ProcessGroup) -> None:
        raise OddError("1 and 2")

    with pytest.raises(RuntimeError, match="OddError: 1 and 2"):
        rankwise_dask.run(client, fails)


def test_a_cancelled_gang_ends_on_all_workers(client: Client) -> None:
    gang = rankwise_dask.start(client, waits, "cancelled soon")
    assert Event("cancelled soon").wait(PATIENCE_S)
    assert not gang.done()
    with pytest.raises(TimeoutError):
        gang.result(0.01)
    gang.cancel("nobody wants it")
    with pytest.raises(dist.GroupAbortedError, match="nobody wants it"):
        gang.result(PATIENCE_S)
    gang.cancel()  # which is nothing now
    assert rankwise_dask.run(client, total) == [10.0] * 4


@pytest.mark.parametrize("lost", [0, 2])
def test_a_killed_worker_is_told_and_the_cluster_goes_on(client: Client, lost: int) -> None:
    def dies(group: dist.ProcessGroup) -> None:
        dist.barrier(group=group)
        if dist.get_rank(group) == lost:
            os.kill(os.getpid(), signal.SIGKILL)
        dist.barrier(group=group)

    before = addresses(client)
    with pytest.raises(dist.PeerDiedError) as caught:
        rankwise_dask.run(client, dies)
    assert caught.value.rank == lost
    until(lambda: len(addresses(client)) == 4 and addresses(client) != before)
    assert rankwise_dask.run(client, total) == [10.0] * 4
    assert left_on_scheduler(client) == 0


def test_the_schedulers_word_reaches_the_ranks(client: Client) -> None:
    """A worker that leaves the cluster though its process lives: nobody else would tell the others."""

    def stays(group: dist.ProcessGroup) -> None:
        dist.barrier(group=group)
        if dist.get_rank(group) == 3:
            Event("it may go").wait(PATIENCE_S)
            return
        Event(f"{dist.get_rank(group)} stays").set()
        try:
            dist.recv(np.ones(1), src=3, group=group)
        finally:
            Event(f"{dist.get_rank(group)} was told").set()

    chosen = addresses(client)

    def part(dask_scheduler: Any) -> None:
        dask_scheduler.plugins["rankwise"].remove_worker(dask_scheduler, chosen[3])

    gang = rankwise_dask.start(client, stays, workers=chosen)
    assert all(Event(f"{rank} stays").wait(PATIENCE_S) for rank in range(3))
    client.run_on_scheduler(part)
    assert all(Event(f"{rank} was told").wait(PATIENCE_S) for rank in range(3))
    Event("it may go").set()
    with pytest.raises(dist.PeerDiedError, match="Dask has lost its worker") as caught:
        gang.result(4 * PATIENCE_S)
    assert caught.value.rank == 3


def test_nothing_is_tried_again_unless_asked(client: Client) -> None:
    def counts(group: dist.ProcessGroup, name: str) -> int:
        if dist.get_rank(group) == 0:
            times = 1 + sum(Event(f"{name} {n}").is_set() for n in range(3))
            Event(f"{name} {times - 1}").set()
            if times < 3:
                raise OSError("not yet")
        dist.barrier(group=group)
        return dist.get_rank(group)

    with pytest.raises(OSError, match="not yet"):
        rankwise_dask.run(client, counts, "once")
    assert not Event("once 1").is_set()
    assert rankwise_dask.run(client, counts, "thrice", retries=2) == [0, 1, 2, 3]


def test_a_client_that_goes_leaves_no_ranks_behind(cluster: LocalCluster, client: Client) -> None:
    with Client(cluster, set_as_default=False) as other:
        gang = rankwise_dask.start(other, waits, "its client goes")
        assert Event("its client goes", client=client).wait(PATIENCE_S)
        assert left_on_scheduler(client) == 1
    with pytest.raises(Exception):  # noqa: B017, PT011 - what Dask says of a client that is closed is its own
        gang.result(PATIENCE_S)
    until(lambda: left_on_scheduler(client) == 0)
    until(lambda: no_seats(client))


def test_gangs_leave_nothing_behind(client: Client) -> None:
    for _ in range(5):
        rankwise_dask.run(client, total)
    before = inside(client)
    for _ in range(15):
        rankwise_dask.run(client, total)
    until(lambda: not any(names for names, _, _ in inside(client).values()))
    after = inside(client)
    assert all(after[worker][1] <= before[worker][1] + 2 for worker in before), (before, after)
    assert not [thread for thread in threading.enumerate() if thread.name == "rankwise gang"]


def test_who_asks_dask_is_told_of_gangs(client: Client) -> None:
    begun = len(client.get_events("rankwise"))
    rankwise_dask.run(client, total)
    assert [event["action"] for _, event in client.get_events("rankwise")[begun:]] == ["begins", "ends"]
    metrics = client.run(lambda dask_worker: list(dask_worker.metrics))
    assert all("rankwise ranks" in names for names in metrics.values())


# ---------------------------------------------------------------------- Dask arrays


def centred(group: dist.ProcessGroup, chunks: list[np.ndarray[Any, Any]]) -> list[np.ndarray[Any, Any]]:
    """Take the mean of all from each number."""
    sums = np.array([sum(chunk.sum() for chunk in chunks), sum(chunk.size for chunk in chunks)], float)
    dist.all_reduce(sums, group=group)
    return [chunk - sums[0] / sums[1] for chunk in chunks]


@pytest.mark.parametrize(
    "array",
    [
        da.arange(16, chunks=4),
        da.arange(7, chunks=3),
        da.arange(24, chunks=5).reshape(4, 6).rechunk((2, 3)),
        da.ones((2, 3, 4), chunks=1),
    ],
)
def test_chunks_are_the_ranks_arrays_and_become_an_array_again(client: Client, array: Any) -> None:
    made = rankwise_dask.map_ranks(centred, array, client=client)
    assert made.chunks == array.chunks
    assert made.dtype == np.float64
    np.testing.assert_allclose(made.compute(), (array - array.mean()).compute())
    assert (made + 1).sum().compute() == pytest.approx(array.size)


def test_chunks_are_not_copied_and_not_written_to(client: Client) -> None:
    array = client.persist(da.arange(8, chunks=2))
    wait(array)

    def where(dask_worker: Any) -> list[int]:
        return [value.ctypes.data for value in dask_worker.data.values() if isinstance(value, np.ndarray)]

    def look(group: Any, chunks: list[np.ndarray[Any, Any]]) -> list[np.ndarray[Any, Any]]:
        assert not any(chunk.flags.writeable for chunk in chunks)
        return [np.full_like(chunk, chunk.ctypes.data) for chunk in chunks]

    at = {address for found in client.run(where).values() for address in found}
    assert set(rankwise_dask.map_ranks(look, array, client=client).compute().tolist()) <= at


@pytest.mark.parametrize(
    ("function", "error", "words"),
    [
        (lambda group, chunks: [chunk[:1] for chunk in chunks], ValueError, "returned"),
        (lambda group, chunks: [], ValueError, "returned"),
        (
            lambda group, chunks: [c.astype("f4" if dist.get_rank(group) else "f8") for c in chunks],
            ValueError,
            "float32",
        ),
        (lambda group, chunks: 1 / 0, ZeroDivisionError, "division"),
    ],
)
def test_what_makes_no_array_is_an_error(client: Client, function: Any, error: type[Exception], words: str) -> None:
    array = da.from_array(np.arange(8), chunks=2)
    with pytest.raises(error, match=words):
        rankwise_dask.map_ranks(function, array, client=client)
    assert no_seats(client)
