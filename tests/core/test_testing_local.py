"""The backend `local` and `local_world`: ranks as threads, with real data and real failures."""

import threading

import numpy as np
import pytest
from tests.threads import at_once, none_left, on_ranks, run_local, within

import rankwise as dist
from rankwise import HashStore
from rankwise.errors import DistBackendError, DistTimeoutError, GroupAbortedError
from rankwise.groups.world import World, current, use
from rankwise_local import local_world

PATIENCE_S = 20.0
LEEWAY_S = 4.0


def total():
    array = np.array([dist.get_rank() + 1.0])
    dist.all_reduce(array)
    return array[0]


def test_each_rank_returns_its_own_result():
    with local_world(4) as ranks:
        assert ranks.size == 4
        assert ranks.run(dist.get_rank) == [0, 1, 2, 3]
        assert ranks.run(lambda a, b: (a, b), 1, 2) == [(1, 2)] * 4


def test_a_world_can_be_run_many_times_and_keeps_its_group():
    with local_world(3) as ranks:
        assert [ranks.run(total) for _ in range(5)] == [[6.0] * 3] * 5
        assert len(set(ranks.run(lambda: dist.group.WORLD.name))) == 1


def test_the_worlds_of_the_ranks_are_not_the_callers():
    before = current()
    assert all(world is not before for world in run_local(2, current))
    assert current() is before
    assert not dist.is_initialized()


def test_the_ranks_see_the_callers_context():
    with local_world(2) as ranks, np.errstate(divide="raise"):
        assert [state["divide"] for state in ranks.run(np.geterr)] == ["raise"] * 2


#: What others may be waiting for when a rank fails.
WAITS = {
    "a message": lambda: dist.recv(np.zeros(1), 1),
    "a group": lambda: dist.new_group([0, 2]),
    "a group of several": lambda: dist.new_group([0, 1, 2], use_local_synchronization=True),
    "a group outside": lambda: dist.ProcessGroup.create(
        store=dist.group.WORLD.store, rank=dist.get_rank(), size=3, name="outside", timeout=PATIENCE_S
    ),
}


@pytest.mark.parametrize("what", WAITS)
def test_the_first_error_comes_home_with_its_rank_and_stops_the_others(what):
    others = []

    def program():
        if dist.get_rank() == 1:
            raise KeyError("lost")
        try:
            WAITS[what]()
        except GroupAbortedError as error:
            others.append(str(error))
            raise

    with within(LEEWAY_S), pytest.raises(KeyError, match="lost") as caught:
        run_local(3, program)
    assert len(others) == 2, others
    if hasattr(caught.value, "__notes__"):
        assert "rank 1" in caught.value.__notes__[0]


def test_after_a_failure_the_next_run_begins_with_a_new_world():
    def broken():
        raise ValueError("no")

    with local_world(2) as ranks:
        with pytest.raises(ValueError, match="no"):
            ranks.run(broken)
        assert ranks.run(total) == [3.0, 3.0]


def test_ranks_that_stand_still_are_named_with_their_place():
    release = threading.Event()

    def stand_still():
        if dist.get_rank() == 1:
            release.wait(PATIENCE_S)

    with local_world(2, timeout=0.5) as ranks:
        with pytest.raises(DistTimeoutError, match=r"rank 1 of 2 did not return") as caught:
            ranks.run(stand_still)
        assert "stand_still" in str(caught.value)
        release.set()
        assert ranks.run(total) == [3.0, 3.0]


def test_a_world_needs_a_rank():
    with pytest.raises(ValueError, match="at least one rank"), local_world(0):
        pass


def test_init_process_group_makes_a_local_world_in_any_threads():
    store = HashStore()

    def rank(number):
        use(World())
        dist.init_process_group("local", store=store, rank=number, world_size=3, timeout=20)
        result = total()
        dist.destroy_process_group()
        return result

    assert at_once(rank, range(3), PATIENCE_S) == [6.0] * 3


@on_ranks(2)
def test_a_longer_message_fails_both_sides_naming_both_sizes():
    if dist.get_rank() == 0:
        work = dist.isend(np.zeros(3, np.uint8), 1)
    else:
        work = dist.irecv(np.zeros(2, np.uint8), 0)
    with pytest.raises(DistBackendError, match=r"3 bytes.*2 bytes"):
        work.wait()


@on_ranks(2)
def test_a_send_after_an_abort_fails_instead_of_waiting_for_ever():
    group = dist.group.WORLD
    if dist.get_rank() == 0:
        group.abort()
    with within(LEEWAY_S), pytest.raises(GroupAbortedError):  # whichever comes first, the abort or the message
        dist.send(np.zeros(1), 1 - dist.get_rank(), timeout=5)


@on_ranks(2)
def test_an_abort_ends_what_all_ranks_wait_for():
    if dist.get_rank() == 0:
        dist.abort_process_group()
    with pytest.raises(GroupAbortedError, match="aborted on rank 0"):
        dist.recv(np.zeros(1), 1 - dist.get_rank())


def test_no_thread_is_left():
    with none_left(PATIENCE_S):
        for _ in range(5):
            run_local(4, lambda: dist.all_reduce(np.zeros(1), async_op=True).wait())
