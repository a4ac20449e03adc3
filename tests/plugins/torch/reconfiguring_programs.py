"""What the ranks of `test_reconfiguring.py` do."""

from datetime import timedelta
from types import SimpleNamespace

import pytest
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

import rankwise
import rankwise_torch


class Team:
    """A rank that has exchanged handles with the others."""

    def __init__(self, store, rank, size):
        self.rank, self.group = rank, dist.group.WORLD
        assert (dist.get_rank(), dist.get_world_size()) == (-1, 0)
        assert self.group.supports_reconfigure
        store.set(f"handle of {rank}", self.group.get_reconfigure_handle())
        self.handles = [store.get(f"handle of {each}").decode() for each in range(size)]

    def asked(self, uuid, members, **more):
        """Ask the group itself, or by torch's helper where torch has one."""
        terms = {"uuid": uuid, "handles": [self.handles[each] for each in members], **more}
        if hasattr(dist, "_reconfigure"):
            return dist._reconfigure(**terms)
        return self.group.reconfigure(SimpleNamespace(**{"timeout": None, "hints": {}, **terms}))

    def become(self, uuid, *members):
        """Make the group one of some ranks, in this order, and train on it; nothing on other ranks."""
        if self.rank not in members:
            return
        assert self.asked(uuid, members).wait()
        assert dist.group.WORLD is self.group
        assert (dist.get_rank(), dist.get_world_size()) == (members.index(self.rank), len(members))
        assert dist.get_process_group_ranks(self.group) == [*range(len(members))]
        found = [None] * len(members)
        dist.all_gather_object(found, self.rank)
        assert found == [*members]
        model = DistributedDataParallel(torch.nn.Linear(2, 1, bias=False))
        model(torch.full((1, 2), float(self.rank))).sum().backward()
        assert torch.allclose(model.module.weight.grad, torch.tensor(sum(members) / len(members)))


def shapes(rank, size, place):
    """Leave out a rank, take it back, and fail in between."""
    store = dist.FileStore(place, -1)
    rankwise_torch.init_reconfigurable("gloo", store=store, rank=rank, world_size=size, timeout=30)
    team = Team(store, rank, size)
    team.become(1, 0, 1, 2)
    team.become(2, 2, 0)
    team.become(3, 1, 2, 0)
    work = team.asked(3, (1, 2, 0))
    with pytest.raises(dist.DistError, match="already used"):
        work.wait()
    dist.barrier()  # nothing was given up
    if rank < 2:
        with pytest.raises(dist.DistError, match=r"timed out.* rank 0 of 3"):
            team.asked(4, (2, 1, 0), timeout=timedelta(seconds=0.5)).wait()
    dist.barrier()
    with pytest.raises(ValueError, match="know no hints"):
        team.asked(5, (2, 1, 0), hints={"key": "value"})
    assert rankwise.reconfigure("by rankwise", set(team.handles)).wait()
    part = dist.new_group([0, 1], use_local_synchronization=True)
    is_in_part = dist.get_rank() < 2
    if is_in_part:
        dist.barrier(part)
    team.become(6, 0, 1, 2)
    if is_in_part:
        with pytest.raises(ValueError, match="make it again"):
            dist.barrier(part)
    dist.destroy_process_group()
    assert not rankwise.is_initialized()


def by_torchs_word(rank, size, place):
    """Make the group as torch 2.14 asks for it; in an older one, with what that would ask."""
    store = dist.FileStore(place, -1)
    if hasattr(dist, "_reconfigure"):
        place = {"store": store, "rank": rank, "world_size": size}
        dist.init_process_group("rankwise", enable_reconfigure=True, **place)
        team = Team(store, rank, size)
        team.become(1, *range(size))
        dist.destroy_process_group()
        return
    from rankwise_torch.creation import create

    asked = {"store": store, "group_rank": rank, "group_size": size, "timeout": timedelta(seconds=30)}
    group = create("rankwise", SimpleNamespace(enable_reconfigure=True, **asked))
    assert group.supports_reconfigure
    store.set(f"handle of {rank}", group.get_reconfigure_handle())
    handles = [store.get(f"handle of {each}").decode() for each in range(size)]
    assert group.reconfigure(SimpleNamespace(uuid=1, handles=handles, timeout=None)).wait()
    tensor = torch.ones(1)
    group.allreduce([tensor]).wait()
    assert (tensor.item(), group.rank(), group.size()) == (size, rank, size)
    group.shutdown()


def others_do_not(rank, size):
    """A group that was not made for it says so, and its errors are left as they are."""
    group = dist.group.WORLD
    assert not group.supports_reconfigure
    with pytest.raises(ValueError, match="enable_reconfigure"):
        group.get_reconfigure_handle()
    with pytest.raises(ValueError, match="torch's default group is already there"):
        rankwise_torch.init_reconfigurable("gloo")
    with pytest.raises(RuntimeError, match="another"), rankwise_torch.errors_of_ranks():
        raise RuntimeError("another")
    if rank == 0:
        group.abort()
    with pytest.raises(rankwise.DistError), rankwise_torch.errors_of_ranks():
        DistributedDataParallel(torch.nn.Linear(2, 1))
    with pytest.raises(rankwise.DistError, match="abort"), rankwise_torch.errors_of_ranks():
        raise RuntimeError("as C++ says it")
