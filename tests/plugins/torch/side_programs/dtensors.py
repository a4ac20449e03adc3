"""DTensor, device meshes and tensor parallelism."""

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.tensor import DTensor, Partial, Replicate, Shard, distribute_module, distribute_tensor
from torch.distributed.tensor import parallel as tp

from side_programs.table import batch, each, mlp, numbers, programs, refusal, train

_PLACED = {
    "rows": Shard(0),
    "columns": Shard(1),
    "replicas": Replicate(),
    "sums": Partial(),
    "averages": Partial("avg"),
    "greatest": Partial("max"),
    "least": Partial("min"),
}
_SHAPES = {"even": (4, 6), "uneven": (5, 3), "fewer than ranks": (1, 7)}


def _mesh(names=None):
    return init_device_mesh("cpu", (dist.get_world_size(),), mesh_dim_names=names)


def _pairs():
    return init_device_mesh("cpu", (2, 2), mesh_dim_names=("a", "b"))


def _whole(*shape, dtype=torch.float32):
    """Return the same numbers on every rank."""
    return (torch.arange(torch.Size(shape).numel()) * 7 % 11 - 4).view(shape).to(dtype) / 2


@programs(
    "redistributed",
    {f"{a} to {b}": {"before": a, "after": b} for a in _PLACED for b in ("rows", "columns", "replicas") if a != b},
)
def redistributed(before, after):
    """Change how tensors of even and uneven shapes lie, at once and later, and go back through it."""
    mesh, seen = _mesh(), []
    for shape in _SHAPES.values():
        for is_async in (False, True):
            start = DTensor.from_local(numbers(*shape), mesh, [Replicate()], run_check=False)
            if before in ("rows", "columns"):
                start = distribute_tensor(_whole(*shape), mesh, [_PLACED[before]])
            elif before != "replicas":
                start = DTensor.from_local(numbers(*shape), mesh, [_PLACED[before]], run_check=False)
            start.requires_grad_()
            moved = start.redistribute(mesh, [_PLACED[after]], async_op=is_async)
            seen += [moved.to_local() * 2, moved.full_tensor()]
            if before in ("rows", "columns", "sums"):
                (moved.to_local() ** 2).sum().backward()
                seen.append(start.grad)
    return seen


@programs(
    "redistributed, two dimensions",
    {
        f"{a} {b} to {c} {d}": {"before": (a, b), "after": (c, d)}
        for a, b, c, d in (
            ("rows", "columns", "replicas", "replicas"),
            ("rows", "rows", "columns", "replicas"),
            ("replicas", "rows", "rows", "replicas"),
            ("sums", "rows", "replicas", "rows"),
            ("sums", "sums", "rows", "columns"),
            ("columns", "rows", "rows", "columns"),
        )
    },
    size=4,
)
def redistributed_two(before, after):
    """Likewise on a mesh of two by two."""
    mesh, before, after = _pairs(), [_PLACED[name] for name in before], [_PLACED[name] for name in after]
    if any(place.is_partial() for place in before):
        start = DTensor.from_local(numbers(4, 6), mesh, before, run_check=False)
    else:
        start = distribute_tensor(_whole(5, 6), mesh, before)
    moved = start.redistribute(mesh, after)
    return moved, moved.full_tensor()


