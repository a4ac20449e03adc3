"""What the ranks of `test_collectives.py` do."""

import threading
from datetime import timedelta
from functools import partial
from itertools import product
from unittest import mock

import pytest
import torch
import torch.distributed as dist

DTYPES = """
    uint8 int8 int16 int32 int64 uint16 uint32 uint64 float16 bfloat16 float32 float64 complex64 complex128 bool
    float8_e4m3fn float8_e4m3fnuz float8_e5m2 float8_e5m2fnuz
""".split()
#: NumPy knows no sum of these.
MOVED_ALONE = ("float8_e8m0fnu", "complex32", "quint8")


def same(found, expected):
    assert found.dtype == expected.dtype
    assert torch.equal(found.to(torch.complex128), expected.to(torch.complex128)), (found, expected)


def filled(value, shape, dtype):
    return torch.full(shape, value, dtype=torch.float64).to(dtype)


def every_dtype(rank, size):
    """Reduce and move tensors of all dtypes, synchronously and not."""
    for name in DTYPES:
        dtype = getattr(torch, name)
        for async_op in (False, True):
            total = filled(rank + 1, (2, 3), dtype)
            _end(dist.group.WORLD.allreduce([total], _options(async_op)))
            same(total, filled(1 if dtype is torch.bool else sum(range(1, size + 1)), (2, 3), dtype))
            moved = filled(rank, (2, 3), dtype)
            _end(dist.broadcast(moved, 1, async_op=async_op))
            same(moved, filled(1, (2, 3), dtype))


def _options(async_op):
    options = dist.AllreduceOptions()
    options.asyncOp = async_op
    return options


def _end(work):
    if work is not None:
        work.wait()


def moved_alone(rank, size):
    """Move dtypes that NumPy does not know."""
    for dtype in (torch.float8_e8m0fnu, torch.complex32):
        expected = torch.arange(8, dtype=torch.uint8).view(dtype)
        tensor = expected.clone() if rank == 0 else torch.zeros(8, dtype=torch.uint8).view(dtype)
        dist.broadcast(tensor, 0)
        assert torch.equal(tensor.view(torch.uint8), expected.view(torch.uint8))
    small = torch.view_as_complex(torch.full((3, 2), rank + 1.0, dtype=torch.float16))
    dist.all_reduce(small)  # which torch hands on as float16
    assert torch.view_as_real(small).eq(size * (size + 1) / 2).all()


def every_call(rank, size):
    """Make every call of torch.distributed, synchronously and not; then what torch says of the results is compared."""
    for async_op in (False, True):
        for layout in (_plain, _transposed, _strided, _requiring):
            _every_call(rank, size, async_op, layout)


def _plain(value, shape=(4, 2)):
    return torch.full(shape, float(value))


def _transposed(value, shape=(4, 2)):
    return torch.full(shape[::-1], float(value)).t()


def _strided(value, shape=(4, 2)):
    return torch.full((shape[0], 3 * shape[1]), -1.0)[:, ::3].fill_(value)


def _requiring(value, shape=(4, 2)):
    return torch.full(shape, float(value), requires_grad=True)


