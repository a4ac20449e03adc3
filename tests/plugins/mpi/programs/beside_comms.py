"""Groups are made of communicators of mpi4py and the other way round, and used in turns."""

from __future__ import annotations

import numpy as np
import pytest
from mpi4py import MPI

import rankwise as dist
from rankwise_mpi import comm_of, group_from_comm

dist.init_process_group("mpi", timeout=20)
world = MPI.COMM_WORLD
rank, size = world.rank, world.size


def in_turns(group: dist.ProcessGroup, comm: MPI.Intracomm) -> None:
    """Call each in turn, with messages of one tag on their way on both."""
    me, ranks = comm.rank, comm.size
    assert (dist.get_rank(group), dist.get_world_size(group)) == (me, ranks)
    assert dist.get_process_group_ranks(group) == comm.allgather(rank)
    following, before = (me + 1) % ranks, (me - 1) % ranks
    for turn in range(20):
        mine, theirs = np.full(3, me + turn), np.zeros(3, int)
        sending = dist.isend(mine, group=group, group_dst=following, tag=turn)
        other = comm.isend(("mpi4py", me), following, turn)
        assert comm.recv(source=before, tag=turn) == ("mpi4py", before)
        dist.recv(theirs, group=group, group_src=before, tag=turn)
        assert (theirs == before + turn).all()
        sending.wait()
        other.wait()
        total = np.full(2, me)
        dist.all_reduce(total, group=group)
        assert comm.allreduce(me) == total[0] == ranks * (ranks - 1) // 2
        word = comm.bcast(turn if me == turn % ranks else None, root=turn % ranks)
        dist.barrier(group)
        assert word == turn


# Backwards, so that the order of the communicator counts; and a part of the ranks, each part by itself.
for comm in (world, world.Split(0, -rank), world.Split(rank % 2, -rank)):
    group = group_from_comm(comm, group_desc="beside")
    in_turns(group, comm)
    own = comm_of(group)
    assert MPI.Comm.Compare(own, comm) in (MPI.CONGRUENT, MPI.IDENT)
    in_turns(group, own)
    total = np.ones(1)
    work = dist.all_reduce(total, group=group, async_op=True)
    again = comm_of(group)  # behind what was issued
    assert again.allreduce(1) == comm.size
    work.wait()
    assert total == comm.size
    dist.destroy_process_group(group)
    assert own.allreduce(1) == comm.size  # it is the caller's
    for each in (own, again):
        each.Free()
    if comm is not world:
        comm.Free()

whole = comm_of()
assert whole.allgather(rank) == [*range(size)]
whole.Free()
left = dist.new_group([0])
if rank:
    with pytest.raises(ValueError, match="is no group on mpi that this rank is in"):
        comm_of(left)  # type: ignore[arg-type]
dist.destroy_process_group()
print("fine", flush=True)