_OPERATIONS = {
    "sum": lambda a, b: a.sum(),
    "sum of rows": lambda a, b: a.sum(0),
    "mean": lambda a, b: a.mean(1),
    "max": lambda a, b: a.max(),
    "argmax": lambda a, b: a.argmax(1),
    "variance": lambda a, b: a.var(0),
    "norm": lambda a, b: torch.linalg.vector_norm(a),
    "any": lambda a, b: (a > 1).any(),
    "softmax": lambda a, b: a.softmax(1),
    "log_softmax": lambda a, b: a.log_softmax(0),
    "cumsum": lambda a, b: a.cumsum(0),
    "sort": lambda a, b: a.sort(1)[0],
    "topk": lambda a, b: a.topk(2, 1)[0],
    "matmul": lambda a, b: a @ b.t(),
    "matmul, other": lambda a, b: a.t() @ b,
    "addmm": lambda a, b: torch.addmm(a[:, :4].sum(0), a, b.t()),
    "bmm": lambda a, b: torch.bmm(a.unsqueeze(0), b.t().unsqueeze(0)),
    "einsum": lambda a, b: torch.einsum("ij,kj->ik", a, b),
    "add": lambda a, b: a + b,
    "where": lambda a, b: torch.where(a > b, a, b),
    "view": lambda a, b: a.view(2, 2, 6),
    "flatten": lambda a, b: a.flatten(),
    "transpose": lambda a, b: a.t() + 1,
    "cat": lambda a, b: torch.cat([a, b], 0),
    "stack": lambda a, b: torch.stack([a, b]),
    "split": lambda a, b: torch.cat(a.split(2, 1)[::-1], 1),
    "index": lambda a, b: a[1:3, ::2],
    "select": lambda a, b: a[:, 1],
    "gather": lambda a, b: a.gather(1, torch.zeros_like(a, dtype=torch.long)),
    "layer norm": lambda a, b: nn.functional.layer_norm(a, (6,)),
    "gelu": lambda a, b: nn.functional.gelu(a),
    "dropout of nothing": lambda a, b: nn.functional.dropout(a, 0.0),
    "cast": lambda a, b: a.to(torch.float64) * 2,
    "clone": lambda a, b: a.clone().mul_(2),
    "in place": lambda a, b: a.detach().clone().add_(b),
    "nonzero sums": lambda a, b: (a != 0).sum(1),
    "roll": lambda a, b: a.roll(1, 1),
    "repeat": lambda a, b: a.repeat(2, 1),
}


@programs("operations", each(_OPERATIONS))
def operations(name):
    """Compute with tensors that lie in all ways, and go back through it."""
    mesh, seen = _mesh(), []
    for one in ("rows", "columns", "replicas"):
        for other in ("rows", "replicas"):
            a, b = (
                distribute_tensor(_whole(4, 6) + more, mesh, [_PLACED[place]]).requires_grad_()
                for more, place in ((0, one), (1, other))
            )
            try:
                result = _OPERATIONS[name](a, b)
            except (RuntimeError, NotImplementedError) as error:
                seen.append(type(error).__name__)  # DTensor has no rule for that
                continue
            seen += [result.full_tensor(), result.to_local()]
            if result.requires_grad:
                result.sum().backward()
                seen.append(a.grad)
    assert any(not isinstance(found, str) for found in seen)
    return seen


_MADE = {
    "zeros": lambda api, mesh: api.zeros(5, 3, device_mesh=mesh, placements=[Shard(0)]),
    "full": lambda api, mesh: api.full((5, 3), 1.5, device_mesh=mesh, placements=[Shard(1)]),
    "empty, filled": lambda api, mesh: api.empty(4, 3, device_mesh=mesh, placements=[Shard(0)]).fill_(2),
    "ones, replicas": lambda api, mesh: api.ones(4, 3, device_mesh=mesh, placements=[Replicate()]),
}


@programs("made", each(_MADE))
def made(name):
    """Make tensors where they are to lie."""
    import torch.distributed.tensor as api

    found = _MADE[name](api, _mesh())
    return found, found.full_tensor()


@programs("distributed", each(("from rank 0", "as each has it", "a module", "checked", "a local map", "state")))
def distributed(name):
    """Distribute what ranks have."""
    mesh = _mesh()
    if name == "from rank 0":
        return distribute_tensor(numbers(4, 3), mesh, [Shard(0)])
    if name == "as each has it":
        return distribute_tensor(numbers(4, 3), mesh, [Shard(0)], src_data_rank=None)
    if name == "a module":
        return train(distribute_module(mlp(seed=dist.get_rank()), mesh), forward=None, inputs=_inputs(mesh), steps=1)
    if name == "checked":
        return DTensor.from_local(numbers(2, 3), mesh, [Replicate()], run_check=True)
    if name == "state":
        model = distribute_module(mlp(), mesh)
        return {key: value.full_tensor() for key, value in model.state_dict().items()}
    from torch.distributed.tensor.experimental import local_map

    @local_map(out_placements=[Shard(0)], in_placements=([Shard(0)],), device_mesh=mesh)
    def twice(tensor):
        return tensor * 2

    return twice(distribute_tensor(_whole(4, 3), mesh, [Shard(0)]))


def _inputs(mesh):
    return lambda step: distribute_tensor(batch(step), mesh, [Replicate()])