def _every_call(rank, size, async_op, make_one):
    total, versions = sum(range(1, size + 1)), []

    def make(*args):
        tensor = make_one(*args)
        versions.append((tensor, tensor._version))
        return tensor

    def check(work, *pairs):
        """Look at the tensors that a call has written to, and whether it has told autograd of these and no others."""
        written = {tensor.untyped_storage().data_ptr() for tensor, _ in pairs}
        for tensor, before in versions:
            assert (tensor._version > before) is (tensor.untyped_storage().data_ptr() in written)
        versions.clear()
        _end(work)
        for tensor, value in pairs:
            same(tensor.detach(), torch.full_like(tensor, value, requires_grad=False))

    tensor = make(rank + 1)
    check(dist.all_reduce(tensor, async_op=async_op), (tensor, total))
    tensor = make(rank + 1)
    check(dist.all_reduce(tensor, dist.ReduceOp.AVG, async_op=async_op), (tensor, total / size))
    tensor = make(rank + 1)
    check(dist.reduce(tensor, 1, async_op=async_op), *([(tensor, total)] if rank == 1 else []))
    tensor = make(rank)
    check(dist.broadcast(tensor, 1, async_op=async_op), *([] if rank == 1 else [(tensor, 1)]))
    outputs = [make(-1) for _ in range(size)]
    check(dist.all_gather(outputs, make(rank), async_op=async_op), *zip(outputs, range(size), strict=True))
    whole = make(-1, (4 * size, 2))
    parts = [(whole[4 * r : 4 * r + 4], r) for r in range(size)]
    check(dist.all_gather_single(whole, make(rank), async_op=async_op), *parts)
    outputs = [make(-1) for _ in range(size)] if rank == 1 else None
    check(dist.gather(make(rank), outputs, 1, async_op=async_op), *(zip(outputs or [], range(size), strict=False)))
    inputs = [make(r) for r in range(size)] if rank == 1 else None
    tensor = make(-1)
    check(dist.scatter(tensor, inputs, 1, async_op=async_op), (tensor, rank))
    tensor = make(-1)
    check(dist.reduce_scatter(tensor, [make(r) for r in range(size)], async_op=async_op), (tensor, rank * size))
    whole, tensor = torch.cat([make(r) for r in range(size)]), make(-1)
    check(dist.reduce_scatter_single(tensor, whole, async_op=async_op), (tensor, rank * size))
    outputs = [make(-1) for _ in range(size)]
    check(
        dist.all_to_all(outputs, [make(10 * rank + r) for r in range(size)], async_op=async_op),
        *((out, 10 * r + rank) for r, out in enumerate(outputs)),
    )
    whole, output = torch.cat([make(10 * rank + r) for r in range(size)]), make(-1, (4 * size, 2))
    check(
        dist.all_to_all_single(output, whole, async_op=async_op),
        *((output[4 * r : 4 * r + 4], 10 * r + rank) for r in range(size)),
    )
    check(dist.barrier(async_op=async_op))


