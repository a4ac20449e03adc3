"""The calls for several devices per process, over one communicator per device."""

from __future__ import annotations

import gc
import threading
import time
import weakref
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import pytest
from ranks import PATIENCE_S, Fabric, Member, array, world

from rankwise.basics.reduce_op import ReduceOp
from rankwise.errors import (
    CollectiveMismatchError,
    DistBackendError,
    DistError,
    DistTimeoutError,
    GroupAbortedError,
    UnsupportedOperationError,
)
from rankwise.store import HashStore
from rankwise_nccl.lanes import lanes
from rankwise_nccl.operations import device_calls

T = PATIENCE_S
SUM = ReduceOp.SUM
SHAPES = [(1, 1), (1, 2), (2, 1), (2, 2), (3, 2), (2, 3)]


def places(me: Member, each: int) -> list[int]:
    """Return the devices of a rank; each has others, as if all were on one host."""
    return [10 * me.rank + i for i in range(each)]


def row(me: Member, each: int, make: Callable[[int], Any], dtype: Any = np.float32) -> list[Any]:
    """Return one array on each of a rank's devices; `make` is given the number of the member."""
    return [array(make(me.rank * each + i), dtype, device) for i, device in enumerate(places(me, each))]


def host(arrays: list[Any]) -> list[Any]:
    return [one.host.tolist() for one in arrays]


def calls(me: Member, each: int) -> Any:
    found = me.comm.multigpu(places(me, each))
    assert found is not None
    return found


def reduced(me: Member, each: int = 2, values: float = 1.0, timeout_s: float = T) -> Any:
    """Begin to reduce over all devices of a rank."""
    return calls(me, each).all_reduce(row(me, each, lambda _: [values]), SUM, timeout_s)


def error_of(call: Callable[[], Any]) -> DistError:
    with pytest.raises(DistError) as caught:
        call()
    return caught.value


def stream_of(me: Member, device: int) -> Any:
    return me.double.api.cuda.get_current_stream(device)


def gate(stream: Any) -> Callable[[], None]:
    """Make a stream wait until what is returned is called."""
    opened = threading.Event()
    stream.put(lambda: opened.wait(T))
    return opened.set


def started(me: Member, each: int = 2) -> Any:
    """Start NCCL over the devices, and return the lane."""
    work = reduced(me, each)
    work.synchronize()
    me.double.log.clear()
    return work.lane