class _Attention(nn.Module):
    def __init__(self):
        super().__init__()
        torch.manual_seed(1)
        self.query, self.key, self.value, self.out = (nn.Linear(8, 8) for _ in range(4))
        self.norm = nn.LayerNorm(8)

    def forward(self, inputs):
        query, key, value = (
            part(self.norm(inputs)).unflatten(-1, (-1, 4)).transpose(1, 2)
            for part in (self.query, self.key, self.value)
        )
        found = nn.functional.scaled_dot_product_attention(query, key, value)
        return self.out(found.transpose(1, 2).flatten(2))


_ATTENTION = {"query": tp.ColwiseParallel, "key": tp.ColwiseParallel, "value": tp.ColwiseParallel}
_STYLES = {
    "columns and rows": (mlp, lambda: {"0": tp.ColwiseParallel(), "2": tp.RowwiseParallel()}),
    "columns": (mlp, lambda: {"0": tp.ColwiseParallel(output_layouts=Replicate())}),
    "rows": (mlp, lambda: {"4": tp.RowwiseParallel(input_layouts=Replicate())}),
    "to shards": (mlp, lambda: {"2": tp.ColwiseParallel(), "4": tp.RowwiseParallel(output_layouts=Shard(0))}),
    "local inputs": (
        mlp,
        lambda: {
            "0": tp.ColwiseParallel(use_local_output=False),
            "2": tp.RowwiseParallel(use_local_output=True),
        },
    ),
    "attention": (
        _Attention,
        lambda: {**{name: style() for name, style in _ATTENTION.items()}, "out": tp.RowwiseParallel()},
    ),
    "attention, norms by sequence": (
        _Attention,
        lambda: {
            "norm": tp.SequenceParallel(),
            "": tp.PrepareModuleInput(input_layouts=Shard(1), desired_input_layouts=Shard(1), use_local_output=False),
            **{name: style(input_layouts=Shard(1)) for name, style in _ATTENTION.items()},
            "out": tp.RowwiseParallel(output_layouts=Shard(1), use_local_output=True),
        },
    ),
    "prepared outputs": (
        mlp,
        lambda: {"4": tp.PrepareModuleOutput(output_layouts=Replicate(), desired_output_layouts=Shard(0))},
    ),
}


@programs("tensor parallel", each(_STYLES))
def tensor_parallel(name):
    """Train a model whose layers are split."""
    make, plan = _STYLES[name]
    model = tp.parallelize_module(make(), _mesh(), plan())
    shape = (2, 4, 8) if make is _Attention else (6, 8)
    same = torch.Generator().manual_seed(7)
    return train(model, inputs=lambda step: torch.randn(*shape, generator=same))


