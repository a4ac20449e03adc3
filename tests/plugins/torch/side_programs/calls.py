"""torch.distributed's own calls: every dtype and operator, works and futures, lists, coalescing, messages, barriers."""

import threading
from datetime import timedelta

import torch
import torch.distributed as dist

from side_programs.table import each, numbers, programs, refusal

CALLBACK_S = 20
_DTYPES = "uint8 int8 int32 int64 float16 bfloat16 float32 float64".split()
_MOVED = [*_DTYPES, "bool", "complex64", "complex128"]


@programs("reductions", each(("SUM", "PRODUCT", "MIN", "MAX", "BAND", "BOR", "BXOR")))
def reductions(name):
    """Reduce all dtypes that an operator takes, by all calls that reduce."""
    op, seen, size = getattr(dist.ReduceOp, name), [], dist.get_world_size()
    for dtype in (getattr(torch, known) for known in _DTYPES):
        if name.startswith("B") and dtype.is_floating_point:
            continue
        everywhere, there, part = numbers(4, dtype=dtype), numbers(4, dtype=dtype), torch.empty(3, dtype=dtype)
        dist.all_reduce(everywhere, op)
        dist.reduce(there, 1, op)
        dist.reduce_scatter_tensor(part, numbers(3 * size, dtype=dtype), op)
        other = torch.empty(2, dtype=dtype)
        dist.reduce_scatter(other, [numbers(2, dtype=dtype) + rank for rank in range(size)], op)
        seen += [everywhere, there if dist.get_rank() == 1 else None, part, other]
    return seen


def _broadcast(tensor):
    dist.broadcast(tensor, 1)
    return tensor


def _all_gather(tensor):
    outputs = [torch.empty_like(tensor) for _ in range(dist.get_world_size())]
    dist.all_gather(outputs, tensor)
    return outputs


def _all_gather_into(tensor):
    output = torch.empty(dist.get_world_size() * tensor.numel(), dtype=tensor.dtype)
    dist.all_gather_into_tensor(output, tensor.flatten())
    return output


def _stack(tensor):
    output = torch.empty(dist.get_world_size(), *tensor.shape, dtype=tensor.dtype)
    dist.all_gather_into_tensor(output, tensor)
    return output


def _gather(tensor):
    outputs = [torch.empty_like(tensor) for _ in range(dist.get_world_size())] if dist.get_rank() == 0 else None
    dist.gather(tensor, outputs, 0)
    return outputs


def _scatter(tensor):
    inputs = [tensor.roll(shift) for shift in range(dist.get_world_size())] if dist.get_rank() == 1 else None
    output = torch.empty_like(tensor)
    dist.scatter(output, inputs, 1)
    return output


def _all_to_all(tensor):
    inputs = [tensor.roll(shift) for shift in range(dist.get_world_size())]
    outputs = [torch.empty_like(tensor) for _ in inputs]
    dist.all_to_all(outputs, inputs)
    return outputs


def _all_to_all_single(tensor):
    whole = torch.cat([tensor.roll(shift) for shift in range(dist.get_world_size())])
    output = torch.empty_like(whole)
    dist.all_to_all_single(output, whole)
    return output


def _message(tensor):
    rank, size = dist.get_rank(), dist.get_world_size()
    output = torch.empty_like(tensor)
    work = dist.isend(tensor, (rank + 1) % size, tag=3)
    dist.recv(output, (rank - 1) % size, tag=3)
    work.wait()
    return output


_MOVES = {
    "broadcast": _broadcast,
    "all_gather": _all_gather,
    "all_gather_into_tensor": _all_gather_into,
    "all_gather_into_tensor, stacked": _stack,
    "gather": _gather,
    "scatter": _scatter,
    "all_to_all": _all_to_all,
    "all_to_all_single": _all_to_all_single,
    "messages": _message,
}


@programs("moves", each(_MOVES))
@programs("moves, four ranks", each(_MOVES), size=4)
def moves(name):
    """Move all dtypes, no elements, and a single one without a dimension."""
    made = [numbers(6, dtype=getattr(torch, dtype)) for dtype in _MOVED] + [numbers(0), numbers(2, 3)]
    seen = [_MOVES[name](tensor) for tensor in made]
    return [*seen, None if name == "all_to_all_single" else _MOVES[name](numbers(1))]


@programs("uneven", each(("all_to_all_single", "all_to_all", "nothing for one")))
def uneven(name):
    """Exchange parts of different sizes."""
    rank, size = dist.get_rank(), dist.get_world_size()
    sent = [rank + to + (name != "nothing for one") for to in range(size)]
    got = [came + rank + (name != "nothing for one") for came in range(size)]
    if name == "all_to_all":
        outputs = [torch.empty(count) for count in got]
        dist.all_to_all(outputs, list(numbers(sum(sent)).split(sent)))
        return outputs
    output = torch.empty(sum(got), 2)
    dist.all_to_all_single(output, numbers(sum(sent), 2), got, sent)
    return output