class TestResults:
    """What is left in the arrays."""

    @pytest.mark.parametrize(("size", "each"), SHAPES)
    @pytest.mark.parametrize("op", [SUM, ReduceOp.AVG, ReduceOp.MAX])
    def test_all_reduce(self, size: int, each: int, op: ReduceOp) -> None:
        def body(me: Member) -> Any:
            arrays = row(me, each, lambda member: [member, 1.0])
            calls(me, each).all_reduce(arrays, op, T).synchronize()
            return host(arrays)

        members = size * each
        expected = {
            "SUM": [sum(range(members)), members],
            "AVG": [(members - 1) / 2, 1.0],
            "MAX": [members - 1, 1.0],
        }[op.name]
        assert world(size, body) == [[expected] * each] * size

    @pytest.mark.parametrize(("size", "each"), SHAPES)
    def test_broadcast_and_reduce_know_rank_and_position_of_the_root(self, size: int, each: int) -> None:
        root, index = size - 1, each - 1

        def body(me: Member) -> Any:
            copied, total = row(me, each, lambda member: [member]), row(me, each, lambda member: [member, 1.0])
            calls(me, each).broadcast(copied, root, index, T).synchronize()
            calls(me, each).reduce(total, SUM, root, index, T).synchronize()
            return host(copied), host(total)

        last = size * each - 1
        for rank, (copied, total) in enumerate(world(size, body)):
            assert copied == [[last]] * each
            own = [[rank * each + i, 1.0] for i in range(each)]
            if rank == root:
                own[index] = [sum(range(last + 1)), last + 1]
            assert total == own

    @pytest.mark.parametrize(("size", "each"), SHAPES)
    @pytest.mark.parametrize("neighbours", [True, False])
    def test_all_gather_and_reduce_scatter(self, size: int, each: int, neighbours: bool) -> None:
        members = size * each

        def entries(device: int, make: Callable[[int], list[float]]) -> list[Any]:
            whole = np.array([make(entry) for entry in range(members)], np.float32)
            rows = whole if neighbours else [one.copy() for one in whole]
            return [array_view(one, device) for one in rows]

        def body(me: Member) -> Any:
            outputs = [entries(device, lambda _: [-1, -1]) for device in places(me, each)]
            calls(me, each).all_gather(outputs, row(me, each, lambda member: [member, 5]), T).synchronize()
            inputs = [
                entries(device, lambda entry, i=i: [entry, me.rank * each + i])
                for i, device in enumerate(places(me, each))
            ]
            scattered = row(me, each, lambda _: [-1, -1])
            calls(me, each).reduce_scatter(scattered, inputs, SUM, T).synchronize()
            kept = [host(given) for given in inputs]
            assert kept == [[[e, me.rank * each + i] for e in range(members)] for i in range(each)]
            copies = me.double.names().count("memcpyAsync")
            assert copies == (0 if neighbours or members == 1 else 2 * each * members)
            return [host(out) for out in outputs], host(scattered)

        for rank, (gathered, scattered) in enumerate(world(size, body)):
            assert gathered == [[[member, 5] for member in range(members)]] * each
            total = sum(range(members))
            assert scattered == [[members * (rank * each + i), total] for i in range(each)]

    def test_complex_numbers_and_no_elements_at_all(self) -> None:
        def body(me: Member) -> Any:
            pairs, nothing = row(me, 2, lambda member: [member + 1j], np.complex64), row(me, 2, lambda _: [])
            calls(me, 2).all_reduce(pairs, ReduceOp.AVG, T).synchronize()
            calls(me, 2).all_reduce(nothing, SUM, T).synchronize()
            return host(pairs)

        assert world(2, body) == [[[1.5 + 1j]] * 2] * 2

    def test_each_device_has_the_factor_of_its_rank(self, monkeypatch: pytest.MonkeyPatch) -> None:
        from contextlib import contextmanager

        from rankwise_nccl.operations import reducer

        @contextmanager
        def premultiplied(comm: Any, factor: Any, dtype: Any, datatype: int) -> Any:
            yield comm.scaling(factor)

        monkeypatch.setattr(reducer, "premultiplied", premultiplied)

        def body(me: Member) -> Any:
            arrays = row(me, 2, lambda _: [1.0])
            calls(me, 2).all_reduce(arrays, ReduceOp.PREMUL_SUM(0.5 + me.rank), T).synchronize()
            return host(arrays)

        assert world(2, body) == [[[4.0], [4.0]]] * 2


def array_view(view: np.ndarray, device: int) -> Any:
    from ranks import Array

    return Array(view, device)


