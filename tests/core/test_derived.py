"""The collectives that are derived from messages, on threads that share nothing but a strict mailbox."""

import threading
from collections import defaultdict, deque
from concurrent.futures import ThreadPoolExecutor
from functools import partial, reduce
from itertools import pairwise

import numpy as np
import pytest

from rankwise.basics.deadline import Deadline
from rankwise.basics.reduce_op import ReduceOp
from rankwise.basics.work import FutureWork
from rankwise.collective import derived
from rankwise.collective.executor import Executor
from rankwise.errors import DistBackendError, DistTimeoutError
from rankwise_tools.explaining.algorithms import ALGORITHMS

SIZES = [1, 2, 3, 4, 5]
PADDED = np.dtype([("x", "i1"), ("y", ">f8"), ("z", [("t", "M8[s]"), ("u", "?", 3)])], align=True)
MOVED = ["?", "i1", "u2", "i8", "f2", "f4", "f8", "c8", "g", "M8[s]", "S3", "U2", "V5", ">i4", ">c16", ">U2", PADDED]
OPS = [ReduceOp.SUM, ReduceOp.PRODUCT, ReduceOp.MIN, ReduceOp.MAX, ReduceOp.BAND, ReduceOp.BOR, ReduceOp.BXOR]
TIMEOUT_S = 20


class Wires:
    """Messages between threads, under the loosest terms that a backend may offer.

    A send is read only when its receive is there, and has not ended before: a sender that changes its buffer too
    early, or that waits for a send before it has posted its receives, is found out.
    """

    def __init__(self):
        self.lock = threading.Lock()
        self.sends = defaultdict(deque)
        self.receives = defaultdict(deque)
        self.messages = 0
        self.nbytes = defaultdict(int)

    def post(self, mine, theirs, key, array):
        work = FutureWork()
        with self.lock:
            mine[key].append((array, work))
            while self.sends[key] and self.receives[key]:
                self.deliver(key, *self.sends[key].popleft(), *self.receives[key].popleft())
        return work

    def deliver(self, key, source, sent, target, received):
        self.messages += 1
        self.nbytes[key[0]] += source.nbytes
        if source.nbytes != target.nbytes:
            error = DistBackendError(f"{source.nbytes} bytes from {key[0]} do not fit {target.nbytes} of {key[1]}")
            sent.fail(error)
            received.fail(error)
        else:
            if source.nbytes:
                target.reshape(-1).view(np.uint8)[...] = source.reshape(-1).view(np.uint8)
            received.succeed(source=key[0])
            sent.succeed()


class Rank:
    """One thread's view of the wires."""

    def __init__(self, wires, rank, size):
        self.wires, self.rank, self.size = wires, rank, size

    def isend(self, array, dst, tag):
        assert array.flags.c_contiguous
        return self.wires.post(self.wires.sends, self.wires.receives, (self.rank, dst, tag), array)

    def irecv(self, array, src, tag):
        assert array.flags.c_contiguous
        assert array.flags.writeable
        return self.wires.post(self.wires.receives, self.wires.sends, (src, self.rank, tag), array)


def on_ranks(size, function):
    """Run `function(comm, deadline)` on `size` threads, and return the results and the wires."""
    wires = Wires()
    with ThreadPoolExecutor(size) as pool:
        calls = [pool.submit(function, Rank(wires, rank, size), Deadline(TIMEOUT_S)) for rank in range(size)]
        results = [call.result(TIMEOUT_S + 5) for call in calls]
    assert not any(wires.sends.values())
    assert not any(wires.receives.values())
    return results, wires


def all_counts(size):
    """Return how many elements the parts of some ranks may have: equally many, not so, some none, and all none."""
    return [4] * size, [3 * i + 1 for i in range(size)], [0 if i % 2 == 0 else 5 for i in range(size)], [0] * size


def data(dtype, count, seed):
    """Return `count` elements of any plain dtype."""
    dtype = np.dtype(dtype)
    random = np.random.default_rng(seed)
    if dtype.names is None and dtype.kind in "?iufc":
        return (random.integers(0, 5, count) + (1j if dtype.kind == "c" else 0)).astype(dtype)
    array = np.zeros(count, dtype)  # a copy of one would leave out the padding
    array.view(np.uint8)[:] = random.integers(1, 100, count * dtype.itemsize, np.uint8)
    return array


def split(flat, counts):
    ends = np.cumsum([0, *counts])
    return [flat[begin:end] for begin, end in pairwise(ends)]


