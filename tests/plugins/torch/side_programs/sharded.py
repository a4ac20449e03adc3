"""Parameters that are sharded: FullyShardedDataParallel, fully_shard, and sharded tensors."""

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import (
    BackwardPrefetch,
    CPUOffloadPolicy,
    FullyShardedDataParallel,
    MixedPrecision,
    MixedPrecisionPolicy,
    ShardingStrategy,
    StateDictType,
    fully_shard,
)
from torch.distributed.fsdp.wrap import ModuleWrapPolicy, size_based_auto_wrap_policy

from side_programs.table import batch, each, mlp, numbers, programs, refusal, train

_CPU = torch.device("cpu")
_LAYERS = ModuleWrapPolicy({nn.Linear})
_BFLOAT16 = {"param_dtype": torch.bfloat16, "reduce_dtype": torch.bfloat16}
_FSDP1 = {
    "plain": {},
    "by layers": {"auto_wrap_policy": _LAYERS},
    "by sizes": {"auto_wrap_policy": lambda **more: size_based_auto_wrap_policy(min_num_params=100, **more)},
    "SHARD_GRAD_OP": {"sharding_strategy": ShardingStrategy.SHARD_GRAD_OP},
    "SHARD_GRAD_OP by layers": {"sharding_strategy": ShardingStrategy.SHARD_GRAD_OP, "auto_wrap_policy": _LAYERS},
    "NO_SHARD": {"sharding_strategy": ShardingStrategy.NO_SHARD},
    "original parameters": {"use_orig_params": True},
    "original parameters by layers": {"use_orig_params": True, "auto_wrap_policy": _LAYERS},
    "mixed precision": {"mixed_precision": MixedPrecision(**_BFLOAT16)},
    "mixed precision of gradients": {"mixed_precision": MixedPrecision(reduce_dtype=torch.float16)},
    "prefetching before": {"backward_prefetch": BackwardPrefetch.BACKWARD_PRE, "auto_wrap_policy": _LAYERS},
    "prefetching after": {"backward_prefetch": BackwardPrefetch.BACKWARD_POST, "auto_wrap_policy": _LAYERS},
    "prefetching forward": {"forward_prefetch": True, "auto_wrap_policy": _LAYERS},
    "without a limit of gathers": {"limit_all_gathers": False, "auto_wrap_policy": _LAYERS},
}


def _sharded(seed=1, **options):
    return FullyShardedDataParallel(mlp(seed=seed), device_id=_CPU, **options)


@programs("fsdp1", each(_FSDP1))
def fsdp1(name):
    """Train with an option."""
    return train(_sharded(**_FSDP1[name]))


@programs("fsdp1, hybrid", each(("HYBRID_SHARD", "_HYBRID_SHARD_ZERO2")), size=4)
def hybrid(name):
    """Shard in pairs, and replicate the pairs."""
    mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=("replicate", "shard"))
    return train(_sharded(device_mesh=mesh, sharding_strategy=getattr(ShardingStrategy, name)))


@programs("fsdp1, steps", each(("clipped", "no_sync", "Adam", "frozen", "within autograd", "summoned", "uneven")))
def fsdp1_steps(name):
    """Train in other ways."""
    if name == "uneven":
        torch.manual_seed(1)
        return train(FullyShardedDataParallel(nn.Sequential(nn.Linear(8, 5), nn.Linear(5, 3)), device_id=_CPU))
    model = _sharded(auto_wrap_policy=_LAYERS, use_orig_params=name in ("frozen", "summoned"))
    if name == "clipped":
        norms = []
        return train(model, end=lambda model: norms.append(model.clip_grad_norm_(0.1))), norms
    if name == "Adam":
        return train(model, torch.optim.Adam(model.parameters(), 0.01))
    if name == "no_sync":
        with model.no_sync():
            model(batch(9)).sum().backward()
        return train(model)
    if name == "frozen":
        model[0].requires_grad_(False)
        return train(model)
    found = train(model)
    if name == "summoned":
        with FullyShardedDataParallel.summon_full_params(model):
            return found, [parameter.clone() for parameter in model.parameters()]
    output = model(batch(9))
    return found, torch.autograd.grad(output.sum(), [p for p in model.parameters() if p.numel()], allow_unused=True)