class TestStart:
    """How the communicators of all devices are made."""

    def test_each_device_of_each_rank_is_a_rank_of_one_communicator_made_in_one_group(self) -> None:
        store = HashStore()

        def body(me: Member) -> Any:
            reduced(me, 3).synchronize()
            log = [entry for entry in me.double.log if entry[0] in ("groupStart", "commInitRank", "groupEnd")]
            return log[:5], me.double.names().count("get_unique_id")

        found = world(2, body, store=store)
        for rank, (log, _) in enumerate(found):
            made = [("commInitRank", 6, 3 * rank + i, 10 * rank + i) for i in range(3)]
            assert log == [("groupStart",), *made, ("groupEnd",)]
        assert [ids for _, ids in found] == [1, 0]
        assert store.get("lane/devices/0/id")[:2] == b"\xff\x80"

    def test_it_is_made_once_for_each_list_of_devices_and_only_when_needed(self) -> None:
        def body(me: Member) -> None:
            me.comm.all_reduce(me.array([1.0]), SUM, T).synchronize()
            assert len(me.comm.lanes()) == 1
            first, again = reduced(me), reduced(me)
            assert first.lane is again.lane
            other = calls(me, 1).all_reduce(row(me, 1, lambda _: [1.0]), SUM, T)
            assert other.lane is not first.lane
            for work in (first, again, other):
                work.synchronize()
            assert me.double.names().count("commInitRank") == 4
            assert len(me.comm.lanes()) == 3

        world(2, body)

    def test_the_current_device_is_as_before(self) -> None:
        def body(me: Member) -> None:
            me.double.device = 7
            reduced(me).synchronize()
            assert me.double.current() == 7

        world(1, body)

    def test_a_communicator_that_cannot_be_made_ends_the_group_of_calls_and_is_named(self) -> None:
        def body(me: Member) -> str:
            me.double.refused.add(("commInitRank", 1))
            error = error_of(lambda: reduced(me).synchronize())
            assert me.comm.failure is error
            names = [name for name in me.double.names() if name in ("groupStart", "commInitRank", "groupEnd")]
            assert names == ["groupStart", "commInitRank", "commInitRank", "groupEnd"]
            me.comm.shutdown()
            return str(error)

        (text,) = world(1, body, close=False)
        assert "starting NCCL for group 'test', rank 0" in text
        assert "commInitRank on device 1" in text

    def test_a_rank_that_does_not_come_is_named(self) -> None:
        me = Member(0, 3, HashStore(), Fabric(), timeout_s=T)
        error = error_of(lambda: reduced(me, timeout_s=0.1).wait())
        assert isinstance(error, DistTimeoutError)
        assert "all_reduce_multigpu #0" in str(error)
        assert "NCCL has not started within 0.1 s; ranks 1, 2 have not come" in str(error)
        me.comm.shutdown()

    def test_ranks_that_share_a_gpu_are_told_so(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("NCCL_HOSTID", "here")
        fabric = Fabric()
        fabric.refuse_shared_gpus = True

        def body(me: Member) -> str:
            arrays = [array([1.0], device=me.rank + i) for i in range(2)]
            found = me.comm.multigpu([0 + me.rank, 1 + me.rank])
            assert found is not None
            text = str(error_of(lambda: found.all_reduce(arrays, SUM, T).synchronize()))
            me.comm.shutdown()
            return text

        for text in world(2, body, fabric=fabric, close=False):
            assert "ranks 0, 1 are all on GPU 0000:01:00.0 of host here" in text


class TestDisagreement:
    """What is said where the ranks do not give the same devices."""

    def test_different_numbers_of_devices_are_one_error_that_names_who_differs_and_the_group_goes_on(self) -> None:
        def body(me: Member) -> Any:
            error = error_of(lambda: reduced(me, 1 if me.rank == 1 else 2).wait())
            assert me.comm.failure is None
            arrays = row(me, 2, lambda member: [member])
            calls(me, 2).all_reduce(arrays, SUM, T).synchronize()
            assert isinstance(error, CollectiveMismatchError)
            return str(error), error.odd_ranks, host(arrays)

        first, *others = world(3, body)
        assert others == [first, first]
        assert first[0] == "the ranks of group 'test' do not give equally many devices: rank 1 1; ranks 0, 2 2"
        assert first[1:] == ((1,), [[15.0], [15.0]])

    def test_without_a_majority_all_differ(self) -> None:
        def body(me: Member) -> Any:
            error = error_of(lambda: reduced(me, 1 + me.rank).synchronize())
            assert isinstance(error, CollectiveMismatchError)
            return error.odd_ranks

        assert world(2, body) == [(0, 1)] * 2

    def test_a_rank_that_changes_its_devices_alone_is_told_so_by_the_time_out(self) -> None:
        leave = threading.Barrier(2)

        def body(me: Member) -> str:
            started(me)
            work = reduced(me, 1, timeout_s=0.2) if me.rank == 1 else reduced(me)
            text = str(error_of(work.synchronize))
            leave.wait(T)
            me.comm.shutdown()
            return text

        first, second = world(2, body, close=False)
        assert first == second
        assert "rank 1: NCCL has not started within 0.2 s; ranks 0 have not come; perhaps they have called" in first

    def test_a_device_that_comes_twice_is_for_the_core_to_deal_with(self) -> None:
        def body(me: Member) -> None:
            assert me.comm.multigpu([3, 3]) is None
            assert me.comm.multigpu([3, 3]) is None
            assert me.comm.lanes() == []

        world(2, body)

    @pytest.mark.parametrize("odd", [0, 1])
    def test_a_device_that_comes_twice_on_some_ranks_only_ends_the_group_and_names_them(self, odd: int) -> None:
        def body(me: Member) -> str:
            if me.rank == odd:
                assert me.comm.multigpu([3, 3]) is None
            begin = partial(me.comm.all_reduce, me.array([1.0]), SUM, T) if me.rank == odd else partial(reduced, me)
            error = error_of(lambda: begin().synchronize())  # the odd rank calls what the core makes of it
            assert isinstance(error, DistBackendError)
            me.comm.shutdown()
            return str(error)

        first, second = world(2, body, close=False)
        assert first == second
        assert f"on rank {odd} several lie on one GPU" in first


class TestCalls:
    """What is asked of CuPy, and in which order."""

    def test_events_order_the_streams_of_each_device_both_ways(self) -> None:
        def body(me: Member) -> None:
            lane = started(me)
            opened = gate(stream_of(me, 1))
            reduced(me).wait()
            opened()
            log = list(me.double.log)
            names = [entry[0] for entry in log]
            assert names == [
                *("record", "record", "wait_event", "wait_event"),
                *("groupStart", "allReduce", "allReduce", "groupEnd"),
                *("record", "record", "wait_event", "wait_event"),
            ]
            own, callers = [seat.stream.ptr for seat in lane.seats], [stream_of(me, i).ptr for i in (0, 1)]
            ready, done = [entry[1] for entry in log[:2]], [entry[1] for entry in log[8:10]]
            assert [entry[2] for entry in log[:2]] == callers
            assert [entry[1:] for entry in log[2:4]] == list(zip(ready, own, strict=True))
            assert [entry[2] for entry in log[8:10]] == own
            assert [entry[1:] for entry in log[10:]] == list(zip(done, callers, strict=True))

        world(1, body)

    @pytest.mark.parametrize("late", [0, 1])
    def test_an_operation_waits_for_the_callers_stream_of_each_device(self, late: int) -> None:
        def body(me: Member) -> None:
            started(me)
            arrays = row(me, 2, lambda _: [1.0])
            opened = gate(stream_of(me, late))
            stream_of(me, late).put(lambda: arrays[late].host.__setitem__(0, 5.0))
            work = calls(me, 2).all_reduce(arrays, SUM, T)
            assert work.wait()
            seen: list[float] = []
            for i in (0, 1):
                stream_of(me, i).put(lambda i=i: seen.append(float(arrays[i].host[0])))
            assert not work.poll()
            opened()
            for i in (0, 1):
                stream_of(me, i).synchronize()
            assert seen == [6.0, 6.0]

        world(1, body)

    def test_wait_does_not_block_the_host_and_synchronize_does(self) -> None:
        def body(me: Member) -> None:
            started(me)
            opened = gate(stream_of(me, 1))
            work = reduced(me)
            assert work.wait()
            assert work.is_completed()
            assert not work.poll()
            threading.Timer(0.05, opened).start()
            work.synchronize()
            assert work.poll()

        world(1, body)

    def test_a_call_that_nccl_refuses_ends_the_group_of_calls_and_is_the_error(self) -> None:
        def body(me: Member) -> None:
            started(me)
            me.double.refused.add(("allReduce", 1))
            error = error_of(lambda: reduced(me))
            assert "all_reduce_multigpu #1 on group 'test', rank 0" in str(error)
            assert "allReduce on device 1" in str(error)  # and not what the end of the group says
            names = [name for name in me.double.names() if name not in ("record", "wait_event")]
            assert names[:4] == ["groupStart", "allReduce", "allReduce", "groupEnd"]
            assert me.comm.failure is error
            me.comm.shutdown()
            assert sorted(entry for entry in me.double.log if entry[0] == "abort") == [("abort", 0), ("abort", 1)]

        world(1, body, close=False)

    def test_whatever_is_raised_within_a_group_of_calls_ends_it(self) -> None:
        def body(me: Member) -> None:
            lane = started(me)

            def interrupted(*args: int) -> None:
                raise KeyboardInterrupt

            lane.comm[1].allReduce = interrupted
            with pytest.raises(KeyboardInterrupt):
                reduced(me)
            assert me.double.names()[-3:] == ["groupStart", "allReduce", "groupEnd"]
            me.comm.fail(GroupAbortedError("the other half is missing"))
            me.comm.shutdown()

        world(1, body, close=False)

    def test_scratch_belongs_to_the_stream_of_its_device(self) -> None:
        def body(me: Member) -> None:
            lane = started(me)
            taken: list[Any] = []
            empty = me.double.api.cupy.empty
            me.double.api.cupy.empty = lambda *a: taken.append(stream_of(me, me.double.current())) or empty(*a)
            outputs = [[array([0.0], device=device) for _ in range(2)] for device in places(me, 2)]
            calls(me, 2).all_gather(outputs, row(me, 2, lambda _: [1.0]), T).synchronize()
            assert taken == [seat.stream for seat in lane.seats]

        world(1, body)

    def test_buffers_live_until_all_devices_are_done_with_them(self) -> None:
        def body(me: Member) -> None:
            lane = started(me)
            opened = gate(lane.seats[1].stream)
            arrays = row(me, 2, lambda _: [1.0])
            watched = [weakref.ref(one) for one in arrays]
            calls(me, 2).broadcast(arrays, 0, 0, T).wait()
            del arrays
            gc.collect()
            time.sleep(0.05)
            assert all(ref() is not None for ref in watched)
            opened()
            end = time.monotonic() + T
            while any(ref() is not None for ref in watched):
                assert time.monotonic() < end
                gc.collect()
                time.sleep(0.001)

        world(1, body)

    def test_it_is_collected_in_a_batch_with_others(self) -> None:
        def body(me: Member) -> Any:
            started(me)
            me.comm.all_reduce(me.array([1.0]), SUM, T).synchronize()
            me.double.log.clear()
            with me.comm.batch():
                works = [reduced(me), me.comm.all_reduce(me.array([1.0]), SUM, T)]
                assert not any(work.issued for work in works)
            for work in works:
                work.synchronize()
            return [name for name in me.double.names() if name not in ("record", "wait_event")]

        inner = ["groupStart", "allReduce", "allReduce", "groupEnd"]
        assert world(2, body) == [["groupStart", *inner, "allReduce", "groupEnd"]] * 2


class TestCapture:
    """Within a graph that is being captured."""

    def test_it_is_joined_but_never_asked_about(self) -> None:
        def body(me: Member) -> None:
            started(me)
            streams = []
            for device in (0, 1):
                with me.double.api.cuda.Device(device):
                    streams.append(me.double.api.cuda.Stream(non_blocking=True))
            me.double.capturing = True
            with streams[0], streams[1]:
                work = reduced(me)
                work.wait()
            me.double.capturing = False
            assert work.captured
            assert work not in work.lane.pending
            assert [entry[2] for entry in me.double.log[-2:]] == [stream.ptr for stream in streams]

        world(1, body)

    @pytest.mark.parametrize(("capturing", "why"), [({0}, "some streams"), ({0, 1}, "before the capture")])
    def test_not_on_some_devices_alone_and_not_before_the_start(self, capturing: set[int], why: str) -> None:
        me = Member(0, 2, HashStore(), Fabric())
        streams = []
        for device in (0, 1):
            with me.double.api.cuda.Device(device):
                streams.append(me.double.api.cuda.Stream(non_blocking=True))
        me.double.capturing = capturing
        with streams[0], streams[1], pytest.raises(UnsupportedOperationError, match=why):
            reduced(me)
        assert me.comm.failure is None
        me.comm.fail(GroupAbortedError("the other rank never comes"))
        me.comm.shutdown()


class TestEnds:
    """Time-outs, aborts and closing."""

    def test_a_time_out_is_the_same_error_on_all_ranks_and_aborts_every_communicator(self) -> None:
        leave = threading.Barrier(2)

        def body(me: Member) -> Any:
            started(me)
            work = reduced(me, timeout_s=0.2) if me.rank == 0 else me.comm.irecv(me.array([0.0]), 0, 0)
            first = error_of(work.synchronize)
            assert error_of(lambda: reduced(me)) is first
            leave.wait(T)
            me.comm.shutdown()
            ends = sorted(entry for entry in me.double.log if entry[0] in ("abort", "destroy"))
            assert [("abort", device) for device in places(me, 2)] == ends[:2]
            assert not [entry for entry in ends if entry[0] == "destroy"]
            return type(first), str(first)

        first, second = world(2, body, close=False)
        assert first == second
        assert first[0] is DistTimeoutError
        assert "all_reduce_multigpu #1 on group 'test', rank 0: not done within 0.2 s" in first[1]

    def test_an_error_that_nccl_reports_on_any_device_ends_the_group(self) -> None:
        def body(me: Member) -> None:
            lane = started(me)

            def fail() -> None:
                raise me.double.api.nccl.NcclError("NCCL_ERROR_REMOTE_ERROR: remote process exited")

            lane.comm[1].check_async_error = fail
            stuck = me.comm.irecv(me.array([0.0]), 0, 0)
            assert "a peer has ended" in str(error_of(stuck.synchronize))
            me.comm.shutdown()

        world(1, body, close=False)

    def test_an_abort_that_hangs_keeps_neither_the_other_devices_nor_other_lanes_from_theirs(self) -> None:
        def body(me: Member) -> None:
            lane = started(me)
            me.comm.all_reduce(array([1.0], device=5), SUM, T).synchronize()
            released = threading.Event()
            lane.comm[0].abort = lambda: released.wait(T)
            me.comm.fail(GroupAbortedError("enough"))
            end = time.monotonic() + T
            while {("abort", 1), ("abort", 5)} - set(me.double.log):
                assert time.monotonic() < end, "a communicator was not aborted"
                time.sleep(0.001)
            released.set()
            me.comm.shutdown()

        world(1, body, close=False)

    def test_closing_gives_each_communicator_back_at_the_same_time(self) -> None:
        def body(me: Member) -> None:
            lane = started(me)
            both = threading.Barrier(2)
            for comm in lane.comm:
                give_back = comm.destroy

                def destroy(give_back: Callable[[], None] = give_back) -> None:
                    both.wait(T)  # as NCCL may, which waits for the others of the process
                    give_back()

                comm.destroy = destroy
            me.comm.drain(T)
            me.comm.shutdown()
            ends = sorted(entry for entry in me.double.log if entry[0] in ("abort", "destroy"))
            assert ends == [("destroy", 0), ("destroy", 1)]

        world(1, body, close=False)

    def test_closing_gives_up_on_a_device_that_does_not_let_go(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(lanes, "_DESTROY_S", 0.1)

        def body(me: Member) -> None:
            lane = started(me)
            released = threading.Event()
            lane.comm[1].destroy = lambda: released.wait(T)
            assert "NCCL has not let go" in str(error_of(me.comm.shutdown))
            released.set()

        world(1, body, close=False)

    def test_what_was_begun_is_done_before_the_group_is_closed(self) -> None:
        def body(me: Member) -> Any:
            arrays = row(me, 2, lambda member: [member])
            calls(me, 2).all_reduce(arrays, SUM, T)
            me.comm.drain(T)
            return host(arrays)

        assert world(2, body) == [[[6.0], [6.0]]] * 2


def test_the_calls_are_what_the_core_asks_for() -> None:
    import inspect

    from rankwise.calls.multigpu import DeviceCollectives

    for name, wanted in inspect.getmembers(DeviceCollectives, inspect.isfunction):
        if not name.startswith("_"):
            ours = getattr(device_calls.DeviceCalls, name)
            assert inspect.signature(ours) == inspect.signature(wanted), name