def layouts(dtype, counts):
    """Return empty parts in both ways in which callers give them: views of one array, and arrays of their own."""
    views = split(np.zeros(sum(counts), dtype), counts)
    return {"views": views, "separate": [np.zeros(count, dtype) for count in counts]}


def layouts_of(op):
    """Return the ways in which an operation is given its parts; where it has none, they make no difference."""
    return ("views",) if op in ("broadcast", "all_reduce", "reduce", "barrier") else ("views", "separate")


def force(monkeypatch, names):
    """Have the ops in `names` use that algorithm, whatever the size of the arrays."""
    choose = derived.algorithm

    def forced(op, nbytes, size):
        return ALGORITHMS[op][names[op]] if op in names else choose(op, nbytes, size)

    monkeypatch.setattr(derived, "algorithm", forced)


UFUNCS = {"SUM": np.add, "PRODUCT": np.multiply, "MIN": np.minimum, "MAX": np.maximum}
UFUNCS |= {"BAND": np.bitwise_and, "BOR": np.bitwise_or, "BXOR": np.bitwise_xor}


def expected_reduction(op, arrays):
    return reduce(UFUNCS[op.name], arrays)


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize(("op", "name"), [(op, name) for op, family in ALGORITHMS.items() for name in family])
def test_every_algorithm_gives_what_numpy_gives(op, name, size, monkeypatch):
    force(monkeypatch, {op: name})
    for counts in all_counts(size):
        for layout in layouts_of(op):
            CHECKS[op](size, np.dtype("i8"), counts, layout)


MOVES = ("broadcast", "all_gather", "gather", "scatter", "all_to_all")
MOVING = [(op, name) for op in MOVES for name in ALGORITHMS[op]]


@pytest.mark.parametrize("dtype", MOVED, ids=lambda dtype: np.dtype(dtype).str)
@pytest.mark.parametrize(("op", "name"), MOVING)
def test_every_plain_dtype_moves_byte_for_byte(op, name, dtype, monkeypatch):
    """On five ranks, where algorithms put blocks together and hand them on; padding and NaNs included."""
    force(monkeypatch, {op: name})
    for layout in layouts_of(op):
        CHECKS[op](5, np.dtype(dtype), [2, 0, 5, 1, 3], layout)


def given_only(array):
    """Return an array that must not be written to, as the owner of its memory."""
    copy = np.empty_like(array)
    copy.view(np.uint8)[:] = array.view(np.uint8)
    copy.flags.writeable = False
    return copy


def laid_out(contents, layout):
    """Return parts with some contents, which must not be written to."""
    parts = layouts(contents[0].dtype, [content.size for content in contents])[layout]
    for part, content in zip(parts, contents, strict=True):
        part.view(np.uint8)[...] = content.view(np.uint8)
        part.flags.writeable = False
    return parts


def same_bytes(array, wanted):
    assert array.dtype == wanted.dtype
    assert array.tobytes() == wanted.tobytes()


def all_same_bytes(arrays, wanted):
    for array, content in zip(arrays, wanted, strict=True):
        same_bytes(array, content)


def from_each_root(check):
    """Have a check made for each root."""
    return lambda size, *terms: [check(size, *terms, root) for root in range(size)]


@from_each_root
def check_broadcast(size, dtype, counts, layout, root):
    given = [data(dtype, sum(counts), rank) for rank in range(size)]

    def call(comm, deadline):
        array = given_only(given[root]) if comm.rank == root else given[comm.rank]
        derived.broadcast(comm, array, root, deadline)
        return array

    for array in on_ranks(size, call)[0]:
        same_bytes(array, given[root])


def check_all_reduce(size, dtype, counts, layout):
    given = [data(dtype, sum(counts), rank) for rank in range(size)]

    def call(comm, deadline):
        array = given[comm.rank].copy()
        derived.all_reduce(comm, array, ReduceOp.SUM, deadline)
        return array

    for array in on_ranks(size, call)[0]:
        np.testing.assert_array_equal(array, sum(given))


@from_each_root
def check_reduce(size, dtype, counts, layout, root):
    given = [data(dtype, sum(counts), rank) for rank in range(size)]

    def call(comm, deadline):
        array = given[comm.rank].copy()
        array.flags.writeable = comm.rank == root
        derived.reduce(comm, array, ReduceOp.SUM, root, deadline)
        return array

    for rank, array in enumerate(on_ranks(size, call)[0]):
        np.testing.assert_array_equal(array, sum(given) if rank == root else given[rank])


