"""What the ranks of `test_groups.py` do."""

import logging.handlers
import time
from datetime import timedelta

import pytest
import torch
import torch.distributed as dist


def reduce_together(group=None):
    """Show that the ranks of a group do."""
    tensor = torch.full((2,), dist.get_rank() + 1.0)
    dist.all_reduce(tensor, group=group)
    assert tensor.eq(sum(rank + 1 for rank in dist.get_process_group_ranks(group))).all()


def shapes(rank, size):
    """Make groups of all shapes, and call on them."""
    world = dist.group.WORLD
    assert (dist.get_backend(), world.size(), world.rank()) == ("rankwise", size, rank)
    for ranks in ([0], [size - 1, 0], list(range(size))):
        group = dist.new_group(ranks)
        if rank not in ranks:
            assert group is dist.GroupMember.NON_GROUP_MEMBER
            continue
        assert dist.get_process_group_ranks(group) == sorted(ranks)
        reduce_together(group)
        dist.broadcast(torch.ones(2), ranks[0], group=group)
        dist.destroy_process_group(group)
    local = dist.new_group([rank], use_local_synchronization=True)
    dist.barrier(local)
    mine, _ = dist.new_subgroups(1)
    assert mine.size() == 1
    reduce_together()


def split(rank, size):
    """Split a group by the method, which torch's own function would only call where there is an accelerator."""
    ranks = [0, size - 1]
    part = dist.group.WORLD.split_group(ranks, group_name="part", group_desc="a part")
    if rank not in ranks:
        assert part is None
        return
    tensor = torch.ones(1)
    part.allreduce([tensor]).wait()
    assert (tensor.item(), part.group_name, part.group_desc) == (2, "part", "a part")
    part.shutdown()


def made_late(rank, size):
    """Come to a group later than its calls may take, as torch's gloo puts up with."""
    if rank == size - 1:
        time.sleep(1.2)
    group = dist.new_group(timeout=timedelta(seconds=1))
    assert group.under.timeout == timedelta(seconds=1)
    dist.barrier(group)
    if rank == 0:
        began = time.monotonic()
        with pytest.raises(dist.DistBackendError, match="timed out"):
            dist.all_reduce(torch.ones(1), group=group)
        assert 0.9 < time.monotonic() - began < 4
    dist.barrier()


def split_by_function(rank, size):
    """Split a group by torch's own function, where that does so without an accelerator."""
    try:
        part = dist.split_group(split_ranks=[[r] for r in range(size)], timeout=timedelta(seconds=20))
    except RuntimeError as error:
        assert torch.__version__ < "2.15", error
        assert "accelerator" in str(error) or "device" in str(error), error
        return
    tensor = torch.full((1,), float(rank))
    dist.all_reduce(tensor, group=part)
    assert (tensor.item(), part.size(), dist.get_process_group_ranks(part)) == (rank, 1, [rank])
    dist.destroy_process_group(part)


def under_gloo(rank, size):
    """Make groups on rankwise below a default group of torch's gloo, and the other way round."""
    for backend in ("rankwise", "gloo", "cpu:rankwise"):
        reduce_together(dist.new_group(backend=backend))


def again(rank, size):
    """Leave the world and come back, in the same store and in others."""
    store = dist.distributed_c10d._get_default_store()
    dist.destroy_process_group()
    for _ in range(3):
        dist.init_process_group("rankwise", store=store, rank=rank, world_size=size)
        reduce_together()
        dist.destroy_process_group()


def facts(rank, size):
    """Ask the group what torch asks groups."""
    world = dist.group.WORLD
    assert world._device_types == [torch.device("cpu")]
    assert world.group_desc == "default_pg"
    assert world.name() == "rankwise"
    assert dist.get_backend_config() == "cpu:rankwise"
    before = world._get_sequence_number_for_group()
    dist.all_reduce(torch.ones(1))
    assert world._get_sequence_number_for_group() == before + 1
    world.set_timeout(timedelta(seconds=33))
    assert world.under.timeout == timedelta(seconds=33)
    assert world._get_backend(torch.device("cpu")) is world
    world.monitored_barrier(timedelta(seconds=30), wait_all_ranks=True)


