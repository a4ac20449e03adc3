"""What the collectives and messages do with data, on worlds of threads over the double."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from ranks import PATIENCE_S, Member, array, world

from rankwise.backends import Call
from rankwise.basics.reduce_op import ReduceOp
from rankwise.errors import UnsupportedOperationError
from rankwise_nccl.library.datatypes import TYPES

SIZES = [1, 2, 3, 4]
T = PATIENCE_S


def done(work: Any) -> None:
    work.synchronize()


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("count", [0, 1, 5])
def test_all_reduce_leaves_the_sum_everywhere(size: int, count: int) -> None:
    def body(me: Member) -> Any:
        mine = me.array(np.arange(count) + me.rank)
        done(me.comm.run(Call("all_reduce", mine, ReduceOp.SUM), T))
        return mine.host

    expected = sum(np.arange(count) + rank for rank in range(size))
    assert all((got == expected).all() for got in world(size, body))


@pytest.mark.parametrize(
    ("op", "dtype", "expected"),
    [
        (ReduceOp.AVG, np.float64, [1.0, 2.0]),
        (ReduceOp.PRODUCT, np.int64, [0, 6]),
        (ReduceOp.MAX, np.uint8, [2, 3]),
        (ReduceOp.MIN, np.int8, [0, 1]),
        (ReduceOp.SUM, np.complex64, [3 + 3j, 6 + 6j]),
        (ReduceOp.AVG, np.complex128, [1 + 1j, 2 + 2j]),
    ],
)
def test_each_reduce_op_is_translated(op: ReduceOp, dtype: Any, expected: Any) -> None:
    def body(me: Member) -> Any:
        values = np.array([me.rank, me.rank + 1]).astype(dtype)
        if np.issubdtype(dtype, np.complexfloating):
            values = values * (1 + 1j)
        mine = me.array(values, dtype)
        done(me.comm.run(Call("all_reduce", mine, op), T))
        return mine.host.tolist()

    assert world(3, body) == [expected] * 3


@pytest.mark.parametrize(("op", "expected"), [("SUM", True), ("BOR", True), ("BAND", False), ("PRODUCT", False)])
def test_truth_values_are_reduced_as_logic(op: str, expected: bool) -> None:
    def body(me: Member) -> Any:
        mine = me.array([me.rank == 1], bool)
        done(me.comm.run(Call("all_reduce", mine, ReduceOp(op)), T))
        return bool(mine.host[0])

    assert world(3, body) == [expected] * 3


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("root", [0, -1])
def test_broadcast_reduce_gather_and_scatter_know_their_root(size: int, root: int) -> None:
    root %= size

    def body(me: Member) -> Any:
        copied, reduced = me.array([me.rank, 7]), me.array([1.0, me.rank])
        done(me.comm.run(Call("broadcast", copied, root=root), T))
        done(me.comm.run(Call("reduce", reduced, ReduceOp.SUM, root), T))
        # Rank i's part has i + 1 elements.
        own, is_root = me.array([me.rank] * (me.rank + 1)), me.rank == root
        parts = [me.array([-1] * (i + 1)) for i in range(size)] if is_root else None
        done(me.comm.run(Call("gather", own, root=root, outs=parts), T))
        given = [me.array([10 * i] * (i + 1)) for i in range(size)] if is_root else None
        taken = me.array([-1] * (me.rank + 1))
        done(me.comm.run(Call("scatter", taken, root=root, ins=given), T))
        gathered = None if parts is None else [part.host.tolist() for part in parts]
        return copied.host.tolist(), reduced.host.tolist(), gathered, taken.host.tolist()

    for rank, (copied, reduced, gathered, taken) in enumerate(world(size, body)):
        assert copied == [root, 7]
        assert reduced == ([size, sum(range(size))] if rank == root else [1, rank])
        assert gathered == ([[i] * (i + 1) for i in range(size)] if rank == root else None)
        assert taken == [10 * rank] * (rank + 1)


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("kind", ["neighbours", "separate", "uneven", "empty ones"])
def test_all_gather_and_reduce_scatter_take_any_parts(size: int, kind: str) -> None:
    def length(rank: int) -> int:
        return {"uneven": rank + 1, "empty ones": 3 * (rank % 2)}.get(kind, 2)

    def parts_of(me: Member, fill: Any) -> list[Any]:
        if kind == "neighbours":
            whole = np.concatenate([np.full(length(i), fill(i), np.float32) for i in range(size)])
            rows = whole.reshape(size, length(0))
            return [array_view(row, me.rank) for row in rows]
        return [me.array([fill(i)] * length(i)) for i in range(size)]

    def body(me: Member) -> Any:
        parts = parts_of(me, lambda i: -1)
        done(me.comm.run(Call("all_gather", me.array([me.rank] * length(me.rank)), outs=parts), T))
        given = parts_of(me, lambda i: 10 * i + me.rank)
        mine = me.array([-1] * length(me.rank))
        done(me.comm.run(Call("reduce_scatter", mine, ReduceOp.SUM, ins=given), T))
        assert [p.host.tolist() for p in given] == [[10 * i + me.rank] * length(i) for i in range(size)]
        return [p.host.tolist() for p in parts], mine.host.tolist()

    for rank, (gathered, scattered) in enumerate(world(size, body)):
        assert gathered == [[i] * length(i) for i in range(size)]
        assert scattered == [10 * rank * size + sum(range(size))] * length(rank)


def array_view(host: np.ndarray, device: int) -> Any:
    from ranks import Array

    return Array(host, device)


def test_neighbouring_parts_are_neither_copied_nor_grouped() -> None:
    def body(me: Member) -> Any:
        rows = [array_view(row, me.rank) for row in np.zeros((2, 4), np.float32)]
        done(me.comm.run(Call("all_gather", me.array([me.rank] * 4), outs=rows), T))
        return me.double.names()

    for names in world(2, body):
        assert names.count("allGather") == 1
        assert not {"memcpyAsync", "groupStart", "empty"} & set(names)


@pytest.mark.parametrize("size", SIZES)
def test_all_to_all_takes_uneven_parts(size: int) -> None:
    def body(me: Member) -> Any:
        ins = [me.array([100 * me.rank + j] * ((me.rank + j) % 3)) for j in range(size)]
        outs = [me.array([-1] * ((me.rank + i) % 3)) for i in range(size)]
        done(me.comm.run(Call("all_to_all", ins[me.rank], ins=ins, outs=outs), T))
        return [out.host.tolist() for out in outs]

    for rank, outs in enumerate(world(size, body)):
        assert outs == [[100 * i + rank] * ((rank + i) % 3) for i in range(size)]


@pytest.mark.parametrize("dtype", ["int16", "datetime64[s]", "S3", "bool", "complex128", [("a", "i2"), ("b", "f8")]])
def test_data_of_every_dtype_is_moved_as_bytes(dtype: Any) -> None:
    def body(me: Member) -> Any:
        raw = np.full(5 * np.dtype(dtype).itemsize, me.rank == 0, np.uint8)
        mine = me.array(raw.view(dtype), dtype)
        done(me.comm.run(Call("broadcast", mine, root=0), T))
        return bool((mine.host.view(np.uint8) == 1).all())

    assert world(2, body) == [True, True]


@pytest.mark.parametrize("size", [2, 3, 4])
def test_a_ring_of_messages_does_not_dead_lock_in_any_order(size: int) -> None:
    def body(me: Member) -> Any:
        after, before = (me.rank + 1) % size, (me.rank - 1) % size
        out, into = me.array([me.rank] * 1000), me.array([-1] * 1000)
        sent = me.comm.isend(out, after, 0)
        received = me.comm.irecv(into, before, 0)
        sent.wait()
        received.wait()
        done(received)
        assert received.source_rank() == before
        return into.host[0]

    assert world(size, body) == [(rank - 1) % size for rank in range(size)]


def test_a_receive_that_is_begun_early_lets_collectives_pass() -> None:
    def body(me: Member) -> Any:
        into = me.array([-1])
        early = me.comm.irecv(into, 0, 0) if me.rank == 1 else None
        me.comm.run(Call("barrier"), T).wait()
        if early is None:
            me.comm.send(me.array([5]), 1, 0, T)
        else:
            done(early)
        return into.host[0]

    assert world(2, body) == [-1, 5]


def test_messages_of_a_pair_arrive_in_order() -> None:
    def body(me: Member) -> Any:
        arrays = [me.array([i if me.rank == 0 else -1]) for i in range(20)]
        begin = me.comm.isend if me.rank == 0 else me.comm.irecv
        for work in [begin(a, 1 - me.rank, 0) for a in arrays]:
            done(work)
        return [int(a.host[0]) for a in arrays]

    assert world(2, body)[1] == list(range(20))


def test_a_batch_is_one_group() -> None:
    def body(me: Member) -> Any:
        out, into, peer = me.array([me.rank]), me.array([-1]), 1 - me.rank
        for _ in range(2):  # the first starts the queues
            with me.comm.batch():
                works = [me.comm.isend(out, peer, 0), me.comm.irecv(into, peer, 0)]
                assert not any(work.issued for work in works)
            for work in works:
                done(work)
            names = me.double.names()
            me.double.log.clear()
        inside = names[names.index("groupStart") : names.index("groupEnd") + 1]
        assert inside == ["groupStart", "send", "recv", "groupEnd"]
        return into.host[0]

    assert world(2, body) == [1, 0]


def test_a_batch_that_raises_issues_nothing() -> None:
    def body(me: Member) -> None:
        def broken() -> None:
            with me.comm.batch():
                me.comm.run(Call("all_reduce", me.array([1.0]), ReduceOp.SUM), T)
                raise KeyError

        with pytest.raises(KeyError):
            broken()
        assert "allReduce" not in me.double.names()

    world(1, body)


@pytest.mark.parametrize("receive_first", [False, True])
def test_messages_to_oneself_meet(receive_first: bool) -> None:
    def body(me: Member) -> Any:
        out, into = me.array([3.0, 4.0]), me.array([0.0, 0.0, -1.0])
        calls = [lambda: me.comm.isend(out, me.rank, 0), lambda: me.comm.irecv(into, me.rank, 0)]
        for work in [call() for call in (reversed(calls) if receive_first else calls)]:
            done(work)
        return into.host.tolist()

    assert world(2, body) == [[3.0, 4.0, -1.0]] * 2


def test_a_message_to_oneself_that_is_too_long_fails_naming_both_sizes() -> None:
    def body(me: Member) -> None:
        works = [me.comm.isend(me.array([1.0, 2.0]), 0, 0), me.comm.irecv(me.array([0.0]), 0, 0)]
        for work in works:
            with pytest.raises(RuntimeError, match="8 bytes, but the buffer only 4"):
                work.wait()

    world(1, body)


def test_receiving_from_anyone_is_refused() -> None:
    def body(me: Member) -> None:
        with pytest.raises(UnsupportedOperationError, match="give the source"):
            me.comm.irecv(me.array([0.0]), None, 0)

    world(1, body)


def test_each_device_of_a_process_has_its_own_communicator() -> None:
    def body(me: Member) -> Any:
        first, second = array([1.0], device=me.rank), array([10.0], device=me.rank + 4)
        done(me.comm.run(Call("all_reduce", first, ReduceOp.SUM), T))
        done(me.comm.run(Call("all_reduce", second, ReduceOp.SUM), T))
        assert len(me.comm.queues()) == 2
        return first.host[0], second.host[0]

    assert world(2, body) == [(2.0, 20.0)] * 2


@pytest.mark.parametrize(("version", "capability"), [(22304, "90"), (22400, "89")])
def test_float8_is_refused_where_nccl_or_the_gpu_is_too_old(version: int, capability: str) -> None:
    ml_dtypes = pytest.importorskip("ml_dtypes", reason="float8 comes with ml_dtypes")

    def body(me: Member) -> None:
        me.double.api.nccl.get_version = lambda: version
        me.double.api.cuda.Device.compute_capability = capability
        with pytest.raises(UnsupportedOperationError, match=rf"2\.24.*{version} and capability"):
            me.comm.run(Call("all_reduce", me.array([1.0], ml_dtypes.float8_e5m2), ReduceOp.SUM), T)

    world(1, body)


@pytest.mark.parametrize("name", ["bfloat16", "float8_e4m3fn", "float8_e5m2"])
def test_narrow_floats_of_ml_dtypes_are_reduced_as_what_they_are(name: str) -> None:
    ml_dtypes = pytest.importorskip("ml_dtypes", reason="they come with ml_dtypes")

    def body(me: Member) -> Any:
        mine = me.array([1.0, me.rank], getattr(ml_dtypes, name))
        done(me.comm.run(Call("all_reduce", mine, ReduceOp.SUM), T))
        assert {entry[2] for entry in me.double.log if entry[0] == "allReduce"} == {TYPES[name]}
        return mine.host.astype(np.float32).tolist()

    assert world(3, body) == [[3.0, 3.0]] * 3


def test_premul_sum_asks_nccl_for_an_op_with_this_ranks_factor(monkeypatch: pytest.MonkeyPatch) -> None:
    from contextlib import contextmanager

    from rankwise_nccl.operations import reducer

    made: list[Any] = []

    @contextmanager
    def premultiplied(comm: Any, factor: Any, dtype: Any, datatype: int) -> Any:
        made.append((factor, dtype.name, datatype))
        yield 0
        made.append("given back")

    monkeypatch.setattr(reducer, "premultiplied", premultiplied)

    def body(me: Member) -> None:
        done(me.comm.run(Call("all_reduce", me.array([1.0]), ReduceOp.PREMUL_SUM(0.5)), T))
        with pytest.raises(TypeError, match="one number"):
            me.comm.run(Call("all_reduce", me.array([1.0]), ReduceOp.PREMUL_SUM(np.ones(2))), T)

    world(1, body)
    assert made == [(0.5, "float32", 7), "given back"]