def check_all_gather(size, dtype, counts, layout):
    given = [data(dtype, count, rank) for rank, count in enumerate(counts)]

    def call(comm, deadline):
        parts = layouts(dtype, counts)[layout]
        derived.all_gather(comm, parts, given_only(given[comm.rank]), deadline)
        return parts

    for parts in on_ranks(size, call)[0]:
        all_same_bytes(parts, given)


@from_each_root
def check_gather(size, dtype, counts, layout, root):
    given = [data(dtype, count, rank) for rank, count in enumerate(counts)]

    def call(comm, deadline):
        parts = layouts(dtype, counts)[layout] if comm.rank == root else None
        derived.gather(comm, parts, given_only(given[comm.rank]), root, counts, deadline)
        return parts

    all_same_bytes(on_ranks(size, call)[0][root], given)


@from_each_root
def check_scatter(size, dtype, counts, layout, root):
    given = [data(dtype, count, rank) for rank, count in enumerate(counts)]

    def call(comm, deadline):
        parts = laid_out(given, layout) if comm.rank == root else None
        array = np.zeros(counts[comm.rank], dtype)
        derived.scatter(comm, array, parts, root, counts, deadline)
        return array

    all_same_bytes(on_ranks(size, call)[0], given)


def check_reduce_scatter(size, dtype, counts, layout):
    given = [[data(dtype, count, 10 * rank + i) for i, count in enumerate(counts)] for rank in range(size)]

    def call(comm, deadline):
        parts = laid_out(given[comm.rank], layout)
        array = np.zeros(counts[comm.rank], dtype)
        derived.reduce_scatter(comm, array, parts, ReduceOp.SUM, deadline)
        all_same_bytes(parts, given[comm.rank])
        return array

    for rank, array in enumerate(on_ranks(size, call)[0]):
        np.testing.assert_array_equal(array, sum(parts[rank] for parts in given))


def check_all_to_all(size, dtype, counts, layout):
    # Rank i sends to rank j counts[(i + j) % size] elements: every pair differs, and rows differ between ranks.
    rows = [[counts[(i + j) % size] for j in range(size)] for i in range(size)]
    given = [[data(dtype, count, 10 * i + j) for j, count in enumerate(row)] for i, row in enumerate(rows)]

    def call(comm, deadline):
        outs = layouts(dtype, [rows[i][comm.rank] for i in range(size)])[layout]
        derived.all_to_all(comm, outs, [given_only(part) for part in given[comm.rank]], deadline)
        return outs

    for rank, outs in enumerate(on_ranks(size, call)[0]):
        all_same_bytes(outs, [row[rank] for row in given])


def check_barrier(size, dtype, counts, layout):
    arrived = []

    def call(comm, deadline):
        arrived.append(comm.rank)
        Executor(comm, [], [], deadline).run(ALGORITHMS["barrier"]["dissemination"](comm.rank, comm.size))
        return len(arrived)

    assert on_ranks(size, call)[0] == [size] * size


CHECKS = {op: globals()[f"check_{op}"] for op in ALGORITHMS}


@pytest.mark.parametrize("dtype", ["?", "i1", "u4", "f2", "f4", "f8", "c8", ">f8"])
@pytest.mark.parametrize("op", OPS, ids=repr)
def test_every_reduce_op_on_the_dtypes_that_numpy_has_it_for(op, dtype):
    dtype, size, counts = np.dtype(dtype), 3, [2, 4, 1]
    if not op.defined_for(dtype):
        with pytest.raises(TypeError):
            expected_reduction(op, [np.ones(2, dtype)] * 2)
        return
    given = [data(dtype, 7, rank) for rank in range(size)]

    def call(comm, deadline):
        everywhere, here, slice_ = given[comm.rank].copy(), given[comm.rank].copy(), np.zeros(counts[comm.rank], dtype)
        derived.all_reduce(comm, everywhere, op, deadline)
        derived.reduce(comm, here, op, 1, deadline)
        derived.reduce_scatter(comm, slice_, split(given[comm.rank], counts), op, deadline)
        return everywhere, here, slice_

    wanted = expected_reduction(op, given)
    for rank, (everywhere, here, slice_) in enumerate(on_ranks(size, call)[0]):
        np.testing.assert_array_equal(everywhere, wanted)
        np.testing.assert_array_equal(here, wanted if rank == 1 else given[rank])
        np.testing.assert_array_equal(slice_, split(wanted, counts)[rank])