_ASYNCHRONOUS = {
    "all_reduce": lambda x: (dist.all_reduce(x, async_op=True), x),
    "broadcast": lambda x: (dist.broadcast(x, 0, async_op=True), x),
    "reduce": lambda x: (dist.reduce(x, 0, async_op=True), x if dist.get_rank() == 0 else None),
    "barrier": lambda x: (dist.barrier(async_op=True), None),
    "all_gather_into_tensor": lambda x: _into(dist.all_gather_into_tensor, x, 2),
    "reduce_scatter_tensor": lambda x: _into(dist.reduce_scatter_tensor, x, 0.5),
    "all_to_all_single": lambda x: _into(dist.all_to_all_single, x, 1),
}


def _into(call, tensor, times):
    output = torch.empty(int(tensor.numel() * times))
    return call(output, tensor, async_op=True), output


@programs("works", each(_ASYNCHRONOUS))
def works(name):
    """Ask a work all that works are asked."""
    work, output = _ASYNCHRONOUS[name](numbers(4))
    waited = work.wait(timedelta(seconds=20))
    seen = [waited, work.is_completed(), work.is_success(), work.exception()]
    future = work.get_future()
    future.wait()
    return seen, future.done(), output


@programs("futures", each(("then", "chain", "add_done_callback", "collect_all", "wait_all", "a failing callback")))
def futures(name):
    """Go on when a call has ended."""
    tensor, seen = numbers(4), []
    future = dist.all_reduce(tensor, async_op=True).get_future()
    if name == "then":
        return future.then(lambda done: done.value()[0] + 1).wait()
    if name == "chain":
        return future.then(lambda done: done.value()[0]).then(lambda done: done.value() * 2).wait()
    if name == "add_done_callback":
        called = threading.Event()
        future.add_done_callback(lambda done: [seen.append(done.value()[0].sum().item()), called.set()])
        future.wait()
        called.wait(CALLBACK_S)  # another thread may be about to call it
        return seen
    other = dist.all_reduce(numbers(2), async_op=True).get_future()
    if name == "collect_all":
        return [done.value() for done in torch.futures.collect_all([future, other]).wait()]
    if name == "wait_all":
        return torch.futures.wait_all([future, other])
    other.wait()
    return refusal(future.then(lambda _: 1 / 0).wait)


@programs("orders", each(("many at once", "several waited for backwards", "by two threads", "with messages between")))
def orders(name):
    """Have several calls under way."""
    tensors = [numbers(4) + i for i in range(20)]
    if name == "by two threads":
        from concurrent.futures import ThreadPoolExecutor

        groups = [dist.new_group() for _ in range(2)]
        with ThreadPoolExecutor(2) as threads:
            list(
                threads.map(lambda i: [dist.all_reduce(tensor, group=groups[i]) for tensor in tensors[i::2]], range(2))
            )
        return tensors
    begun = [dist.all_reduce(tensor, async_op=True) for tensor in tensors]
    if name == "with messages between":
        tensors.append(_message(numbers(3)))
    for work in reversed(begun) if "backwards" in name else begun:
        work.wait()
    return tensors