@programs("fsdp1, states", each(("FULL_STATE_DICT", "LOCAL_STATE_DICT", "SHARDED_STATE_DICT")))
def fsdp1_states(name):
    """Save a model and its optimizer, and load them into others."""
    kind = getattr(StateDictType, name)
    model, other = _sharded(), _sharded(2)
    optimizer = torch.optim.Adam(model.parameters(), 0.01)
    train(model, optimizer)
    with FullyShardedDataParallel.state_dict_type(model, kind):
        state = model.state_dict()
        whole = FullyShardedDataParallel.optim_state_dict(model, optimizer) if "LOCAL" not in name else None
    with FullyShardedDataParallel.state_dict_type(other, kind):
        other.load_state_dict(state)
    return list(other.parameters()), sorted(state), whole and sorted(map(str, whole["state"]))


_FSDP2 = {
    "plain": {},
    "kept after forward": {"reshard_after_forward": False},
    "in bfloat16": {"mp_policy": MixedPrecisionPolicy(torch.bfloat16, torch.bfloat16, torch.float32)},
    "gradients in bfloat16": {"mp_policy": MixedPrecisionPolicy(reduce_dtype=torch.bfloat16)},
    "gradients in float16": {"mp_policy": MixedPrecisionPolicy(reduce_dtype=torch.float16)},
    "offloaded": {"offload_policy": CPUOffloadPolicy(pin_memory=False)},
    "by the second dimension": {"shard_placement_fn": lambda parameter: _last(parameter)},
}


def _last(parameter):
    from torch.distributed.tensor import Shard

    return Shard(parameter.ndim - 1)


def _by_layers(model, **options):
    for layer in model:
        if isinstance(layer, nn.Linear):
            fully_shard(layer, **options)
    return fully_shard(model, **options)


@programs("fsdp2", each(_FSDP2))
@programs("fsdp2, four ranks", each(("plain", "in bfloat16", "by the second dimension")), size=4)
def fsdp2(name):
    """Train with an option."""
    return train(_by_layers(mlp(), **_FSDP2[name]))


@programs("fsdp2, meshes", each(("hybrid", "sharded by all", "a part of it", "half kept")), size=4)
def fsdp2_meshes(name):
    """Shard over dimensions of a mesh."""
    mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=("replicate", "shard"))
    if name == "half kept":
        return train(_by_layers(mlp(), reshard_after_forward=2))
    mesh = {"hybrid": mesh, "sharded by all": mesh._flatten("all"), "a part of it": mesh["shard"]}[name]
    return train(_by_layers(mlp(), mesh=mesh))


@programs(
    "fsdp2, steps",
    each(
        (
            "clipped",
            "clipped, infinite norm",
            "gathered over passes",
            "Adam",
            "frozen",
            "unsharded by hand",
            "prefetched by hand",
            "tied",
            "uneven",
            "recomputed",
            "ignored",
            "first on meta",
            "nothing to do for one rank",
            "divided by another factor",
        )
    ),
)
def fsdp2_steps(name):
    """Train in other ways."""
    if name == "uneven":
        torch.manual_seed(1)
        return train(_by_layers(nn.Sequential(nn.Linear(8, 5), nn.Linear(5, 3), nn.Linear(3, 1))))
    if name == "ignored":
        inner = mlp()
        return train(fully_shard(inner, ignored_params={inner[0].weight}))
    if name == "tied":
        inner = nn.Sequential(nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 8))
        inner[2].weight = inner[0].weight
        return train(fully_shard(inner))
    if name == "first on meta":
        with torch.device("meta"):
            inner = nn.Sequential(nn.Linear(8, 4))
        fully_shard(inner)
        inner.to_empty(device="cpu")
        for parameter in inner.parameters():
            nn.init.constant_(parameter, 0.5)
        return train(inner)
    model = _by_layers(mlp())
    if name.startswith("clipped"):
        norms = []
        kind = float("inf") if "infinite" in name else 2.0
        found = train(model, end=lambda model: norms.append(nn.utils.clip_grad_norm_(model.parameters(), 0.1, kind)))
        return found, [norm.full_tensor() for norm in norms]
    if name == "gathered over passes":
        model.set_requires_gradient_sync(False)
        model(batch(9)).sum().backward()
        model.set_requires_gradient_sync(True)
        model(batch(10)).sum().backward()
        return [parameter.grad for parameter in model.parameters()]
    if name == "Adam":
        return train(model, torch.optim.AdamW(model.parameters(), 0.01, foreach=True))
    if name == "frozen":
        model[0].requires_grad_(False)
    if name == "unsharded by hand":
        handle = model.unshard(async_op=True)
        handle.wait()
        model.reshard()
    if name == "prefetched by hand":
        model[0].set_modules_to_forward_prefetch([model[2]])
        model[4].set_modules_to_backward_prefetch([model[2]])
    if name == "divided by another factor":
        model.set_gradient_divide_factor(4.0)
    if name == "recomputed":
        from torch.utils.checkpoint import checkpoint

        return train(model, forward=lambda inputs: checkpoint(model, inputs, use_reentrant=False))
    if name == "nothing to do for one rank":
        return train(model, inputs=lambda step: batch(step)[: 6 * dist.get_rank()] if dist.get_rank() else batch(step))
    return train(model)