def not_for_cuda(rank, size):
    """A tensor for which there is no backend is refused in words that say what to do."""
    import torch._lazy.ts_backend

    torch._lazy.ts_backend.init()
    dist.all_reduce(torch.ones(1, device="meta"))  # which has no elements: torch makes nothing of it, as with gloo
    with pytest.raises(TypeError, match="on meta"):
        dist.all_gather([torch.ones(1), torch.ones(1)], torch.ones(1, device="meta"))
    with pytest.raises(RuntimeError, match="cpu:rankwise,cuda:nccl"):
        dist.all_reduce(torch.ones(1, device="lazy"))


def beside(rank, size, place):
    """Serve another kind of device by another backend in the same group, in both orders."""
    from torch.testing._internal.distributed.fake_pg import FakeStore  # noqa: F401 - registers the backend "fake"

    for i, backend in enumerate(("cpu:rankwise,meta:fake", "meta:fake,cpu:rankwise")):
        dist.init_process_group(backend, init_method=f"file://{place}{i}", rank=rank, world_size=size)
        world = dist.group.WORLD
        assert {device.type for device in world._device_types} == {"cpu", "meta"}
        reduce_together()
        dist.all_reduce(torch.ones(2, device="meta"))
        dist.broadcast(torch.ones(2, device="meta"), 0)
        group = dist.new_group([0, 1])
        dist.barrier(group)
        outputs = [torch.empty(1, device="meta") for _ in range(size)]
        dist.all_gather(outputs, torch.empty(1, device="meta"), group=group)
        assert len(dist.distributed_c10d._world.pg_map) == 2
        dist.destroy_process_group()


def as_gloo(rank, size, place):
    """Take the place of gloo: what torch reserves for that name works."""
    import rankwise_torch
    from rankwise_torch.group import RankwiseGroup

    said = logging.handlers.BufferingHandler(100)
    logging.getLogger("rankwise_torch").addHandler(said)
    logging.getLogger("rankwise_torch").setLevel(logging.INFO)
    rankwise_torch.install(as_gloo=True)
    rankwise_torch.install(as_gloo=True)
    assert len(said.buffer) == 1
    dist.init_process_group("gloo", init_method=f"file://{place}", rank=rank, world_size=size)
    assert isinstance(dist.group.WORLD, RankwiseGroup)
    assert dist.get_backend() == "gloo"
    dist.monitored_barrier(timeout=timedelta(seconds=30), wait_all_ranks=True)
    dist.distributed_c10d._set_pg_timeout(timedelta(seconds=17))
    assert dist.group.WORLD.under.timeout == timedelta(seconds=17)
    group = dist.new_group([size - 1], backend="gloo")
    if rank == size - 1:
        assert group.under.ranks == (size - 1,)
    model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(2, 2))
    model(torch.ones(1, 2)).sum().backward()


def aborted(rank, size):
    """Give a group up while others wait in it: all of them hear of it at once."""
    group = dist.new_group()
    began = time.monotonic()
    if rank == 0:
        time.sleep(0.3)  # the others are in the call then, or come to it later and fail as well
        group.abort()
        return
    with pytest.raises(dist.DistBackendError, match="abort"):
        dist.barrier(group)
    assert time.monotonic() - began < 20


def with_secret(rank, size, place):
    """Over sockets, guarded by a secret that was handed out in torch's store."""
    import os

    from rankwise_network import secret

    os.environ["RANKWISE_GLOO_TRANSPORT"] = "tcp"
    meeting = dist.FileStore(f"{place}-port", size)
    if rank == 0:
        store = dist.TCPStore("127.0.0.1", 0, size, is_master=True, wait_for_workers=False)
        meeting.set("port", str(store.port))
    else:
        store = dist.TCPStore("127.0.0.1", int(meeting.get("port")), size, is_master=False)
    assert secret.load() is None
    dist.init_process_group("rankwise", store=store, rank=rank, world_size=size)
    tensor = torch.ones(1 << 16)
    dist.all_reduce(tensor)
    assert tensor.eq(size).all()
    known = [None] * size
    dist.all_gather_object(known, secret.load().hex())
    assert len(set(known)) == 1
    dist.barrier()