@programs("coalesced", each(("all_reduce", "all_gather", "reduce_scatter", "mixed", "asynchronous", "messages")))
def coalesced(name):
    """Hand in several calls as one."""
    size, group = dist.get_world_size(), dist.group.WORLD
    tensors = [numbers(4), numbers(2) + 1]
    outputs = [torch.empty(size * tensor.numel()) for tensor in tensors]
    with dist._coalescing_manager(group, async_ops=name == "asynchronous") as manager:
        for tensor, output in zip(tensors, outputs, strict=True):
            if name in ("all_reduce", "asynchronous", "mixed", "messages"):
                dist.all_reduce(tensor)
            elif name == "all_gather":
                dist.all_gather_into_tensor(output, tensor)
            else:
                dist.reduce_scatter_tensor(tensor[: tensor.numel() // size], tensor.clone())
    if name == "asynchronous":
        manager.wait()
    return tensors, outputs if name == "all_gather" else None


@programs("lists", each(("all_reduce_coalesced", "all_gather_coalesced", "of one's own", "strided", "views")))
def lists(name):
    """Give tensors in lists, and parts of others."""
    if name == "all_reduce_coalesced":
        tensors = [numbers(4), numbers(2, 2)]
        dist.all_reduce_coalesced(tensors)
        return tensors
    if name == "all_gather_coalesced":
        outputs = [[torch.empty(4), torch.empty(3)] for _ in range(dist.get_world_size())]
        dist.all_gather_coalesced(outputs, [numbers(4), numbers(3)])
        return outputs
    whole = torch.zeros(dist.get_world_size(), 6)
    if name == "of one's own":
        dist.all_gather(list(whole), whole[dist.get_rank()].copy_(numbers(6)))
    elif name == "strided":
        dist.all_gather([row[::2].clone() for row in whole], numbers(3))
    else:
        dist.broadcast(whole[1], 0)
        dist.all_gather(list(whole.unbind()), numbers(6))
    return whole


@programs(
    "messages", each(("batched", "batched, one way", "any source", "by tags", "to oneself", "many", "group ranks"))
)
def messages(name):
    """Send and receive in the ways that programs do."""
    rank, size = dist.get_rank(), dist.get_world_size()
    other, output = (rank + 1) % size, torch.zeros(4)
    if name == "batched":
        calls = dist.P2POp(dist.isend, numbers(4), other), dist.P2POp(dist.irecv, output, (rank - 1) % size)
        for work in dist.batch_isend_irecv(list(calls)):
            work.wait()
    elif name == "batched, one way":
        call = dist.P2POp(dist.isend, numbers(4), 1) if rank == 0 else dist.P2POp(dist.irecv, output, 0)
        for work in dist.batch_isend_irecv([call]):
            work.wait()
    elif name == "any source":
        if rank == 0:
            return dist.recv(output), output
        dist.send(numbers(4), 0)
    elif name == "by tags":
        if rank == 0:
            for tag in (5, 6):
                dist.send(numbers(4) * tag, 1, tag=tag)
        else:
            first = torch.zeros(4)
            begun = [dist.irecv(output, 0, tag=5), dist.irecv(first, 0, tag=6)]
            for work in begun:
                work.wait()
            return output, first
    elif name == "to oneself":
        return refusal(lambda: dist.send(output, rank)), refusal(lambda: dist.recv(output, rank))
    elif name == "many":
        for turn in range(50):
            (dist.send if (turn + rank) % 2 else dist.recv)(output, other)
            output += 1
    elif rank == 0:
        dist.send(numbers(4), group=dist.group.WORLD, group_dst=1)
    else:
        dist.recv(output, group=dist.group.WORLD, group_src=0)
    return output


_BARRIERS = {
    "barrier": lambda: [dist.barrier() for _ in range(5)],
    "of a pair": lambda: dist.barrier(dist.new_group([0, 1])),
    "monitored": lambda: _monitored(20),
    "monitored, all named": lambda: _monitored(20, wait_all_ranks=True),
    "monitored, one missing": lambda: _missing(),
    "monitored, all missing named": lambda: _missing(wait_all_ranks=True),
    "monitored, by torch's function": lambda: dist.monitored_barrier(timeout=timedelta(seconds=20)),
}


def _monitored(seconds, **options):
    return dist.group.WORLD.monitored_barrier(timedelta(seconds=seconds), **options)


def _missing(**options):
    return refusal(lambda: _monitored(1, **options)) if dist.get_rank() == 0 else None


@programs("barriers", each(_BARRIERS))
def barriers(name):
    """Meet."""
    return _BARRIERS[name]()


_REFUSED = {
    "no tensor": lambda x: dist.all_reduce([x]),
    "another operator": lambda x: dist.all_reduce(x, "sum"),
    "a root that is not there": lambda x: dist.broadcast(x, 7),
    "a root below 0": lambda x: dist.broadcast(x, -1),
    "too short a list": lambda x: dist.all_gather([x], x),
    "other sizes in a list": lambda x: dist.all_gather([torch.empty(4), torch.empty(3)], x),
    "dtypes of two kinds": lambda x: dist.all_gather([torch.empty(4, dtype=torch.int32)] * 2, x),
    "an output of another size": lambda x: dist.all_gather_into_tensor(torch.empty(5), x),
    "an input that cannot be split": lambda x: dist.reduce_scatter_tensor(torch.empty(2), torch.empty(5)),
    "no list at the root": lambda x: dist.scatter(x, None, dist.get_rank()),
    "splits of another sum": lambda x: dist.all_to_all_single(torch.empty(4), x, [1, 1], [2, 2]),
    "bits of floats": lambda x: dist.all_reduce(x, dist.ReduceOp.BAND),
    "batched, nothing": lambda x: dist.batch_isend_irecv([]),
    "a message's function": lambda x: dist.P2POp(dist.broadcast, x, 1),
    "sparse, broadcast": lambda x: dist.broadcast(x.to_sparse(), 0),
}


@programs("mistakes", each(_REFUSED))
def mistakes(name):
    """Make a mistake on all ranks."""
    return refusal(lambda: _REFUSED[name](numbers(4)))


@programs("complex", each(("all_reduce", "MAX", "reduce")))
def complex_numbers(name):
    """Reduce complex numbers, of which no one is the greatest."""
    tensor = torch.complex(numbers(4), -numbers(4))
    if name == "MAX":
        return refusal(lambda: dist.all_reduce(tensor, dist.ReduceOp.MAX))
    dist.all_reduce(tensor) if name == "all_reduce" else dist.reduce(tensor, 0)
    return tensor if name == "all_reduce" or dist.get_rank() == 0 else None


@programs("sparse", each(("all_reduce", "of unequal counts", "asynchronous", "hybrid")))
def sparse(name):
    """Sum sparse tensors."""
    rank = dist.get_rank()
    count = 1 + rank if name == "of unequal counts" else 2
    values = torch.ones(count, 3) if name == "hybrid" else torch.ones(count)
    tensor = torch.sparse_coo_tensor([list(range(rank, rank + count))], values * (rank + 1), (8, *values.shape[1:]))
    work = dist.all_reduce(tensor, async_op=name == "asynchronous")
    if work:
        work.wait()
    return work.result() if work else tensor
