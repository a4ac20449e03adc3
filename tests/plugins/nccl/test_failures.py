"""Start-up, time-outs, aborts and the end of a group."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable
from typing import Any

import pytest
from ranks import PATIENCE_S, Fabric, Member, world

from rankwise.backends import Call
from rankwise.basics.reduce_op import ReduceOp
from rankwise.errors import DistBackendError, DistError, DistTimeoutError, GroupAbortedError
from rankwise.store import HashStore
from rankwise_nccl import communicator
from rankwise_nccl.group import watchdog
from rankwise_nccl.library.failures import HINTS, translate
from rankwise_nccl.queues import group_queues

LEEWAY_S = 1.0

T = PATIENCE_S
SUM = ReduceOp.SUM


def error_of(call: Callable[[], Any]) -> DistError:
    with pytest.raises(DistError) as caught:
        call()
    return caught.value


def test_the_unique_id_goes_through_the_store_as_raw_bytes() -> None:
    store = HashStore()
    fabric = Fabric()
    members = [Member(rank, 2, store, fabric) for rank in range(2)]
    threads = [threading.Thread(target=member.comm.start, args=(member.rank,)) for member in members]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(T)
    assert store.get("queue/all/0/id")[:2] == b"\xff\x80"
    assert sum("get_unique_id" in member.double.names() for member in members) == 1
    for member in members:
        member.comm.shutdown()


def test_a_start_that_times_out_names_the_ranks_that_are_missing() -> None:
    store, fabric, names = HashStore(), Fabric(), (4, 5, 6)
    errors: list[DistError] = []

    def run(rank: int) -> None:
        me = Member(rank, 3, store, fabric, timeout_s=0.3, global_ranks=names)
        errors.append(error_of(lambda: me.comm.start(rank)))

    threads = [threading.Thread(target=run, args=(rank,)) for rank in (0, 2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(T)
    assert [type(error) for error in errors] == [DistTimeoutError] * 2
    assert all("ranks 5 have not come" in str(error) for error in errors)


def test_an_operation_that_waits_for_the_start_names_them_too() -> None:
    me = Member(0, 2, HashStore(), Fabric(), timeout_s=T)
    work = me.comm.run(Call("all_reduce", me.array([1.0]), SUM), 0.1)
    error = error_of(work.wait)
    assert "timed out: not done within 0.1 s, waiting for rank 1" in str(error)
    me.comm.shutdown()


def test_two_ranks_on_one_gpu_are_told_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NCCL_HOSTID", "here")
    fabric = Fabric()
    fabric.refuse_shared_gpus = True

    def body(me: Member) -> str:
        return str(error_of(lambda: me.comm.start(0)))

    for text in world(2, body, fabric=fabric):
        assert "ranks 0, 1 are all on GPU 0000:00:00.0 of host here" in text
        assert "a GPU of its own" in text


def test_a_time_out_aborts_nccl_and_all_ranks_raise_the_same_error() -> None:
    leave = threading.Barrier(2)

    def body(me: Member) -> Any:
        me.comm.run(Call("all_reduce", me.array([1.0]), SUM), T).synchronize()
        # Rank 1 waits for something else, so that neither can ever end.
        work = (
            me.comm.run(Call("all_reduce", me.array([1.0]), SUM), 0.2)
            if me.rank == 0
            else me.comm.irecv(me.array([0.0]), 0, 0)
        )
        first = work.exception() or error_of(work.synchronize)
        # What is raised is the like of what is kept.
        raised = [error_of(act) for act in (work.synchronize, work.wait, lambda: me.comm.run(Call("barrier"), T))]
        assert [(type(error), str(error)) for error in raised] == [(type(first), str(first))] * 3
        leave.wait(T)
        me.comm.shutdown()
        assert "abort" in me.double.names()
        assert "destroy" not in me.double.names()
        return type(first), str(first)

    first, second = world(2, body, close=False)
    assert first == second
    assert first[0] is DistTimeoutError
    assert "all_reduce #1 on group 'test', rank 0: timed out: not done within 0.2 s, waiting for rank 1" in first[1]


def test_an_abort_from_another_thread_ends_a_wait_here_and_at_the_peers() -> None:
    asleep = threading.Barrier(2)

    def body(me: Member) -> str:
        me.comm.run(Call("barrier"), T).wait()
        work = me.comm.irecv(me.array([0.0]), 1 - me.rank, 0)
        if me.rank == 0:

            def give_up() -> None:
                asleep.wait(T)
                me.comm.fail(GroupAbortedError("group 'test' was aborted on rank 0"))

            threading.Thread(target=give_up).start()
        else:
            asleep.wait(T)
        error = error_of(work.synchronize)
        me.comm.abort(error)  # once more does no harm
        me.comm.shutdown()
        return f"{type(error).__name__}: {error}"

    assert set(world(2, body, close=False)) == {"GroupAbortedError: group 'test' was aborted on rank 0"}


def test_an_abort_does_not_block_its_caller() -> None:
    def body(me: Member) -> None:
        me.comm.start(0)
        queue, released = me.comm.queues()[0], threading.Event()
        queue.comm.abort = lambda: released.wait(T)
        began = time.monotonic()
        me.comm.fail(GroupAbortedError("enough"))
        assert time.monotonic() - began < LEEWAY_S
        released.set()
        me.comm.shutdown()

    world(1, body, close=False)


def test_an_error_that_nccl_reports_later_ends_the_works_with_a_hint() -> None:
    def body(me: Member) -> None:
        me.comm.start(0)
        me.double.async_error = me.double.api.nccl.NcclError("NCCL_ERROR_REMOTE_ERROR: remote process exited")
        stuck = me.comm.irecv(me.array([0.0]), 0, 0)
        error = error_of(stuck.synchronize)
        assert isinstance(error, DistBackendError)
        assert "a peer has ended" in str(error)
        me.comm.shutdown()

    world(1, body, close=False)


def test_a_call_that_nccl_refuses_ends_the_group_of_calls_and_the_communicator() -> None:
    def body(me: Member) -> None:
        me.comm.start(0)
        refusal = me.double.api.nccl.NcclError("NCCL_ERROR_INVALID_ARGUMENT: invalid argument")

        def refuse(*args: int) -> None:
            raise refusal

        me.comm.queues()[0].comm.recv = refuse
        me.double.log.clear()
        error = error_of(lambda: me.comm.run(Call("gather", me.array([1.0]), root=0, outs=[me.array([0.0])]), T))
        assert isinstance(error, DistBackendError)
        assert error.__cause__ is not None
        assert "gather #0 on group 'test', rank 0" in str(error)
        assert "which argument NCCL refuses" in str(error)
        assert [name for name in me.double.names() if name.startswith("group")] == ["groupStart", "groupEnd"]
        assert str(me.comm.failure) == str(error)
        me.comm.shutdown()

    world(1, body, close=False)


def test_what_the_device_has_done_when_the_group_fails_has_ended_well(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watchdog.Watchdog, "_round", lambda _: False)  # which has not seen it yet

    def body(me: Member) -> list[bool]:
        works: list[Any] = [
            me.comm.isend(me.array([1.0]), 1 - me.rank, 0),
            me.comm.irecv(me.array([0.0]), 1 - me.rank, 0),
        ]
        deadline = time.monotonic() + T
        while not all(work.done is not None and work.done.done for work in works) and time.monotonic() < deadline:
            time.sleep(0.001)
        meet.wait(T)
        me.comm.abort(GroupAbortedError("aborted"))
        me.comm.shutdown()
        return [work.is_success() for work in works]

    meet = threading.Barrier(2)
    assert world(2, body, close=False) == [[True, True]] * 2


def test_a_message_that_nccl_refuses_ends_its_batch_and_is_the_error() -> None:
    leave = threading.Barrier(2)

    def body(me: Member) -> list[str]:
        peer = 1 - me.rank
        out, into = me.array([1.0]), me.array([0.0])
        with me.comm.batch():
            works = [me.comm.isend(out, peer, 0), me.comm.irecv(into, peer, 0)]
        for work in works:
            work.synchronize()
        me.double.refused.add(("recv", me.rank))
        me.double.log.clear()

        def begin() -> None:
            with me.comm.batch():
                me.comm.isend(out, peer, 0)
                me.comm.irecv(into, peer, 0)

        text = str(error_of(begin))
        assert "irecv from rank" in text  # and not what the end of the group says
        assert "which argument NCCL refuses" in text
        names = [name for name in me.double.names() if name in ("groupStart", "send", "recv", "groupEnd")]
        assert names.count("groupStart") == names.count("groupEnd")
        leave.wait(T)
        me.comm.shutdown()
        return names

    # Who comes second may hear of the first one's error before it has called NCCL.
    assert ["groupStart", "send", "recv", "groupEnd"] in world(2, body, close=False)


def test_closing_gives_up_on_a_communicator_that_does_not_let_go(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(group_queues, "_DESTROY_S", 0.1)

    def body(me: Member) -> None:
        me.comm.start(0)
        released = threading.Event()
        me.comm.queues()[0].comm.destroy = lambda: released.wait(T)
        error = error_of(me.comm.shutdown)
        assert "NCCL has not let go" in str(error)
        released.set()

    world(1, body, close=False)


def test_closing_gives_up_on_an_abort_that_hangs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(communicator, "_ABORT_S", 0.1)

    def body(me: Member) -> None:
        me.comm.start(0)
        released = threading.Event()
        me.comm.queues()[0].comm.abort = lambda: released.wait(T)
        me.comm.fail(GroupAbortedError("enough"))
        began = time.monotonic()
        me.comm.shutdown()
        assert time.monotonic() - began < 5 * LEEWAY_S
        released.set()

    world(1, body, close=False)


def test_an_abort_that_hangs_does_not_keep_other_communicators_from_theirs() -> None:
    def body(me: Member) -> None:
        me.comm.start(0)
        me.comm.start(1)
        released = threading.Event()
        me.comm.queues()[0].comm.abort = lambda: released.wait(T)
        me.comm.fail(GroupAbortedError("enough"))
        end = time.monotonic() + T
        while ("abort", 1) not in me.double.log:
            assert time.monotonic() < end, "the other communicator was not aborted"
            time.sleep(0.001)
        released.set()
        me.comm.shutdown()

    world(1, body, close=False)


def test_closing_delivers_what_has_been_sent() -> None:
    def body(me: Member) -> Any:
        into = me.array([0.0])
        if me.rank == 0:
            me.comm.isend(me.array([7.0]), 1, 0)
        else:
            me.comm.irecv(into, 0, 0).synchronize()
        me.comm.drain(T)
        me.comm.shutdown()
        return into.host[0]

    assert world(2, body, close=False) == [0.0, 7.0]


def test_closing_leaves_no_thread_behind_but_those_of_the_double() -> None:
    def body(me: Member) -> None:
        me.comm.run(Call("barrier"), T).wait()
        me.comm.send(me.array([1.0]), 1, 0, T) if me.rank == 0 else me.comm.recv(me.array([0.0]), 0, 0, T)

    world(2, body)
    for thread in threading.enumerate():
        if thread.name.startswith("rankwise") and "'test'" in thread.name:
            thread.join(T)
            assert not thread.is_alive(), thread.name


def test_the_variables_of_nccl_are_left_as_they_are(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in (("NCCL_DEBUG", "INFO"), ("NCCL_SOCKET_IFNAME", "eth7"), ("NCCL_ALGO", "Ring")):
        monkeypatch.setenv(name, value)
    before = dict(os.environ)
    world(2, lambda me: me.comm.run(Call("barrier"), T).wait())
    assert dict(os.environ) == before


@pytest.mark.parametrize("word", HINTS)
def test_every_result_of_nccl_has_a_hint(word: str) -> None:
    error = translate(RuntimeError(f"NCCL_ERROR_{word}: something"), "all_reduce")
    assert isinstance(error, DistBackendError)
    assert HINTS[word] in str(error)


@pytest.mark.parametrize("begin", ["collective", "message to oneself"])
def test_an_operation_that_is_begun_while_the_group_is_given_up_ends_too(begin: str) -> None:
    def body(me: Member) -> None:
        me.comm.start(0)
        queue = me.comm.queues()[0] if begin == "collective" else me.comm._all.message(0, 0, 0)
        queue.started.wait(T)
        prepare = queue.prepare

        def slowly(work: Any) -> None:
            prepare(work)
            me.comm.fail(GroupAbortedError("meanwhile"))
            me.comm._watchdog.stop(T)  # it has ended what it has seen
            queue.comm, queue._closed = object(), False  # and a queue may be aborted a moment later

        queue.prepare = slowly  # type: ignore[method-assign]
        queue.hand_over = lambda work: None  # type: ignore[method-assign]

        def call() -> None:
            one = me.array([1.0])
            work = me.comm.run(Call("all_reduce", one, SUM), T) if begin == "collective" else me.comm.irecv(one, 0, 0)
            work.synchronize()

        assert "meanwhile" in str(error_of(call))
        queue.comm = None
        me.comm.shutdown()

    world(1, body, close=False)
