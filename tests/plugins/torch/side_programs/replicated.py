"""DistributedDataParallel and what goes with it: hooks, uneven inputs, sharded optimizers, averages of models."""

from contextlib import nullcontext

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.algorithms.ddp_comm_hooks import (
    ddp_zero_hook,
    debugging_hooks,
    default_hooks,
    post_localSGD_hook,
    powerSGD_hook,
)
from torch.nn.parallel import DistributedDataParallel

from side_programs.models import Branches
from side_programs.table import batch, each, mlp, programs, refusal, train


@programs(
    "ddp",
    {
        "plain": {},
        "small buckets": {"bucket_cap_mb": 0.0005},
        "views of buckets": {"gradient_as_bucket_view": True},
        "a static graph": {"static_graph": True},
        "unused parameters": {"find_unused_parameters": True},
        "unused parameters, views, small buckets": {
            "find_unused_parameters": True,
            "gradient_as_bucket_view": True,
            "bucket_cap_mb": 0.0005,
        },
        "without the first broadcast": {"init_sync": False},
        "without buffers": {"broadcast_buffers": False},
        "skipping what is unused": {"find_unused_parameters": True, "skip_all_reduce_unused_params": True},
    },
)
def ddp(**options):
    """Train with an option."""
    return train(DistributedDataParallel(mlp(), **options))


@programs("ddp, dtypes", each(("float64", "bfloat16", "float16"), "dtype"))
def ddp_dtype(dtype):
    """Train in another precision."""
    dtype = getattr(torch, dtype)
    return train(DistributedDataParallel(mlp(dtype=dtype)), dtype=dtype)


def _power(**options):
    return powerSGD_hook.PowerSGDState(None, start_powerSGD_iter=2, **options)


_HOOKS = {
    "allreduce": lambda: (None, default_hooks.allreduce_hook),
    "fp16": lambda: (None, default_hooks.fp16_compress_hook),
    "fp16 around allreduce": lambda: (None, default_hooks.fp16_compress_wrapper(default_hooks.allreduce_hook)),
    "power": lambda: (_power(matrix_approximation_rank=1), powerSGD_hook.powerSGD_hook),
    "power, orthogonal": lambda: (_power(orthogonalization_epsilon=1e-6), powerSGD_hook.powerSGD_hook),
    "fp16 around power": lambda: (_power(), default_hooks.fp16_compress_wrapper(powerSGD_hook.powerSGD_hook)),
    "none": lambda: (None, debugging_hooks.noop_hook),
    "gathered": lambda: (None, _gathered),
    "chained": lambda: (None, _chained),
}


def _gathered(state, bucket):
    whole = torch.empty(dist.get_world_size() * bucket.buffer().numel())
    future = dist.all_gather_into_tensor(whole, bucket.buffer(), async_op=True).get_future()
    return future.then(lambda _: whole.view(dist.get_world_size(), -1).mean(0))


def _chained(state, bucket):
    """Reduce, then broadcast from a callback: a collective within a future's end."""
    future = dist.all_reduce(bucket.buffer(), async_op=True).get_future()

    def then(done):
        dist.broadcast(done.value()[0], 0)
        return done.value()[0] / dist.get_world_size()

    return future.then(then)


@programs("ddp, hooks", each(_HOOKS))
def ddp_hook(name):
    """Train with a hook that communicates the gradients."""
    model = DistributedDataParallel(mlp(), bucket_cap_mb=0.002)
    model.register_comm_hook(*_HOOKS[name]())
    return train(model, steps=5)


@programs("ddp, hooks of C++", each(("ALLREDUCE", "FP16_COMPRESS")))
def ddp_builtin(name):
    """Train with a hook that is built in."""
    model = DistributedDataParallel(mlp())
    model._register_builtin_comm_hook(getattr(dist.BuiltinCommHookType, name))
    return train(model)


@programs("ddp, local steps", {"post-local SGD": {"start": 2}, "local from the start": {"start": 0}})
def ddp_local(start):
    """Train alone between averages."""
    from torch.distributed.algorithms.model_averaging.averagers import PeriodicModelAverager
    from torch.distributed.optim import PostLocalSGDOptimizer

    model = DistributedDataParallel(mlp())
    state = post_localSGD_hook.PostLocalSGDState(
        None, dist.new_group([dist.get_rank()], use_local_synchronization=True), start
    )
    model.register_comm_hook(state, post_localSGD_hook.post_localSGD_hook)
    averager = PeriodicModelAverager(period=2, warmup_steps=start)
    optimizer = PostLocalSGDOptimizer(torch.optim.SGD(model.parameters(), 0.1), averager)
    return train(model, optimizer, steps=6)


