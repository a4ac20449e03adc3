"""The order between the caller's stream and NCCL's, and how long buffers live."""

from __future__ import annotations

import asyncio
import gc
import threading
import weakref
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from ranks import PATIENCE_S, Array, Fabric, Member, array, world
from tests.processes import wait_until

from rankwise.backends import Call
from rankwise.basics.reduce_op import ReduceOp
from rankwise.errors import DistTimeoutError, GroupAbortedError, UnsupportedOperationError
from rankwise.store import HashStore

T = PATIENCE_S
SUM = ReduceOp.SUM


def alone(body: Callable[[Member], None]) -> None:
    """Run `body` in a world of one whose queue of collectives has started."""

    def prepared(me: Member) -> None:
        me.comm.start(0)
        me.double.log.clear()
        body(me)

    world(1, prepared)


def current(me: Member) -> Any:
    return me.double.api.cuda.get_current_stream()


def gate(stream: Any) -> Callable[[], None]:
    """Make a stream wait until what is returned is called."""
    opened = threading.Event()
    stream.put(lambda: opened.wait(T))
    return opened.set


def test_events_order_the_streams_both_ways() -> None:
    def body(me: Member) -> None:
        opened = gate(current(me))  # what has ended need not be waited for
        work = me.comm.run(Call("all_reduce", me.array([1.0]), SUM), T)
        work.wait()
        opened()
        names = me.double.names()
        assert names == ["record", "wait_event", "allReduce", "record", "wait_event"]
        ready, before, _, done, after = me.double.log
        own = work.queue.stream.ptr
        assert ready[1:] == (before[1], 0)
        assert before[2] == done[2] == own != 0
        assert after[1:] == (done[1], 0)

    alone(body)


def test_an_operation_waits_for_what_the_caller_has_queued_before_it() -> None:
    def body(me: Member) -> None:
        stream, array, seen = current(me), me.array([0.0]), []
        opened = gate(stream)
        stream.put(lambda: array.host.__setitem__(0, 5.0))
        twice = me.comm.run(Call("all_reduce", array, ReduceOp.AVG), T)
        twice.wait()
        stream.put(lambda: seen.append(float(array.host[0])))
        assert not twice.poll()
        opened()
        stream.synchronize()
        assert seen == [5.0]

    alone(body)


def test_what_the_caller_queues_after_a_wait_comes_after_the_operation() -> None:
    def body(me: Member) -> None:
        array, order = me.array([1.0]), []
        work = me.comm.run(Call("all_reduce", array, SUM), T)
        work.synchronize()
        opened = gate(work.queue.stream)
        second = me.comm.run(Call("all_reduce", array, SUM), T)
        second.queue.stream.put(lambda: order.append("nccl"))
        second.queue.stream.put(lambda: None)
        third = me.comm.run(Call("all_reduce", array, SUM), T)
        third.wait()
        current(me).put(lambda: order.append("caller"))
        opened()
        current(me).synchronize()
        assert order == ["nccl", "caller"]

    alone(body)


def test_wait_does_not_block_the_host_and_synchronize_does() -> None:
    def body(me: Member) -> None:
        opened = gate(current(me))
        work = me.comm.run(Call("all_reduce", me.array([1.0]), SUM), T)
        assert not work.is_completed()
        assert work.wait()
        assert work.is_completed()  # for the stream that waits
        assert not work.poll()  # but the device is not done
        threading.Timer(0.05, opened).start()
        work.synchronize()
        assert work.poll()

    alone(body)


def test_a_wait_with_a_time_out_blocks_until_it_passes_and_may_be_repeated() -> None:
    def body(me: Member) -> None:
        opened = gate(current(me))
        work = me.comm.run(Call("all_reduce", me.array([1.0]), SUM), T)
        with pytest.raises(DistTimeoutError, match="all_reduce #0 on group 'test', rank 0: not done after"):
            work.wait(0.01)
        opened()
        assert work.wait(T)

    alone(body)


def test_a_time_out_that_is_the_operations_own_does_not_block_the_host() -> None:
    def body(me: Member) -> None:
        opened = gate(current(me))
        out, into = me.array([3.0]), me.array([0.0])
        works = [me.comm.isend(out, 0, 0), me.comm.irecv(into, 0, 0)]
        for work in works:
            assert work.wait(me.context.timeout_s)  # as the public API waits for messages
            assert not work.poll()
        opened()
        current(me).synchronize()
        assert into.host[0] == 3.0

    alone(body)


def test_buffers_live_until_the_device_is_done_with_them() -> None:
    def body(me: Member) -> None:
        opened = gate(current(me))
        array = me.array([1.0])
        watched = weakref.ref(array)
        me.comm.run(Call("all_reduce", array, SUM), T).wait()
        del array
        gc.collect()
        assert watched() is not None
        opened()
        assert wait_until(lambda: gc.collect() is not None and watched() is None, T)

    alone(body)


