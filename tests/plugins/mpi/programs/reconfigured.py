"""A default group that is made of other processes of the job again and again, over the store that MPI brings."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable

import numpy as np
import pytest

import rankwise as dist
import rankwise_mpi
from rankwise_mpi.process.process import process

rank, size = process().rank, process().size
_TIMES = 20


class Team:
    """This process and the handles of all."""

    def __init__(self, store: dist.Store | None = None) -> None:
        place = {} if store is None else {"store": store, "rank": rank, "world_size": size}
        dist.init_process_group("mpi", timeout=20, enable_reconfigure=True, **place)
        self.store = dist.PrefixStore("handles", dist.group.WORLD.world.place.store)
        self.store.set(f"{rank}", dist.get_reconfigure_handle())
        self.handles = [self.store.get(f"{each}").decode() for each in range(size)]

    def become(self, uuid: str, *members: int) -> None:
        """Have the default group be one of these ranks of MPI, and see that it is; nothing on other ranks."""
        if rank in members:
            assert dist.reconfigure(uuid, [self.handles[each] for each in members]).wait()
            found: list[object] = [None for _ in members]
            dist.all_gather_object(found, rank)
            assert found == [*members], found


def shapes() -> None:
    """Subgroups and communicators are of the processes that the members' new names mean; nothing is left behind."""
    from mpi4py import MPI  # here, because importing it initialises MPI in its own way

    team = Team()
    team.become("all", 0, 1, 2)
    assert dist.get_rank() == rank
    for turn in range(_TIMES):
        team.become(f"pair {turn}", 2, 1)
        team.become(f"alone {turn}, {rank}", rank)
        team.become(f"all, moved {turn}", 1, 2, 0)
    assert len(process().retired) == 0
    pair = dist.new_group([0, 1])  # these are 1 and 2 of MPI
    if rank:
        found: list[object] = [None, None]
        dist.all_gather_object(found, rank, group=pair)
        assert found == [1, 2], found
        comm = rankwise_mpi.comm_of(pair)
        assert comm.allgather(rank) == [1, 2]
        assert dist.get_process_group_ranks(rankwise_mpi.group_from_comm(comm)) == [0, 1]
        comm.Free()
    whole = rankwise_mpi.group_from_comm(MPI.COMM_WORLD)
    assert dist.get_process_group_ranks(whole) == [2, 0, 1]
    dist.barrier(whole)
    team.become("the first two", 0, 1)
    if rank < 2:
        with pytest.raises(ValueError, match="rank 2 of 'MPI_COMM_WORLD' is not in the default group"):
            rankwise_mpi.group_from_comm(MPI.COMM_WORLD)
        groups = 2 + 2 * rank  # the default one and the whole, on rank 1 the pair and that of its communicator too
        assert len(process().retired) == groups  # rank 2 may still use them
    dist.destroy_process_group()


def left_out() -> None:
    """What a process sends that does not know that it is left out reaches nobody."""
    team = Team()
    team.become("all", 0, 1, 2)
    for turn in range(_TIMES):
        team.become(f"pair {turn}", 0, 1)
        if rank == 2:
            team.store.get(f"they are a pair {turn}")
            dist.isend(np.full(1, 99), 0)
            team.store.set(f"sent {turn}", "")
        else:
            if rank == 0:
                team.store.set(f"they are a pair {turn}", "")
            team.store.get(f"sent {turn}")
            one_sends_to_the_first(turn)
        team.become(f"all {turn}", 2, 0, 1)
        one_sends_to_the_first(turn)
    dist.destroy_process_group()


def one_sends_to_the_first(turn: int) -> None:
    """Have the last rank send a message to rank 0, which takes one of any sender."""
    if dist.get_rank() == dist.get_world_size() - 1:
        dist.send(np.full(1, turn), 0)
    elif dist.get_rank() == 0:
        word = np.zeros(1, int)
        assert dist.recv(word) == dist.get_world_size() - 1
        assert word[0] == turn, word


def of_two_jobs() -> None:
    """A process of another job of MPI is no member."""
    job, path = sys.argv[2:]
    store = dist.FileStore(path)
    dist.init_process_group("mpi", store=store, rank=0, world_size=1, timeout=20, enable_reconfigure=True)
    assert dist.reconfigure(f"job {job} alone", [dist.get_reconfigure_handle()]).wait()
    store.set(f"handle of {job}", dist.get_reconfigure_handle())
    handles = [store.get(f"handle of {each}").decode() for each in ("one", "two")]
    with pytest.raises(ValueError, match="the handles are of processes of several jobs of mpi, which cannot meet"):
        dist.reconfigure("both", handles)
    assert (dist.get_rank(), dist.get_world_size()) == (0, 1)
    dist.barrier()
    dist.destroy_process_group()
    store.set(f"{job} has ended", "")
    store.wait([f"{each} has ended" for each in ("one", "two")])
    store.close()


def without_a_store() -> None:
    """Below MPI_THREAD_MULTIPLE the program gives the store."""
    with pytest.raises(ValueError, match=r"has no store here .* give the store"):
        dist.init_process_group("mpi", timeout=20, enable_reconfigure=True)
    store = dist.FileStore(sys.argv[2])
    team = Team(store)
    team.become("all", 0, 1)
    team.become("turned", 1, 0)
    team.become(f"{rank} alone", rank)
    team.become("again", 0, 1)
    dist.destroy_process_group()
    store.close()


def epochs() -> None:
    """Elastic jobs shrink and grow among the processes of one job."""
    dist.init_process_group("mpi", timeout=20, enable_reconfigure=True)
    assert json.loads(dist.get_reconfigure_handle())["rank"] == rank
    assert dist.elastic.regroup().size == 3
    state = dist.elastic.State(total=np.zeros(1), step=0)
    state.sync()
    epoch = dist.elastic.regroup(max_size=2)
    if rank < 2:  # rank 2 waits until there is room
        assert (epoch.number, epoch.rank, epoch.size) == (2, rank, 2)
        state.sync()
        dist.all_reduce(state.total)
        state.total += 1
        state.step += 1
        state.commit()
        epoch = dist.elastic.regroup(max_size=3)
    assert (epoch.number, epoch.rank, epoch.size) == (3, rank, 3)
    state.sync()
    assert (state.total[0], state.step) == (1, 1), (state.total, state.step)
    dist.all_reduce(state.total)
    assert state.total[0] == 3
    dist.destroy_process_group()


if __name__ == "__main__":
    ways: list[Callable[[], None]] = [shapes, left_out, of_two_jobs, without_a_store, epochs]
    {way.__name__: way for way in ways}[sys.argv[1]]()
    print("fine", flush=True)