@pytest.mark.parametrize("size", [2, 3, 5])
@pytest.mark.parametrize(
    ("op", "name"), [(op, name) for op in ("all_reduce", "reduce", "reduce_scatter") for name in ALGORITHMS[op]]
)
def test_average_and_premultiplied_sum(op, name, size, monkeypatch):
    force(monkeypatch, {op: name})
    given = [np.arange(size * 2.0) + rank for rank in range(size)]

    def call(comm, deadline, reduce_op):
        array, out = given[comm.rank].copy(), np.zeros(2)
        if op == "reduce_scatter":
            derived.reduce_scatter(comm, out, split(array, [2] * size), reduce_op(comm.rank), deadline)
            return out
        root = [size - 1] if op == "reduce" else []
        getattr(derived, op)(comm, array, reduce_op(comm.rank), *root, deadline)
        return array

    def reduced(reduce_op):
        results = on_ranks(size, partial(call, reduce_op=reduce_op))[0]
        return np.concatenate(results) if op == "reduce_scatter" else results[-1]

    np.testing.assert_allclose(reduced(lambda rank: ReduceOp.AVG), sum(given) / size)
    scaled = sum(array * (rank + 2) for rank, array in enumerate(given))
    np.testing.assert_allclose(reduced(lambda rank: ReduceOp.PREMUL_SUM(rank + 2)), scaled)


@pytest.mark.parametrize("dtype", ["f2", "f4", "f8"])
@pytest.mark.parametrize("size", [2, 3, 5, 6, 8])
@pytest.mark.parametrize("name", ALGORITHMS["all_reduce"])
def test_all_ranks_and_all_runs_have_the_same_bits(name, size, dtype, monkeypatch):
    """The numbers are chosen so that the sum depends on the order, which must therefore be one and the same."""
    force(monkeypatch, {"all_reduce": name})
    random = np.random.default_rng(7)
    given = [(random.standard_normal(257) * 4.0 ** random.integers(-2, 2, 257)).astype(dtype) for _ in range(size)]
    for sign, array in enumerate(given):
        array[:2] = [-0.0 if sign % 2 else 0.0, np.nan if sign == 1 else 1.0]
    orders = {sum(order[1:], order[0]).astype(dtype).tobytes() for order in (given, given[1:] + given[:1], given[::-1])}
    assert size == 2 or len(orders) > 1

    def call(comm, deadline, op):
        array = given[comm.rank].copy()
        derived.all_reduce(comm, array, op, deadline)
        return array.tobytes()

    for op in (ReduceOp.SUM, ReduceOp.AVG, ReduceOp.MIN, ReduceOp.PRODUCT):
        results = [result for _ in range(3) for result in on_ranks(size, partial(call, op=op))[0]]
        assert len(set(results)) == 1


def test_sums_of_halves_are_accumulated_in_single_precision():
    """2048 + 1 + 1 + 1 is 2048 in float16 if every step is rounded, and 2052 (to even) if only the last is."""

    def call(comm, deadline):
        array = np.array([2048.0 if comm.rank == 0 else 1.0], np.float16)
        derived.all_reduce(comm, array, ReduceOp.SUM, deadline)
        return float(array[0])

    assert on_ranks(4, call)[0] == [2052.0] * 4


def test_halves_travel_as_halves_where_nothing_combined_is_sent_on(monkeypatch):
    force(monkeypatch, {"reduce_scatter": "direct"})

    def call(comm, deadline):
        out = np.zeros(4, np.float16)
        derived.reduce_scatter(comm, out, split(np.ones(12, np.float16), [4] * 3), ReduceOp.SUM, deadline)
        return out.tolist()

    results, wires = on_ranks(3, call)
    assert results == [[3.0] * 4] * 3
    assert dict(wires.nbytes) == {0: 16, 1: 16, 2: 16}


@pytest.mark.parametrize("name", ALGORITHMS["all_reduce"])
def test_arrays_larger_than_a_cache(name, monkeypatch):
    """What is combined a cacheful at a time comes out whole, its ragged end included."""
    force(monkeypatch, {"all_reduce": name})

    def call(comm, deadline):
        array = np.arange(3 * 70_001, dtype=np.float64) * (comm.rank + 1)
        derived.all_reduce(comm, array, ReduceOp.SUM, deadline)
        return array

    for array in on_ranks(3, call)[0]:
        np.testing.assert_array_equal(array, 6.0 * np.arange(3 * 70_001))


