"""Checkpoints of distributed states, and pipelines."""

import os

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from torch import nn
from torch.distributed.checkpoint import state_dict as states
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import FullyShardedDataParallel, fully_shard
from torch.distributed.tensor import Shard, distribute_tensor

from side_programs.table import batch, each, folder, mlp, numbers, programs, refusal, train

_WRAPS = {
    "plain": lambda model: model,
    "ddp": nn.parallel.DistributedDataParallel,
    "fsdp2": fully_shard,
    "fsdp1": lambda model: FullyShardedDataParallel(model, device_id=torch.device("cpu"), use_orig_params=True),
}


def _place(name):
    """Return a folder of this program's own."""
    return os.path.join(folder(), name.replace(" ", "_"))


@programs("checkpoints", {f"{a}, loaded into {b}": {"before": a, "after": b} for a in _WRAPS for b in _WRAPS})
def checkpoints(before, after):
    """Save a model with its optimizer, and go on with them in one that may be wrapped otherwise."""
    place, losses = _place(f"{before} {after}"), []
    for wrap, seed in ((before, 1), (after, 2)):
        model = _WRAPS[wrap](mlp(seed=seed))
        optimizer = torch.optim.Adam(model.parameters(), 0.01)
        if seed == 2:
            model_state, optimizer_state = states.get_state_dict(model, optimizer)
            dcp.load({"model": model_state, "optimizer": optimizer_state}, checkpoint_id=place)
            states.set_state_dict(model, optimizer, model_state_dict=model_state, optim_state_dict=optimizer_state)
        losses.append(train(model, optimizer))
        if seed == 1:
            model_state, optimizer_state = states.get_state_dict(model, optimizer)
            dcp.save({"model": model_state, "optimizer": optimizer_state}, checkpoint_id=place)
    return losses


@programs("saved", each(("asynchronously", "by one rank", "objects", "other placements", "in part", "converted")))
def saved(name):
    """Save and load in other ways."""
    place, mesh = _place(name), init_device_mesh("cpu", (dist.get_world_size(),))
    tensor = distribute_tensor(torch.arange(12.0).view(6, 2), mesh, [Shard(0)])
    if name == "asynchronously":
        dcp.async_save({"x": tensor}, checkpoint_id=place, process_group=dist.new_group(backend="gloo")).result()
        dist.barrier()
    elif name == "by one rank":
        if dist.get_rank() == 0:
            dcp.save({"x": torch.ones(3)}, checkpoint_id=place, no_dist=True)
        dist.barrier()
        tensor = torch.zeros(3)
    elif name == "objects":
        dcp.save({"x": tensor, "step": 7, "words": ["a"], "nested": {"y": numbers(2)}}, checkpoint_id=place)
        loaded = {"x": tensor, "step": 0, "words": [""], "nested": {"y": torch.zeros(2)}}
        dcp.load(loaded, checkpoint_id=place)
        return loaded
    else:
        dcp.save({"x": tensor, "y": torch.ones(2)}, checkpoint_id=place)
    if name == "other placements":
        tensor = distribute_tensor(torch.zeros(6, 2), mesh, [Shard(1)])
    if name == "converted":
        from torch.distributed.checkpoint.format_utils import dcp_to_torch_save

        if dist.get_rank() == 0:
            dcp_to_torch_save(place, f"{place}.pt")
        dist.barrier()
        return torch.load(f"{place}.pt")
    loaded = {"x": torch.zeros_like(tensor)}
    dcp.load(loaded, checkpoint_id=place, no_dist=name == "by one rank")
    return loaded


@programs("saved, mistakes", each(("a key that is not there", "another shape", "no such folder")))
def saved_wrong(name):
    """Load what was not saved."""
    place = _place(name)
    if name != "no such folder":
        dcp.save({"x": torch.ones(3)}, checkpoint_id=place)
    state = {"a key that is not there": {"z": torch.zeros(3)}, "another shape": {"x": torch.zeros(4)}}
    try:
        dcp.load(state.get(name, {"x": torch.zeros(3)}), checkpoint_id=place)
    except dcp.CheckpointException as error:
        return sorted(type(each[0]).__name__ for each in error.failures.values())
    return "it was loaded"


_SCHEDULES = {
    "GPipe": (False, 4),
    "1F1B": (False, 4),
    "1F1B of two": (False, 2),
    "Interleaved1F1B": (True, 4),
    "InterleavedZeroBubble": (True, 4),
    "LoopedBFS": (True, 4),
    "ZBVZeroBubble": (True, 4),
    "DualPipeV": (True, 4),
}


@programs("pipelines", each(_SCHEDULES))
def pipelines(name):
    """Train a pipeline of one stage a rank, or of two."""
    from torch.distributed import pipelining

    has_two, count = _SCHEDULES[name]
    rank, size = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(1)
    layers = [nn.Linear(8, 8) for _ in range(2 * size if has_two else size)]
    mine = [rank, len(layers) - 1 - rank] if "V" in name else [rank, rank + size] if has_two else [rank]
    stages = [pipelining.PipelineStage(layers[i], i, len(layers), torch.device("cpu")) for i in mine]
    kind = getattr(pipelining.schedules, f"Schedule{name.partition(' ')[0]}")
    schedule = kind(
        stages if has_two else stages[0], count, loss_fn=lambda found, wanted: (found - wanted).square().mean()
    )
    losses, has_last = [], len(layers) - 1 in mine
    for step in range(2):
        torch.manual_seed(step)
        inputs, wanted = torch.randn(8, 8), torch.randn(8, 8)
        schedule.step(*([inputs] if rank == 0 else []), **({"target": wanted, "losses": losses} if has_last else {}))
    return losses, [[parameter.grad for parameter in layers[i].parameters()] for i in mine]


@programs("pipelines, in parallel", {"with ddp": {"wrap": "ddp"}, "with fsdp2": {"wrap": "fsdp2"}}, size=4)
def pipelines_in_parallel(wrap):
    """Train two pipelines whose stages are replicated, or sharded, between them."""
    from torch.distributed import pipelining

    mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=("data", "stage"))
    group, place = mesh["data"].get_group(), mesh["stage"].get_local_rank()
    torch.manual_seed(1)
    layer = [nn.Linear(8, 8) for _ in range(2)][place]
    layer = (
        nn.parallel.DistributedDataParallel(layer, process_group=group)
        if wrap == "ddp"
        else fully_shard(layer, mesh=mesh["data"])
    )
    stage = pipelining.PipelineStage(layer, place, 2, torch.device("cpu"), group=mesh["stage"].get_group())
    schedule = pipelining.Schedule1F1B(stage, 2, loss_fn=lambda found, wanted: (found - wanted).square().mean())
    losses = []
    schedule.step(
        *([batch(1, 4, 8)] if place == 0 else []), **({"target": batch(2, 4, 8), "losses": losses} if place else {})
    )
    return losses, [parameter.grad for parameter in layer.parameters()]


@programs("generators", each(("the same for all", "checked")))
def generators(name):
    """Agree on a seed."""
    from torch.distributed._functional_collectives import all_gather_tensor

    seed = torch.tensor([torch.initial_seed() % 1000])
    if name == "checked":
        return all_gather_tensor(seed, 0, dist.group.WORLD)
    seeds = [int(dist.get_rank() == 0) * 5]
    dist.broadcast_object_list(seeds, 0)
    torch.manual_seed(seeds[0])
    return torch.rand(3), refusal(lambda: torch.manual_seed("x"))