def _with_gradients():
    """Return another model on each rank; only what has gradients is averaged."""
    model = mlp(seed=dist.get_rank())
    model(batch(0)).sum().backward()
    return model


@programs("averages", {"hierarchical": {}}, size=4)
def hierarchical():
    """Average models in pairs, and at times all of them."""
    from collections import OrderedDict

    from torch.distributed.algorithms.model_averaging.hierarchical_model_averager import HierarchicalModelAverager

    model = _with_gradients()
    averager = HierarchicalModelAverager(OrderedDict([(2, 2), (4, 4)]), warmup_steps=1)
    for _ in range(6):
        averager.average_parameters(list(model.parameters()))
    return list(model.parameters())


@programs("averages", {"periodic": {"groups": False}, "of param groups": {"groups": True}})
def averages(groups):
    """Average models, and what an optimizer knows of them."""
    from torch.distributed.algorithms.model_averaging import averagers, utils

    model = _with_gradients()
    given = torch.optim.SGD(model.parameters(), 0.1).param_groups if groups else list(model.parameters())
    if groups:
        utils.average_parameters_or_parameter_groups(given, dist.group.WORLD)
    else:
        averagers.PeriodicModelAverager(period=1).average_parameters(given)
    return list(model.parameters())


@programs(
    "ddp, uneven",
    {
        "join": {},
        "join, divided by the start's ranks": {"divide_by_initial_world_size": True},
        "join, divided by those that are left": {"divide_by_initial_world_size": False},
        "join, all end with the first": {"throw_on_early_termination": True},
    },
)
def uneven(**options):
    """Train on more inputs on some ranks than on others."""
    model = DistributedDataParallel(mlp())
    try:
        with model.join(**options):
            found = train(model, steps=2 + 2 * dist.get_rank())
    except RuntimeError:
        return "ended early"
    return found, model.module.state_dict()


@programs("ddp, uneven", {"join of the optimizer too": {}})
def uneven_zero():
    """Join a model and its sharded optimizer."""
    from torch.distributed.algorithms.join import Join
    from torch.distributed.optim import ZeroRedundancyOptimizer

    model = DistributedDataParallel(mlp())
    optimizer = ZeroRedundancyOptimizer(model.parameters(), torch.optim.Adam, lr=0.01)
    with Join([model, optimizer]):
        train(model, optimizer, steps=2 + dist.get_rank())
    return model.module.state_dict()


_ZERO = {
    "Adam": (torch.optim.Adam, {"lr": 0.01}),
    "SGD, momentum": (torch.optim.SGD, {"lr": 0.1, "momentum": 0.9}),
    "AdamW, one bucket": (torch.optim.AdamW, {"lr": 0.01, "parameters_as_bucket_view": True}),
    "RMSprop": (torch.optim.RMSprop, {"lr": 0.01}),
}


@programs("zero", each(_ZERO))
def zero(name):
    """Shard an optimizer's state, and bring it together."""
    from torch.distributed.optim import ZeroRedundancyOptimizer

    kind, options = _ZERO[name]
    model = DistributedDataParallel(mlp())
    optimizer = ZeroRedundancyOptimizer(model.parameters(), kind, **options)
    found = train(model, optimizer)
    optimizer.consolidate_state_dict(0)
    if dist.get_rank() == 0:
        return found, optimizer.state_dict()["state"]
    return found, refusal(optimizer.state_dict)


@programs("zero, overlapped", {"a step": {"name": ""}, "interleaved": {"name": "_interleaved"}})
def zero_overlapped(name):
    """Step a sharded optimizer within the backward pass."""
    from torch.distributed.optim import ZeroRedundancyOptimizer

    model = DistributedDataParallel(mlp())
    optimizer = ZeroRedundancyOptimizer(model.parameters(), torch.optim.SGD, overlap_with_ddp=True, lr=0.1)
    hook = getattr(ddp_zero_hook, f"hook_with_zero_step{name}")
    model.register_comm_hook(None, hook(default_hooks.allreduce_hook, model, optimizer))
    for step in range(6):
        model(batch(step)).square().mean().backward()
    return list(model.parameters())