def averages(rank, size):
    """Average integers as NCCL does: the sum, divided and rounded towards zero."""
    for dtype in (torch.int8, torch.int16, torch.int32, torch.int64, torch.uint8, torch.uint32):
        values = (5, -6) if dtype.is_signed else (5, 6)
        for async_op, is_transposed in product((False, True), repeat=2):
            _averages(rank, size, values, dtype, async_op, is_transposed)
    tensors = [torch.tensor([rank]), torch.tensor([10 * rank])]
    dist.all_reduce_coalesced(tensors, dist.ReduceOp.AVG)
    assert tensors == [sum(range(size)) // size, 10 * sum(range(size)) // size]


def _averages(rank, size, values, dtype, async_op, is_transposed):
    def make(values):
        made = torch.cat([_plain(value, (2, 2)) for value in values]).to(dtype)
        return made.t().contiguous().t() if is_transposed else made

    mine = [value + rank for value in values]
    expected = make([int(sum(value + r for r in range(size)) / size) for value in values])
    for call, given, wanted in (
        (dist.all_reduce, (), expected),
        (dist.reduce, (0,), expected if rank == 0 else make(mine)),
        (dist.reduce_scatter, ([make(mine)] * size,), expected),
        (dist.reduce_scatter_single, (torch.cat([make(mine)] * size),), expected),
    ):
        tensor = make(mine)
        _end(call(tensor, *given, dist.ReduceOp.AVG, async_op=async_op))
        same(tensor, wanted)


def uneven(rank, size):
    """Gather, scatter and exchange parts of different sizes."""
    outputs = [torch.zeros(r + 1) for r in range(size)]
    dist.all_gather(outputs, torch.full((rank + 1,), float(rank)))
    assert [out.tolist() for out in outputs] == [[float(r)] * (r + 1) for r in range(size)]
    sends, comes = [r + 1 for r in range(size)], [rank + 1] * size
    whole, output = torch.arange(2.0 * sum(sends)).view(-1, 2) + 100 * rank, torch.zeros(sum(comes), 2)
    dist.all_to_all_single(output, whole, comes, sends)
    begin = sum(sends[:rank])
    expected = [torch.arange(2.0 * sum(sends)).view(-1, 2)[begin : begin + rank + 1] + 100 * r for r in range(size)]
    assert torch.equal(output, torch.cat(expected))
    nothing = [torch.empty(0) for _ in range(size)]
    dist.all_gather(nothing, torch.empty(0))


def objects(rank, size):
    """Call what moves objects."""
    gathered = [None] * size
    dist.all_gather_object(gathered, {"rank": rank})
    assert gathered == [{"rank": r} for r in range(size)]
    listed = [("from", rank), rank]
    dist.broadcast_object_list(listed, 1)
    assert listed == [("from", 1), 1]
    mine = [None]
    dist.scatter_object_list(mine, [f"for {r}" for r in range(size)], 0)
    assert mine == [f"for {rank}"]
    at_root = [None] * size if rank == 0 else None
    dist.gather_object(rank, at_root)
    assert at_root == (list(range(size)) if rank == 0 else None)


def messages(rank, size):
    """Send and receive: with tags, from anyone, several at once, to oneself, and not in order."""
    left, right = (rank - 1) % size, (rank + 1) % size
    if rank == 0:
        dist.send(torch.arange(3.0), 1, tag=7)
    elif rank == 1:
        tensor = torch.zeros(2, 3).t()[:, 0]
        assert dist.recv(tensor, tag=7) == 0
        assert tensor.tolist() == [0, 1, 2]
    tensor = torch.zeros(2, 2)
    operations = [
        dist.P2POp(dist.irecv, tensor, left),
        dist.P2POp(dist.isend, torch.full((2, 2), float(rank)).t(), right),
    ]
    for work in dist.batch_isend_irecv(operations):
        work.wait()
    assert tensor.eq(left).all()
    own = torch.zeros(1)
    works = [dist.isend(torch.ones(1), rank), dist.irecv(own, rank)]
    for work in works:
        work.wait(timedelta(seconds=30))
    assert own.item() == 1
    assert works[1].source_rank() == rank
    anyone = torch.zeros(1)
    work = dist.irecv(anyone)
    assert anyone._version == 1
    dist.isend(torch.full((1,), float(rank)), right).wait()
    work.wait()
    assert (work.source_rank(), anyone.item()) == (left, left)


def coalesced(rank, size):
    """Make several calls as one."""
    total = size * (size + 1) / 2
    tensors = [torch.full((n,), float(rank + 1)) for n in (1, 5)]
    with dist._coalescing_manager():
        for tensor in tensors:
            dist.all_reduce(tensor)
    assert all(tensor.eq(total).all() for tensor in tensors)
    outputs = [torch.zeros(n * size) for n in (1, 5)]
    with dist._coalescing_manager(async_ops=True) as block:
        for output in outputs:
            dist.all_gather_single(output, torch.full((output.numel() // size,), float(rank)))
    block.wait()
    assert [out[-1].item() for out in outputs] == [size - 1] * 2
    wholes, parts = [torch.ones(n * size) for n in (1, 5)], [torch.zeros(n) for n in (1, 5)]
    with dist._coalescing_manager():
        for part, whole in zip(parts, wholes, strict=True):
            dist.reduce_scatter_single(part, whole)
    assert all(part.eq(size).all() for part in parts)
    received = torch.zeros(3)
    with dist._coalescing_manager(device=torch.device("cpu"), async_ops=True) as block:
        dist.isend(torch.full((3,), float(rank)), (rank + 1) % size)
        dist.irecv(received, (rank - 1) % size)
    block.wait()
    assert received.eq((rank - 1) % size).all()


def sparse(rank, size):
    """Sum sparse tensors, also empty ones and ones with dense dimensions."""
    for dense in ((), (2,)):
        share = partial(_sparse, size, dense)
        tensor = share(rank)
        dist.all_reduce(tensor)
        assert torch.equal(tensor.to_dense(), sum(share(r).to_dense() for r in range(size)))
    for shape in ((3,), (0, 2), (2, 0)):
        empty = torch.sparse_coo_tensor(size=shape, check_invariants=True)
        dist.all_reduce(empty)
        assert empty.to_dense().tolist() == torch.zeros(shape).tolist()
    _sparse_in_several_dimensions(rank, size)
    _sparse_later(rank, size)
    _sparse_that_do_not_fit(rank, size)


def _sparse_in_several_dimensions(rank, size):
    """With indices that are there twice, in no order, of dtypes of each kind; complex ones torch hands on as copies."""
    for dtype, sparse_dims in product((torch.bfloat16, torch.int8, torch.float64), (1, 2, 3)):
        shares = [_random_sparse(r, sparse_dims, dtype) for r in range(size)]
        tensor = shares[rank].clone()
        version = tensor._version
        dist.all_reduce(tensor)
        assert tensor._version > version
        assert tensor.sparse_dim() == sparse_dims
        same(tensor.to_dense(), sum(share.to_dense() for share in shares))


def _random_sparse(seed, sparse_dims, dtype):
    shape, numbers = (4, 3, 2), torch.Generator().manual_seed(seed)
    places = torch.stack([torch.randint(length, (5,), generator=numbers) for length in shape[:sparse_dims]])
    values = torch.randint(-8, 8, (5, *shape[sparse_dims:]), generator=numbers).to(dtype)
    return torch.sparse_coo_tensor(places, values, shape, check_invariants=True)


def _sparse_later(rank, size):
    """An asynchronous sum waits for nobody, whatever is called meanwhile, and has a time-out of its own."""
    share, message, dense = partial(_sparse, size, ()), torch.zeros(3), torch.ones(2)
    tensor = share(rank)
    if rank:
        dist.recv(message, rank - 1)
    work = dist.all_reduce(tensor, async_op=True)
    other = dist.all_reduce(dense, async_op=True)
    if rank + 1 < size:
        dist.send(message, rank + 1)
    other.wait()
    work.wait()
    assert torch.equal(tensor.to_dense(), sum(share(r).to_dense() for r in range(size)))
    assert dense.eq(size).all()
    if rank == 0:
        options, group = _options(True), dist.new_group([0, 1])
        options.timeout = timedelta(seconds=0.5)
        with pytest.raises(dist.DistBackendError, match="timed out"):
            group.allreduce([share(0)], options).wait()
    elif rank == 1:
        dist.new_group([0, 1])


def _sparse_that_do_not_fit(rank, size):
    """Another shape, dtype or number of sparse dimensions on one rank is an error on all, and nothing is changed."""
    odd = [
        torch.sparse_coo_tensor([[999]], [1.0], (1000,), check_invariants=True),
        torch.sparse_coo_tensor([[1]], [1], (size + 1,), check_invariants=True),
        torch.ones(size + 1),
        torch.ones(size + 1, 2).to_sparse(1),
    ]
    for other in odd:
        tensor = _sparse(size, (), 0) if rank else other
        before = tensor.to_dense().clone()
        with pytest.raises(dist.DistBackendError, match="did not make the same call"):
            dist.all_reduce(tensor)
        assert torch.equal(tensor.to_dense(), before)


def _sparse(size, dense, rank):
    places = torch.tensor([[rank, rank + 1]])
    return torch.sparse_coo_tensor(places, torch.ones(2, *dense), (size + 1, *dense), check_invariants=True)


def direct(rank, size):
    """Call the group's methods as programs do that know torch's own groups."""
    group, total = dist.group.WORLD, size * (size + 1) / 2
    tensor = torch.full((2,), float(rank + 1))
    assert group.allreduce(tensor).get_future().wait()[0] is tensor
    assert tensor.eq(total).all()
    assert group.allreduce([tensor], dist.ReduceOp.MAX).wait()
    assert group.broadcast(tensor, root=1).wait()
    assert group.reduce(tensor, root=0).wait()
    outputs = [torch.zeros(2) for _ in range(size)]
    work = group.allgather(outputs, tensor)
    assert work.result() == outputs
    assert work.is_success()
    assert work.exception() is None
    lists = [[torch.zeros(2), torch.zeros(3)] for _ in range(size)]
    group.allgather_coalesced(lists, [torch.ones(2), torch.ones(3)]).wait()
    assert all(out.eq(1).all() for outs in lists for out in outs)
    assert group.barrier(timedelta(seconds=30)).wait()
    factor = dist._make_nccl_premul_sum(0.5)
    tensor = torch.ones(2)
    group.allreduce([tensor], factor).wait()
    assert tensor.eq(size / 2).all()


def quiet_when_synchronous(rank, size):
    """A synchronous call makes no thread and no future."""
    dist.all_reduce(torch.ones(2))
    before = threading.active_count()
    with mock.patch.object(torch.futures.Future, "__init__", side_effect=AssertionError("a future was made")):
        for _ in range(50):
            dist.all_reduce(torch.ones(2))
            dist.broadcast(torch.ones(1 << 16), 0)
            dist.barrier()
    assert threading.active_count() <= before


def memory(rank, size):
    """Tensors live until their operation has ended, and their storages can be resized afterwards."""
    works = []
    for i in range(20):
        tensor = torch.full((1 << 18,), float(rank + i))
        works.append(dist.all_reduce(tensor, async_op=True))
        del tensor
    for i, work in enumerate(works):
        work.wait()
        assert work.result()[0].eq(sum(r + i for r in range(size))).all()
    tensor = torch.ones(4)
    dist.all_reduce(tensor)
    storage = tensor.untyped_storage()
    storage.resize_(0)
    storage.resize_(64)
    assert storage.resizable()


def own_calls(rank, size):
    """Hand tensors to rankwise's own calls, of any dtype and requiring gradients or not."""
    import rankwise
    import rankwise_torch

    rankwise_torch.install()
    group, total = dist.group.WORLD.under, size * (size + 1) / 2
    for tensor in (
        torch.full((2, 3), rank + 1.0, dtype=torch.bfloat16),
        torch.nn.Parameter(torch.full((3,), rank + 1.0)),
        torch.full((200, 300), rank + 1.0).t(),
    ):
        version = tensor._version
        rankwise.all_reduce(tensor, group=group)
        assert tensor.eq(total).all()
        assert tensor._version > version
    transposed = torch.arange(6.0).view(2, 3).t()
    whole = torch.zeros(size, 3, 2)
    rankwise.all_gather_single(whole, transposed, group=group)
    assert whole.eq(transposed).all()
    assert transposed._version == 0
    refused = torch.ones(2, device="meta"), torch.ones(2).to_sparse(), torch.ones(2, dtype=torch.complex64).conj()
    for tensor in refused:
        with pytest.raises(TypeError, match="no memory to share"):
            rankwise.all_reduce(tensor, group=group)


def waiting_in_callbacks(rank, size):
    """Wait, in a callback of a future, for the future of another call, as PowerSGD does."""

    def go_on(ended):
        tensor = ended.value()[0]
        for _ in range(3):
            tensor = dist.all_reduce(tensor, async_op=True).get_future().wait()[0]
        return tensor

    for _ in range(20):
        future = dist.all_reduce(torch.ones(1000), async_op=True).get_future().then(go_on)
        assert future.wait().eq(size**4).all()


def events(rank, size):
    """The profiler has an event for each call."""
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU], record_shapes=True) as profile:
        dist.all_reduce(torch.ones(2, 3))
        dist.all_reduce(torch.ones(4), async_op=True).wait()
        dist.barrier()
    found = [(event.name, event.input_shapes) for event in profile.events() if event.name.startswith("rankwise:")]
    assert found == [("rankwise:all_reduce", [[2, 3]]), ("rankwise:all_reduce", [[4]]), ("rankwise:barrier", [])]


def memory_orders(rank, size):
    """Reduce and move large tensors that lie in any order, alike on all ranks or not, synchronously and not."""
    layouts = {
        "plain": lambda plain: plain.clone(),
        "transposed": lambda plain: plain.permute(3, 2, 1, 0).contiguous().permute(3, 2, 1, 0),
        "channels last": lambda plain: plain.contiguous(memory_format=torch.channels_last),
        "strided": lambda plain: torch.stack([plain, -plain], -1)[..., 0],
        "transposed, in part": lambda plain: torch.cat([plain.mT, plain.mT], -1)[..., : plain.shape[-2]].mT,
    }
    names = list(layouts)
    for dtype, async_op in product((torch.float32, torch.bfloat16, torch.int32), (False, True)):
        each = [(torch.arange(8 * 16 * 16 * 24) % 7 + r).to(dtype).reshape(8, 16, 16, 24) for r in range(size)]
        total = sum(each)
        for step, first in product((0, 1), names):
            layout = layouts[names[(names.index(first) + step * rank) % len(names)]]
            _in_any_order(rank, each, total, layout, async_op)
    wide = torch.ones(1, 40_000) if rank else torch.ones(200, 200).t()
    dist.all_reduce(wide)  # as many elements
    assert wide.eq(size).all()


def _in_any_order(rank, each, total, layout, async_op):
    tensor = layout(each[rank])
    version, strides = tensor._version, tensor.stride()
    _end(dist.all_reduce(tensor, async_op=async_op))
    same(tensor, total)
    assert (tensor._version > version, tensor.stride()) == (True, strides)
    tensor = layout(each[rank])
    _end(dist.broadcast(tensor, 1, async_op=async_op))
    same(tensor, each[1])
    tensor = layout(each[rank])
    _end(dist.reduce(tensor, 1, async_op=async_op))
    same(tensor, total if rank == 1 else each[rank])
    if total.dtype is torch.int32:
        tensor = layout(each[rank])
        _end(dist.all_reduce(tensor, dist.ReduceOp.AVG, async_op=async_op))
        same(tensor, total // len(each))