@programs("tensor parallel, and sharded", each(("fsdp2", "ddp", "fsdp1")), size=4)
def two_ways(name):
    """Split layers in pairs, and shard or replicate between them."""
    mesh = _pairs()
    model = tp.parallelize_module(mlp(), mesh["b"], {"0": tp.ColwiseParallel(), "2": tp.RowwiseParallel()})

    def inputs(step):
        return torch.full((2, 8), float(step + dist.get_rank() // 2))

    if name == "fsdp2":
        from torch.distributed.fsdp import fully_shard

        return train(fully_shard(model, mesh=mesh["a"]), inputs=inputs)
    if name == "fsdp1":
        from torch.distributed.fsdp import FullyShardedDataParallel

        model = FullyShardedDataParallel(
            model, device_mesh=mesh["a"], device_id=torch.device("cpu"), use_orig_params=True
        )
        return train(model, inputs=inputs)
    from torch.distributed.tensor.parallel.ddp import _pre_dp_module_transform

    _pre_dp_module_transform(model)
    return train(nn.parallel.DistributedDataParallel(model, process_group=mesh["a"].get_group()), inputs=inputs)


@programs("losses", each(("parallel cross entropy", "embedding by rows", "embedding by columns", "clipped")))
def losses(name):
    """Compute a loss of what is split by classes, and look up in a table that is split."""
    mesh = _mesh()
    if name == "parallel cross entropy":
        scores = distribute_tensor(_whole(4, 6), mesh, [Shard(1)]).requires_grad_()
        with tp.loss_parallel():
            loss = nn.functional.cross_entropy(scores, torch.tensor([0, 5, 2, 3]))
            loss.backward()
        return loss, scores.grad
    if name == "clipped":
        model = tp.parallelize_module(mlp(), mesh, {"0": tp.ColwiseParallel(), "2": tp.RowwiseParallel()})
        model(torch.ones(2, 8)).sum().backward()
        return [
            nn.utils.get_total_norm([p.grad for p in model[i].parameters()], foreach=False).full_tensor()
            for i in (0, 2)
        ]
    torch.manual_seed(1)
    style = (
        tp.RowwiseParallel(input_layouts=Replicate())
        if "rows" in name
        else tp.ColwiseParallel(output_layouts=Replicate())
    )
    model = tp.parallelize_module(nn.Sequential(nn.Embedding(10, 4)), mesh, {"0": style})
    return train(model, inputs=lambda step: torch.tensor([0, 9, 4, 5 + step]))


@programs("convolutions", {"halves of images": {}})
def convolution():
    """Convolve images that are split by their width."""
    torch.manual_seed(1)
    mesh, layer = _mesh(), nn.Conv2d(3, 4, 3, padding=1)
    images = distribute_tensor(_whole(2, 3, 6, 8), mesh, [Shard(3)])
    result = distribute_module(layer, mesh)(images)
    return result, result.full_tensor()


@programs("random", each(("dropout", "normal", "uniform")))
def random(name):
    """Draw numbers, each where it lies."""
    from torch.distributed.tensor import empty

    mesh = _mesh()
    torch.manual_seed(5)
    tensor = empty(4, 6, device_mesh=mesh, placements=[Shard(0)])
    if name == "dropout":
        kept = nn.functional.dropout(distribute_tensor(torch.ones(4, 600), mesh, [Shard(0)]), 0.5)
        return 0.3 < kept.full_tensor().mean() / 2 < 0.7
    if name == "normal":
        nn.init.normal_(tensor)
    else:
        nn.init.uniform_(tensor)
    return tensor.full_tensor()


_MESHES = {
    "one dimension": lambda: _facts(_mesh()),
    "named": lambda: _facts(_mesh(("all",))["all"]),
    "of ranks": lambda: _facts(DeviceMesh("cpu", [0, 1])),
    "from a group": lambda: _facts(DeviceMesh.from_group(dist.group.WORLD, "cpu")),
    "of one": lambda: _facts(init_device_mesh("cpu", (2, 1), mesh_dim_names=("a", "b"))["b"]),
    "not named": lambda: refusal(lambda: _mesh()["a"]),
    "too large": lambda: refusal(lambda: init_device_mesh("cpu", (3,))),
    "names that repeat": lambda: refusal(lambda: init_device_mesh("cpu", (1, 2), mesh_dim_names=("a", "a"))),
    "a name that is not there": lambda: refusal(lambda: _mesh(("a",))["b"]),
}
_MESHES_OF_FOUR = {
    "two dimensions": lambda: [_facts(_pairs()[name]) for name in "ab"],
    "both": lambda: _pairs()["a", "b"].shape,
    "flattened": lambda: _facts(_pairs()._flatten("ab")),
    "three dimensions": lambda: [
        _facts(init_device_mesh("cpu", (2, 1, 2), mesh_dim_names=("a", "b", "c"))[name]) for name in "abc"
    ],
    "from groups": lambda: _from_groups(),
    "all groups": lambda: [group.size() for group in _pairs().get_all_groups()],
}


def _from_groups():
    pairs = _pairs()
    mesh = DeviceMesh.from_group(
        pairs.get_all_groups(), "cpu", mesh=torch.arange(4).view(2, 2), mesh_dim_names=("x", "y")
    )
    return [_facts(mesh[name]) for name in "xy"]


def _facts(mesh):
    total = numbers(2)
    dist.all_reduce(total, group=mesh.get_group())
    coordinate = mesh.get_coordinate()
    return mesh.shape, mesh.ndim, mesh.get_local_rank(), coordinate, mesh.mesh.tolist(), mesh.mesh_dim_names, total


@programs("meshes", each(_MESHES))
def meshes(name):
    """Make meshes, and ask them."""
    return _MESHES[name]()


@programs("meshes, four ranks", each(_MESHES_OF_FOUR), size=4)
def meshes_of_four(name):
    """Likewise of four ranks."""
    return _MESHES_OF_FOUR[name]()