@programs("ddp, in steps", each(("no_sync", "twice forward", "a step left out", "clipped", "scaled")))
def in_steps(name):
    """Gather gradients over several passes, and change them before the step."""
    model = DistributedDataParallel(mlp())
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    losses, norms = [], []
    for step in range(4):
        with model.no_sync() if name == "no_sync" and step % 2 == 0 else nullcontext():
            output = model(batch(step))
            if name == "twice forward":
                output = output + model(batch(step + 1))
            loss = output.square().mean() * (16 if name == "scaled" else 1)
            loss.backward()
        losses.append(loss.item())
        if (name == "no_sync" and step % 2 == 0) or (name == "a step left out" and step == 1):
            continue
        if name == "clipped":
            norms.append(nn.utils.clip_grad_norm_(model.parameters(), 0.1))
        optimizer.step()
        optimizer.zero_grad()
    return losses, norms, list(model.parameters())


@programs("ddp, groups", {"a pair of four": {}}, size=4)
def ddp_in_groups():
    """Train two models on two ranks each."""
    group, _ = dist.new_subgroups(2)
    return train(DistributedDataParallel(mlp(), process_group=group))


@programs("ddp, groups", {"a mesh": {"name": "mesh"}, "all of four": {"name": "all"}}, size=4)
def ddp_on_mesh(name):
    """Train on one dimension of a mesh, and on all ranks."""
    from torch.distributed.device_mesh import init_device_mesh

    if name == "all":
        return train(DistributedDataParallel(mlp()))
    mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=("a", "b"))
    return train(DistributedDataParallel(mlp(), device_mesh=mesh["b"]))


@programs("ddp, mixed precision", {"bfloat16": {}})
def ddp_mixed():
    """Compute in another precision than parameters are kept in."""
    model = DistributedDataParallel(mlp())
    found = []
    for step in range(2):
        with torch.autocast("cpu", torch.bfloat16):
            loss = model(batch(step)).float().square().mean()
        loss.backward()
        found.append(loss.item())
    return found, [parameter.grad for parameter in model.parameters()]


@programs("ddp, wrong", each(("unequal shapes", "no gradients", "reduced twice", "unused without saying so")))
def ddp_wrong(name):
    """Make mistakes that DistributedDataParallel tells."""
    if name == "unequal shapes":
        return refusal(lambda: DistributedDataParallel(nn.Linear(4 + dist.get_rank(), 2)))
    if name == "no gradients":
        return refusal(lambda: DistributedDataParallel(mlp().requires_grad_(False)))
    if name == "reduced twice":
        model = DistributedDataParallel(mlp())
        loss = model(batch(0)).sum()
        loss.backward(retain_graph=True)
        return [parameter.grad for parameter in model.parameters()]
    model = DistributedDataParallel(Branches())
    return refusal(lambda: train(model))


@programs("replicate", {"plain": {}, "small buckets": {"bucket_cap_mb": 0.0005}})
def replicated(**options):
    """Replicate a module without a wrapper."""
    from torch.distributed._composable.replicate import replicate

    model = mlp()
    replicate(model, **options)
    return train(model)


@programs("ddp, data", each((1, 2), "epoch"))
def sampled(epoch):
    """Take each rank's part of a data set."""
    from torch.utils.data import DataLoader, DistributedSampler

    data = torch.arange(22.0)
    sampler = DistributedSampler(data, seed=3)
    sampler.set_epoch(epoch)
    return [rows for rows in DataLoader(data, 4, sampler=sampler)]


@programs("ddp, state", each(("saved and loaded", "logged", "ranks and sizes", "parameters that are ignored")))
def ddp_state(name):
    """Ask the wrapper what it knows."""
    inner = mlp()
    if name == "parameters that are ignored":
        DistributedDataParallel._set_params_and_buffers_to_ignore_for_model(inner, ["0.weight"])
    model = DistributedDataParallel(inner)
    found = train(model)
    if name == "logged":
        data = model._get_ddp_logging_data()
        return [data[key] for key in ("world_size", "rank", "num_parameter_tensors", "bucket_sizes", "backend_name")]
    if name == "saved and loaded":
        other = DistributedDataParallel(mlp(seed=2))
        other.load_state_dict(model.state_dict())
        return found, train(other)
    return found, [parameter.grad for parameter in model.parameters()]
