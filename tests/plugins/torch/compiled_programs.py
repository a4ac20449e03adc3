"""What the ranks of `whole_compiled.py` do: compiled programs, the same over every backend."""

import torch
import torch.distributed as dist
import torch.distributed._functional_collectives as functional


def _compiled(function, fullgraph=True):
    torch._dynamo.reset()
    return torch.compile(function, backend="aot_eager", fullgraph=fullgraph)


def _all_reduce(x):
    y = x * 2
    dist.all_reduce(y)
    return y + 1


def _gather(x):
    output = torch.empty(8)
    dist.all_gather_into_tensor(output, x)
    return output + 1


def _asynchronous(x):
    y = x * 2
    work = dist.all_reduce(y, async_op=True)
    z = x + 1
    work.wait()
    return y + z


def _broken(x):
    y = x * 2
    dist.broadcast(y, 0)
    dist.barrier()
    return y + 1


def _messages(x):
    y, other = torch.zeros(4), 1 - dist.get_rank()
    for work in (dist.isend(x, other), dist.irecv(y, other)):
        work.wait()
    return y + 1


def _functional(x):
    group = dist.group.WORLD
    total = functional.all_reduce(x * 2, "sum", group) + 1
    return functional.all_gather_tensor(total, 0, group) + functional.all_to_all_single(x, None, None, group).sum()


def calls(rank, size):
    """Compile calls, with breaks of the graph where torch's own groups break it."""
    tensor = torch.arange(4.0) + rank
    whole = [_compiled(program)(tensor) for program in (_all_reduce, _gather, _functional)]
    broken = [_compiled(program, False)(tensor) for program in (_asynchronous, _broken, _messages)]
    return [result.tolist() for result in (*whole, *broken)]


def models(rank, size):
    """Compile DistributedDataParallel, from outside and inside, and FSDP2."""
    from torch.distributed.fsdp import fully_shard

    results = []
    for wrap in (_outside, _inside, fully_shard):
        torch.manual_seed(0)
        model = wrap(torch.nn.Linear(4, 4))
        if wrap is not _inside:
            model = _compiled(model, False)
        for _ in range(2):
            loss = model(torch.arange(4.0)[None] + rank).sum()
            loss.backward()
        results.append(loss.item())
        grad = next(model.parameters()).grad
        results += (grad.full_tensor() if hasattr(grad, "full_tensor") else grad).flatten().tolist()
    return results


def _outside(model):
    return torch.nn.parallel.DistributedDataParallel(model)


def _inside(model):
    return torch.nn.parallel.DistributedDataParallel(_compiled(model, False))
