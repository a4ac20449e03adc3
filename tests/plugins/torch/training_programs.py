"""What the ranks of `test_training.py` do: each returns numbers that must not depend on the backend."""

import os

import torch
import torch.distributed as dist
from torch import nn


def _model():
    torch.manual_seed(1)
    return nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 16), nn.ReLU(), nn.Linear(16, 4))


def _train(model, rank, steps=4, optimizer=None, parameters=None):
    optimizer = optimizer or torch.optim.SGD(parameters or model.parameters(), 0.1, momentum=0.9)
    losses = []
    for step in range(steps):
        torch.manual_seed(100 * step + rank)
        optimizer.zero_grad()
        loss = model(torch.randn(6, 8)).square().mean()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


def ddp(rank, size):
    """Train with DistributedDataParallel."""
    return _train(nn.parallel.DistributedDataParallel(_model(), bucket_cap_mb=0.001), rank)


def ddp_unused(rank, size):
    """Train a model whose parameters are not all used, with gradients as views of buckets."""
    model = nn.parallel.DistributedDataParallel(_model(), find_unused_parameters=True, gradient_as_bucket_view=True)
    return _train(model, rank)


def ddp_hooks(rank, size):
    """Train with hooks that compress gradients."""
    from torch.distributed.algorithms.ddp_comm_hooks import default_hooks, powerSGD_hook

    losses = []
    power = powerSGD_hook.PowerSGDState(None, matrix_approximation_rank=1, start_powerSGD_iter=2)
    for state, hook in (
        (None, default_hooks.fp16_compress_hook),
        (None, default_hooks.allreduce_hook),
        (power, powerSGD_hook.powerSGD_hook),
    ):
        model = nn.parallel.DistributedDataParallel(_model())
        model.register_comm_hook(state, hook)
        losses += _train(model, rank)
    return losses


def ddp_join(rank, size):
    """Train on different numbers of batches."""
    model = nn.parallel.DistributedDataParallel(_model())
    with model.join():
        return _train(model, rank, steps=2 + rank)


def zero(rank, size):
    """Shard the optimizer's state."""
    from torch.distributed.optim import ZeroRedundancyOptimizer

    model = nn.parallel.DistributedDataParallel(_model())
    return _train(model, rank, optimizer=ZeroRedundancyOptimizer(model.parameters(), torch.optim.Adam, lr=0.01))


def fsdp1(rank, size):
    """Shard parameters by FullyShardedDataParallel, which resizes storages."""
    from torch.distributed.fsdp import FullyShardedDataParallel

    model = FullyShardedDataParallel(_model(), device_id=torch.device("cpu"))
    return _train(model, rank)


def fsdp2(rank, size):
    """Shard parameters by fully_shard, also with bfloat16 for communication."""
    from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard

    losses = []
    for policy in (MixedPrecisionPolicy(), MixedPrecisionPolicy(torch.bfloat16, torch.bfloat16, torch.float32)):
        model = _model()
        for layer in model:
            if isinstance(layer, nn.Linear):
                fully_shard(layer, mp_policy=policy)
        fully_shard(model, mp_policy=policy)
        losses += _train(model, rank)
    return losses


def tensor_parallel(rank, size):
    """Split layers by DTensor and tensor parallelism, on a mesh."""
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.tensor import DTensor, Shard, distribute_tensor
    from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module

    mesh = init_device_mesh("cpu", (size,))
    model = parallelize_module(_model(), mesh, {"0": ColwiseParallel(), "2": RowwiseParallel()})
    losses = _train(model, 0)
    sharded: DTensor = distribute_tensor(torch.arange(12.0).view(6, 2), mesh, [Shard(0)])
    return [*losses, sharded.sum().full_tensor().item(), *(sharded @ sharded.t()).full_tensor().flatten().tolist()]


def functional(rank, size):
    """Call functional collectives, compiled and with gradients."""
    import torch.distributed._functional_collectives as functions
    import torch.distributed.nn as differentiable

    group = dist.group.WORLD
    tensor = torch.arange(4.0) + rank
    results = [
        functions.all_reduce(tensor, "sum", group),
        functions.all_gather_tensor(tensor, 0, group),
        functions.reduce_scatter_tensor(torch.arange(2.0 * size) + rank, "sum", 0, group),
        functions.broadcast(tensor, 1, group),
        functions.all_to_all_single(torch.arange(2.0 * size) + rank, None, None, group),
        *functions.all_reduce_coalesced([tensor, tensor + 1], "sum", group),
    ]
    compiled = torch.compile(lambda x: functions.all_reduce(x * 2, "sum", group) + 1, backend="aot_eager")
    results.append(compiled(tensor))
    leaf = torch.ones(3, requires_grad=True)
    differentiable.functional.all_reduce(leaf * (rank + 1)).sum().backward()
    results.append(leaf.grad)
    return [value for result in results for value in result.tolist()]


def checkpoint(rank, size, folder):
    """Save a sharded model, and load it into another."""
    import torch.distributed.checkpoint as dcp
    from torch.distributed.checkpoint.state_dict import get_model_state_dict, set_model_state_dict
    from torch.distributed.fsdp import fully_shard

    model, other = fully_shard(_model()), fully_shard(nn.Sequential(*(layer for layer in _model())))
    losses = _train(model, rank)
    place = os.path.join(folder, dist.get_backend())
    dcp.save({"model": get_model_state_dict(model)}, checkpoint_id=place)
    state = {"model": get_model_state_dict(other)}
    dcp.load(state, checkpoint_id=place)
    set_model_state_dict(other, state["model"])
    for mine, loaded in zip(model.parameters(), other.parameters(), strict=True):
        assert torch.equal(mine.full_tensor(), loaded.full_tensor())
    return losses


def pipeline(rank, size):
    """Train a pipeline of two stages."""
    from torch.distributed.pipelining import PipelineStage, Schedule1F1B

    layers = list(_model())
    stage = PipelineStage(nn.Sequential(*(layers[:2] if rank == 0 else layers[2:])), rank, 2, torch.device("cpu"))
    schedule = Schedule1F1B(stage, 2, loss_fn=lambda output, target: (output - target).square().mean())
    torch.manual_seed(5)
    inputs, target = torch.randn(4, 8), torch.randn(4, 4)
    losses: list[torch.Tensor] = []
    if rank == 0:
        schedule.step(inputs)
    else:
        schedule.step(target=target, losses=losses)
    return [loss.item() for loss in losses]