@programs("fsdp2, states", each(("sharded", "full", "full, of one rank", "loaded from a full one", "of the optimizer")))
def fsdp2_states(name):
    """Save a model and its optimizer, and load them into others."""
    from torch.distributed.checkpoint import state_dict as states

    model, other = _by_layers(mlp()), _by_layers(mlp(seed=2))
    optimizer = torch.optim.Adam(model.parameters(), 0.01)
    train(model, optimizer)
    full = states.StateDictOptions(full_state_dict=True)
    if name == "sharded":
        other.load_state_dict(model.state_dict())
        return train(other)
    if name == "full":
        return states.get_model_state_dict(model, options=full)
    if name == "full, of one rank":
        return states.get_model_state_dict(
            model, options=states.StateDictOptions(full_state_dict=True, cpu_offload=True)
        )
    if name == "of the optimizer":
        return states.get_optimizer_state_dict(model, optimizer, options=full)["state"]
    state = mlp(seed=5).state_dict() if dist.get_rank() == 0 else {}
    one = states.StateDictOptions(full_state_dict=True, broadcast_from_rank0=True)
    states.set_model_state_dict(other, state, options=one)
    return train(other)


@programs("fsdp, mistakes", each(("a mesh of three dimensions", "shared twice", "a parameter that is not there")))
def mistakes(name):
    """Ask for what cannot be."""
    if name == "a mesh of three dimensions":
        mesh = init_device_mesh("cpu", (2, 1, 1))
        return refusal(lambda: fully_shard(mlp(), mesh=mesh))
    if name == "shared twice":
        model = fully_shard(mlp())
        return refusal(lambda: fully_shard(model))
    return refusal(lambda: fully_shard(nn.Linear(2, 2, device="meta"))(torch.ones(1, 2)))


@programs("sharded tensors", each(("made", "gathered", "from local shards", "resharded", "filled at random")))
def sharded_tensors(name):
    """Use the older tensors that know their shards."""
    from torch.distributed._shard import sharded_tensor
    from torch.distributed._shard.metadata import ShardMetadata
    from torch.distributed._shard.sharding_spec import ChunkShardingSpec

    placements = [f"rank:{rank}/cpu" for rank in range(dist.get_world_size())]
    spec = ChunkShardingSpec(0, placements)
    if name == "from local shards":
        rank = dist.get_rank()
        metadata = ShardMetadata([2 * rank, 0], [2, 3], placements[rank])
        made = sharded_tensor.init_from_local_shards([sharded_tensor.Shard(numbers(2, 3), metadata)], 4, 3)
    elif name == "filled at random":
        made = sharded_tensor.rand(spec, 5, 3)
    else:
        made = sharded_tensor.full(spec, (5, 3), 2.5)
    if name == "resharded":
        made.reshard(ChunkShardingSpec(0, placements[::-1]))
    whole = torch.zeros(made.size()) if dist.get_rank() == 0 else None
    made.gather(0, whole)
    return whole, [shard.tensor for shard in made.local_shards()], str(made.metadata().size)
