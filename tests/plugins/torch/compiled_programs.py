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


def _scatter(x):
    output = torch.empty(2)
    dist.reduce_scatter_tensor(output, x)
    return output + 1


def _lists(x):
    outputs = [torch.empty(4) for _ in range(2)]
    dist.all_gather(outputs, x)
    return outputs[0] + outputs[1]


_TRACED = (_all_reduce, _gather, _functional, _scatter, _lists)


def traced(rank, size):
    """Note the operators that `make_fx` sees, and the graphs of `torch.export` with what they return."""
    from torch.fx.experimental.proxy_tensor import make_fx

    seen, x = [], torch.arange(4.0)
    for program in _TRACED:
        # With real tensors gloo's own steps within a call are seen too.
        seen += [_operators(make_fx(program, tracing_mode=mode)(x)) for mode in ("fake", "symbolic")]
    for program in (_all_reduce, _gather, _functional):
        for strict in (True, False):
            exported = torch.export.export(_Calls(program), (x,), strict=strict)
            seen += [_operators(exported.graph_module), exported.module()(x + rank).tolist()]
    return seen


def looked_on(rank, size):
    """Note what fake and meta tensors become, what `torch.func.grad` gives, and what CommDebugMode counts."""
    from torch._subclasses.fake_tensor import FakeTensorMode
    from torch.distributed.tensor.debug import CommDebugMode

    seen, x = [], torch.arange(4.0)
    for program in _TRACED:
        with FakeTensorMode() as mode:
            result = program(mode.from_tensor(x))
            seen.append((type(result).__name__, result.shape))
        with torch.device("meta"):
            result = program(x.to("meta"))
            seen.append((str(result.device), result.shape))
        with CommDebugMode() as counter:
            program(x)
        seen.append(sorted((str(operator), count) for operator, count in counter.get_comm_counts().items()))
    return [*seen, torch.func.grad(lambda x: (x * _all_reduce(x.detach())).sum())(x).tolist()]


def profiled(rank, size):
    """Note for each call how many events the profiler has of the group, and that they have its name."""
    seen, name = [], f"{dist.get_backend()}:"
    for program in _TRACED:
        with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as profile:
            program(torch.arange(4.0))
        seen.append(sum(event.name.startswith(name) for event in profile.events()))
    return seen


def _operators(graph):
    return [str(node.target) for node in graph.graph.nodes if node.op == "call_function"]


class _Calls(torch.nn.Module):
    def __init__(self, program):
        super().__init__()
        self.program = program

    def forward(self, x):
        return self.program(x)


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
