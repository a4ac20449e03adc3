"""One rank is killed; the others make the default group one of those that are left, and an elastic job goes on."""

from __future__ import annotations

import os
import signal
import sys

import numpy as np
import pytest
from mpi4py import MPI

import rankwise as dist

how, dead = sys.argv[1], int(sys.argv[2])
rank, size = MPI.COMM_WORLD.rank, MPI.COMM_WORLD.size
left = [each for each in range(size) if each != dead]
dist.init_process_group("mpi", timeout=20, enable_reconfigure=True)


def die_once_all_have_come() -> None:
    """Die, once all others have left the call before: MPI may end a barrier in an error if a member dies."""
    if rank == dead:
        for other in left:
            dist.recv(np.zeros(1), src=other)
        os.kill(os.getpid(), signal.SIGKILL)


def until_it_fails() -> None:
    dist.send(np.zeros(1), dst=dead)
    for _ in range(1000):
        dist.all_reduce(np.ones(3))


def reconfigured() -> None:
    store = dist.PrefixStore("handles", dist.group.WORLD.world.place.store)
    store.set(f"{rank}", dist.get_reconfigure_handle())
    handles = [store.get(f"{each}").decode() for each in range(size)]
    dist.reconfigure("all", handles).wait()
    die_once_all_have_come()
    with pytest.raises(dist.PeerDiedError) as caught:
        until_it_fails()
    assert caught.value.rank == dead, caught.value
    # Of a rank on another host nobody knows unless it is told.
    with pytest.raises(dist.PeerDiedError, match=f"rank {dead} .* is gone: it was shot"):
        dist.reconfigure("with it", handles, lost=lambda: {handles[dead]: "it was shot"}).wait()
    for turn, members in enumerate([left, left[::-1], left[1:], left]):
        if rank in members:
            assert dist.reconfigure(f"without it {turn}", [handles[each] for each in members]).wait()
            found: list[object] = [None for _ in members]
            dist.all_gather_object(found, rank)
            assert found == members, found
    pair = dist.new_group([0, 1])
    if dist.get_rank() < 2:
        array = np.full(1000, 1.0)
        dist.all_reduce(array, group=pair)
        assert (array == 2).all()


def elastic() -> None:
    state = dist.elastic.State(total=np.zeros(1), step=0)

    @dist.elastic.run
    def work(state: dist.elastic.State) -> None:
        while state.step < 20:
            if state.step == 5 and dist.get_world_size() == size:
                die_once_all_have_come()
                until_it_fails()
            part = np.ones(1)
            dist.all_reduce(part, dist.ReduceOp.AVG)
            state.total += part
            state.step += 1
            state.commit()

    work(state)
    assert (state.step, state.total[0], dist.get_world_size()) == (20, 20, size - 1)


{"reconfigured": reconfigured, "elastic": elastic}[how]()
print("fine", flush=True)
dist.barrier()
os._exit(0)  # MPI_Finalize would wait for the dead