@pytest.mark.parametrize("shape", [(), (0,), (1,), (3, 0, 2), (2, 3, 5)])
@pytest.mark.parametrize("size", [1, 2, 4])
def test_arrays_of_any_shape(shape, size):
    def call(comm, deadline):
        mine = np.full(shape, comm.rank + 1.0)
        total, copied, only = mine.copy(), mine.copy(), mine.copy()
        own, back = np.zeros(shape), np.zeros(shape)
        parts, outs, root_parts = ([np.zeros(shape) for _ in range(size)] for _ in range(3))
        derived.all_reduce(comm, total, ReduceOp.SUM, deadline)
        derived.broadcast(comm, copied, size - 1, deadline)
        derived.reduce(comm, only, ReduceOp.SUM, 0, deadline)
        derived.all_gather(comm, parts, mine, deadline)
        derived.all_to_all(comm, outs, parts, deadline)
        derived.reduce_scatter(comm, own, parts, ReduceOp.SUM, deadline)
        counts, root_parts = [mine.size] * size, root_parts if comm.rank == 0 else None
        derived.gather(comm, root_parts, mine, 0, counts, deadline)
        derived.scatter(comm, back, root_parts, 0, counts, deadline)
        return total, copied, only, parts, outs, own, back

    everyone = sum(range(1, size + 1))
    for rank, (total, copied, only, parts, outs, own, back) in enumerate(on_ranks(size, call)[0]):
        assert all(a.shape == shape for a in (total, copied, only, own, back))
        assert (total == everyone).all()
        assert (copied == size).all()
        assert (only == (everyone if rank == 0 else rank + 1)).all()
        assert all((part == i + 1).all() for i, part in enumerate(parts))
        assert all((out == rank + 1).all() for out in outs)
        assert (own == size * (rank + 1)).all()
        assert (back == rank + 1).all()


@pytest.mark.parametrize("size", [2, 3, 4])
@pytest.mark.parametrize("name", ALGORITHMS["all_gather"])
def test_all_gather_in_place(name, size, monkeypatch):
    """The array is its own part of the parts, which are views of one flat array."""
    force(monkeypatch, {"all_gather": name})

    def call(comm, deadline):
        flat = np.zeros((size, 3))
        flat[comm.rank] = comm.rank + 1
        derived.all_gather(comm, list(flat), flat[comm.rank], deadline)
        return flat

    for flat in on_ranks(size, call)[0]:
        np.testing.assert_array_equal(flat, np.arange(1.0, size + 1)[:, None] * np.ones(3))


def test_in_place_gather_scatter_and_reduce_scatter():
    counts = [2, 3, 1]

    def call(comm, deadline):
        flat = np.arange(6.0) + 10 * comm.rank
        parts = split(flat, counts)
        derived.reduce_scatter(comm, parts[comm.rank], parts, ReduceOp.SUM, deadline)
        own = parts[comm.rank].copy()
        derived.gather(comm, parts if comm.rank == 1 else None, parts[comm.rank], 1, counts, deadline)
        gathered = flat.copy()
        derived.scatter(comm, parts[comm.rank], parts if comm.rank == 1 else None, 1, counts, deadline)
        return own, gathered, parts[comm.rank].copy()

    wanted = split(3 * np.arange(6.0) + 30, counts)
    results = on_ranks(3, call)[0]
    for (own, _, scattered), content in zip(results, wanted, strict=True):
        np.testing.assert_array_equal(own, content)
        np.testing.assert_array_equal(scattered, content)
    np.testing.assert_array_equal(results[1][1], np.concatenate(wanted))


def odd_views(kind):
    """Return four parts of two int32 each, in memory that is not an ordinary array of int32 in this order."""
    pairs = [2] * 4
    return {
        "bytes": split(np.frombuffer(bytearray(32), "i4"), pairs),
        "unaligned": split(np.zeros(9, "i4").view("u1")[1:33].view("i4"), pairs),
        "columns": [np.asfortranarray(np.zeros((2, 4), "i4"))[:, i] for i in range(4)],
        "columns of one matrix": list(np.zeros((2, 4), "i4", order="F").T),
        "reversed": split(np.zeros(8, "i4"), pairs)[::-1],
        "rows": list(np.zeros((4, 2), "i4")),
        "gaps": [row[1:3] for row in np.zeros((4, 4), "i4")],
        "wider base": split(np.zeros(6, "i8").view("i4")[3:11], pairs),
    }[kind]


