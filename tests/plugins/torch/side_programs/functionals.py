"""Functional collectives, eager, compiled and with gradients, and the differentiable calls of torch.distributed.nn."""

import torch
import torch.distributed as dist
import torch.distributed._functional_collectives as functional
import torch.distributed.nn.functional as differentiable
from torch.distributed.device_mesh import init_device_mesh

from side_programs.table import each, numbers, programs, refusal

_CALLS = {
    "all_reduce sum": lambda x, g: functional.all_reduce(x, "sum", g),
    "all_reduce max": lambda x, g: functional.all_reduce(x, "max", g),
    "all_reduce min": lambda x, g: functional.all_reduce(x, "min", g),
    "all_reduce product": lambda x, g: functional.all_reduce(x, "product", g),
    "all_reduce_coalesced": lambda x, g: functional.all_reduce_coalesced([x, x[:2] + 1], "sum", g),
    "all_gather_tensor 0": lambda x, g: functional.all_gather_tensor(x, 0, g),
    "all_gather_tensor 1": lambda x, g: functional.all_gather_tensor(x, 1, g),
    "all_gather_into_tensor_coalesced": lambda x, g: functional.all_gather_into_tensor_coalesced([x, x[:2] + 1], g),
    "reduce_scatter_tensor 0": lambda x, g: functional.reduce_scatter_tensor(x, "sum", 0, g),
    "reduce_scatter_tensor 1": lambda x, g: functional.reduce_scatter_tensor(x, "sum", 1, g),
    "reduce_scatter_tensor_coalesced": lambda x, g: functional.reduce_scatter_tensor_coalesced(
        [x, x + 1], "sum", [0, 0], g
    ),
    "all_to_all_single": lambda x, g: functional.all_to_all_single(x, None, None, g),
    "all_to_all_single, splits": lambda x, g: functional.all_to_all_single(x, [2, 2], [2, 2], g),
    "broadcast": lambda x, g: functional.broadcast(x, 1, g),
    "permute_tensor": lambda x, g: functional.permute_tensor(x.flatten(), [1, 0], g),
}
_GRADIENTS = {
    "all_gather_tensor_autograd": lambda x, g: functional.all_gather_tensor_autograd(x, 0, g),
    "reduce_scatter_tensor_autograd": lambda x, g: functional.reduce_scatter_tensor_autograd(x, "sum", 0, g),
    "all_to_all_single_autograd": lambda x, g: functional.all_to_all_single_autograd(x, [2, 2], [2, 2], g),
}


@programs("functional", each(_CALLS))
def called(name):
    """Call with a group, and go on with what comes back."""
    result = _CALLS[name](numbers(4, 2), dist.group.WORLD)
    return [part * 2 + 1 for part in (result if isinstance(result, list | tuple) else [result])]


@programs("functional, by other names of groups", each(("a mesh", "ranks", "a mesh's dimension", "a name")), size=4)
def named(name):
    """Name the group in all ways that there are."""
    mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=("a", "b"))
    known = {
        "a mesh": mesh["a"],
        "ranks": list(range(4)),
        "a mesh's dimension": (mesh, 1),
        "a name": dist.group.WORLD.group_name,
    }
    return functional.all_reduce(numbers(4), "sum", known[name]), functional.all_gather_tensor(
        numbers(2), 0, known[name]
    )


@programs("functional, asynchronous", each(("waited for", "used", "dropped", "viewed", "kept by others", "in place")))
def asynchronous(name):
    """Use results that come later."""
    result = functional.all_reduce(numbers(4), "sum", dist.group.WORLD)
    if name == "waited for":
        return functional.wait_tensor(result)
    if name == "used":
        return (result + 1).sum()
    if name == "dropped":
        del result
        return functional.all_reduce(numbers(2), "sum", dist.group.WORLD) + 0
    if name == "viewed":
        return result.view(2, 2).t() + 0
    if name == "in place":
        result += 1
        return result + 0
    dist.all_reduce(result)
    return result + 0


@programs("functional, gradients", each(_GRADIENTS))
def gradients(name):
    """Go back through a call."""
    leaf = numbers(4, 2).requires_grad_()
    result = _GRADIENTS[name](leaf, dist.group.WORLD)
    (result * torch.arange(result.numel()).view(result.shape)).sum().backward()
    return result, leaf.grad


@programs("functional, compiled", each([*_CALLS, *_GRADIENTS]))
def compiled(name):
    """Compile a call with what goes before and after it."""
    call, group = (_CALLS | _GRADIENTS)[name], dist.group.WORLD

    def program(tensor):
        result = call(tensor * 2, group)
        return [part + 1 for part in (result if isinstance(result, list | tuple) else [result])]

    return torch.compile(program, backend="aot_eager", fullgraph=name != "permute_tensor")(numbers(4, 2))


_THERE_AND_BACK = {
    "all_reduce": lambda x: differentiable.all_reduce(x),
    "all_reduce max": lambda x: differentiable.all_reduce(x * 1, dist.ReduceOp.SUM) * x,
    "broadcast": lambda x: differentiable.broadcast(x, 1),
    "gather": lambda x: torch.stack(differentiable.gather(x, 0)),
    "scatter": lambda x: differentiable.scatter([x, x * 2], 0),
    "reduce": lambda x: differentiable.reduce(x * 1, 1),
    "reduce_scatter": lambda x: differentiable.reduce_scatter(torch.empty(4, 2), [x, x * 2]),
    "all_gather": lambda x: torch.stack(differentiable.all_gather(x)),
    "all_to_all": lambda x: torch.stack(differentiable.all_to_all([torch.empty(4, 2) for _ in range(2)], [x, x * 3])),
    "all_to_all_single": lambda x: differentiable.all_to_all_single(torch.empty(4, 2), x),
}


@programs("differentiable", each(_THERE_AND_BACK))
def there_and_back(name):
    """Go through a call and back."""
    leaf = (numbers(4, 2) / 4).requires_grad_()
    result = _THERE_AND_BACK[name](leaf)
    (result.square() * (dist.get_rank() + 1)).sum().backward()
    return result, leaf.grad


@programs("functional, mistakes", each(("another operator", "no group", "a size that cannot be split")))
def mistakes(name):
    """Make a mistake on all ranks."""
    if name == "another operator":
        return refusal(lambda: functional.all_reduce(numbers(4), "median", dist.group.WORLD) + 0)
    if name == "no group":
        return refusal(lambda: functional.all_reduce(numbers(4), "sum", "nobody") + 0)
    return refusal(lambda: functional.reduce_scatter_tensor(numbers(5), "sum", 0, dist.group.WORLD) + 0)