class Pool:
    """Hands the memory of arrays that nobody has any more out again at once, as CuPy's pool does."""

    def __init__(self) -> None:
        self.blocks: list[np.ndarray] = []

    def array(self, value: float) -> Array:
        block = self.blocks.pop() if self.blocks else np.empty(4, np.float32)
        block[:] = value
        made = Array(block)
        weakref.finalize(made, self.blocks.append, block)
        return made


def test_a_pool_is_never_given_memory_that_is_still_in_use() -> None:
    def body(me: Member) -> None:
        pool, results = Pool(), []
        opened = gate(current(me))
        for value in range(20):
            out = pool.array(-1)
            me.comm.run(Call("all_gather", pool.array(value), outs=[out]), T)  # neither the work nor the source is kept
            results.append(out)
        gc.collect()  # once, as it takes long in a large process, and the calls have a time-out
        assert not pool.blocks
        opened()
        assert wait_until(lambda: gc.collect() is not None and len(pool.blocks) == 20, T)
        assert [out.host.tolist() for out in results] == [[value] * 4 for value in range(20)]

    alone(body)


def test_scratch_belongs_to_the_streams_own_memory() -> None:
    def body(me: Member) -> None:
        streams: list[Any] = []
        empty = me.double.api.cupy.empty
        me.double.api.cupy.empty = lambda *a: streams.append(current(me)) or empty(*a)
        parts = [me.array([0.0]), me.array([0.0])]
        work = me.comm.run(Call("all_gather", me.array([1.0]), outs=parts), T)
        work.synchronize()
        assert streams == [work.queue.stream]

    world(2, body)


def test_the_current_device_is_as_before_after_an_operation_on_another_one() -> None:
    def body(me: Member) -> None:
        me.double.local.device = 3
        me.comm.run(Call("all_reduce", me.array([1.0]), SUM), T).synchronize()
        assert me.double.current() == 3

    world(1, body)


def test_callbacks_futures_and_await_are_about_the_device() -> None:
    def body(me: Member) -> None:
        opened = gate(current(me))
        work = me.comm.run(Call("all_reduce", me.array([1.0]), SUM), T)
        called = threading.Event()
        work.add_done_callback(lambda w: called.set())
        future = work.get_future()
        work.wait()
        assert not future.done()
        assert not called.is_set()
        opened()
        assert called.wait(T)
        assert future.result(T) is None

        async def waits() -> bool:
            await work
            return work.is_success()

        assert asyncio.run(waits())
        late: list[Any] = []
        work.add_done_callback(late.append)
        assert late == [work]

    alone(body)


def test_callbacks_run_with_the_device_of_the_operation() -> None:
    def body(me: Member) -> None:
        opened = gate(me.double.api.cuda.get_current_stream(2))
        work = me.comm.run(Call("all_reduce", array([1.0], device=2), SUM), T)
        devices: list[int] = []
        work.add_done_callback(lambda w: devices.append(me.double.current()))
        opened()
        assert wait_until(lambda: devices, T)
        assert devices == [2]

    alone(body)


def test_groups_of_one_device_do_not_wait_for_each_other() -> None:
    def body(me: Member) -> None:
        other = Member(0, 1, me.context.store, me.double.fabric)
        opened = gate(current(me))
        held = me.comm.run(Call("all_reduce", me.array([1.0]), SUM), T)
        other.comm.run(Call("all_reduce", me.array([1.0]), SUM), T).synchronize()
        assert not held.poll()
        opened()
        held.synchronize()
        other.comm.shutdown()

    alone(body)


class TestCapture:
    """Operations within a graph that is being captured."""

    def test_they_are_joined_but_never_asked_about(self) -> None:
        def body(me: Member) -> None:
            stream = me.double.api.cuda.Stream(non_blocking=True)
            me.double.capturing = True
            with stream:
                work = me.comm.run(Call("all_reduce", me.array([1.0]), SUM), T)
                work.wait()
            me.double.capturing = False
            assert work.captured
            assert me.double.log[-1] == ("wait_event", work.done.number, stream.ptr)
            work.done.happened.wait(T)
            assert not work.poll()
            assert not work.queue.pending

        alone(body)

    def test_nccl_is_not_started_within_one(self) -> None:
        me = Member(0, 2, HashStore(), Fabric())
        me.double.capturing = True
        with me.double.api.cuda.Stream(non_blocking=True), pytest.raises(UnsupportedOperationError, match="before"):
            me.comm.isend(me.array([1.0]), 1, 0)
        me.double.capturing = False
        assert me.comm.failure is None
        me.comm.fail(GroupAbortedError("the other rank never comes"))
        me.comm.shutdown()