@pytest.mark.parametrize(
    "kind", ["bytes", "unaligned", "columns", "columns of one matrix", "reversed", "rows", "gaps", "wider base"]
)
def test_parts_in_odd_places_of_memory(kind, monkeypatch):
    """Bruck's algorithm and the trees join parts that are neighbours in memory into one message."""
    force(monkeypatch, {"all_gather": "bruck", "gather": "binomial", "scatter": "binomial"})

    def call(comm, deadline):
        parts = odd_views(kind)
        derived.all_gather(comm, parts, np.array([comm.rank, 7], "i4"), deadline)
        gathered = [part.tolist() for part in parts]
        parts = odd_views(kind) if comm.rank == 0 else None
        own = np.array([comm.rank, 9], "i4")
        derived.gather(comm, parts, own, 0, [2] * 4, deadline)
        own[...] = 0
        derived.scatter(comm, own, parts, 0, [2] * 4, deadline)
        return gathered, own.tolist()

    for rank, (gathered, own) in enumerate(on_ranks(4, call)[0]):
        assert gathered == [[0, 7], [1, 7], [2, 7], [3, 7]]
        assert own == [rank, 9]


def test_neighbouring_parts_travel_as_one_message(monkeypatch):
    """Four ranks in two rounds of Bruck's algorithm: eight messages, though the second round carries two parts."""
    force(monkeypatch, {"all_gather": "bruck"})

    def call(comm, deadline):
        flat = np.zeros((4, 3))
        derived.all_gather(comm, list(flat), np.ones(3), deadline)

    assert on_ranks(4, call)[1].messages == 8


def test_parts_of_nothing_send_nothing():
    def call(comm, deadline):
        derived.all_gather(comm, [np.zeros(0)] * 4, np.zeros(0), deadline)
        derived.all_reduce(comm, np.zeros((0, 3)), ReduceOp.SUM, deadline)
        derived.all_to_all(comm, [np.zeros(0)] * 4, [np.zeros(0)] * 4, deadline)

    assert on_ranks(4, call)[1].messages == 0


def test_a_time_out_names_those_who_are_missing():
    wires = Wires()

    def call(rank):
        comm, deadline = Rank(wires, rank, 4), Deadline(0.2)
        outs, ins = [np.zeros(1) for _ in range(4)], [np.zeros(1) for _ in range(4)]
        with pytest.raises(DistTimeoutError) as caught:
            derived.all_to_all(comm, outs, ins, deadline)
        return str(caught.value)

    with ThreadPoolExecutor(2) as pool:
        for text in pool.map(call, [0, 2]):
            assert text == "timed out: not done within 0.2 s, waiting for ranks 1, 3"


def test_a_failed_message_fails_the_collective():
    def call(comm, deadline):
        derived.broadcast(comm, np.zeros(4 if comm.rank else 8), 0, deadline)

    with pytest.raises(DistBackendError, match="do not fit"):
        on_ranks(2, call)


@pytest.mark.parametrize("dtype", ["f2", "f4", "f8", ">f8", "i1"])
@pytest.mark.parametrize("op", [ReduceOp.SUM, ReduceOp.MAX, ReduceOp.PREMUL_SUM(2)], ids=repr)
def test_a_way_is_chosen_by_the_bytes_that_travel(op, dtype, monkeypatch):
    """Which a factor widens, and rounding of narrow floats; a table is asked the same on all ranks."""
    if not op.defined_for(np.dtype(dtype)):
        assert op.factor is not None
        return
    asked, choose = [], derived.algorithm

    def noting(name, nbytes, size):
        asked.append((name, nbytes))
        return choose(name, nbytes, size)

    monkeypatch.setattr(derived, "algorithm", noting)
    size, count = 3, 6

    def call(comm, deadline):
        array = np.ones(count, dtype)
        for reduction in (derived.all_reduce, partial(derived.reduce, root=1)):
            reduction(comm, array.copy(), op=op, deadline=deadline)
        derived.reduce_scatter(comm, array[:2].copy(), split(array, [2] * size), op, deadline)

    on_ranks(size, call)
    wide = derived.accumulation_dtype(op.name, np.dtype(dtype)).itemsize
    narrow = np.dtype(dtype).itemsize if op.factor is None else wide
    assert set(asked) == {("all_reduce", count * wide), ("reduce", count * wide), ("reduce_scatter", count * narrow)}
