"""What becomes of a CUDA and an NCCL that do the worst that they may: nothing is late, nobody blamed for another."""

from __future__ import annotations

import signal
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from types import FrameType
from typing import Any

import pytest
from lateness import Timed
from ranks import PATIENCE_S, Fabric, Member, array, world

from rankwise.backends import Call
from rankwise.basics.reduce_op import ReduceOp
from rankwise.errors import DistError, GroupAbortedError
from rankwise.store import HashStore
from rankwise_nccl import Options
from rankwise_nccl.library.binding import NAMES, NcclError
from rankwise_nccl.queues.works import NcclWork

#: A deadline of the calls, and how much later an error may come.
SOON_S, LATE_S = 0.3, 0.1
_TRIES = 3

T = PATIENCE_S
SUM = ReduceOp.SUM


def arrays(me: Member) -> list[Any]:
    return [me.array([1.0]) for _ in range(me.size)]


def at_root(me: Member) -> list[Any] | None:
    return arrays(me) if me.rank == 0 else None


def batch(me: Member, timeout_s: float) -> Any:
    peer = 1 - me.rank
    with me.comm.batch():
        works = [me.comm.isend(me.array([1.0]), peer, 0), me.comm.irecv(me.array([1.0]), peer, 0)]
    return works[1]


Begin = Callable[[Member, float], Any]


def collective(op: str, make: Callable[[Member], dict[str, Any]]) -> Begin:
    return lambda me, timeout_s: me.comm.run(Call(op, me.array([1.0]), **make(me)), timeout_s, True)


#: All that is begun, each for a pair of ranks.
CALLS: dict[str, Begin] = {
    "all_reduce": collective("all_reduce", lambda me: {"reduce_op": SUM}),
    "broadcast": collective("broadcast", lambda me: {"root": 0}),
    "reduce": collective("reduce", lambda me: {"reduce_op": SUM, "root": 0}),
    "all_gather": collective("all_gather", lambda me: {"outs": arrays(me)}),
    "gather": collective("gather", lambda me: {"root": 0, "outs": at_root(me)}),
    "scatter": collective("scatter", lambda me: {"root": 0, "ins": at_root(me)}),
    "reduce_scatter": collective("reduce_scatter", lambda me: {"reduce_op": SUM, "ins": arrays(me)}),
    "all_to_all": collective("all_to_all", lambda me: {"ins": arrays(me), "outs": arrays(me)}),
    "barrier": lambda me, timeout_s: me.comm.run(Call("barrier"), timeout_s, True),
    "batch": batch,
}


def told(rank: int, met: tuple[str, str]) -> tuple[str, str]:
    """Return what other ranks raise for what one has met."""
    return "GroupAbortedError", f"rank {rank} gave the group up: {met[0]}: {met[1]}"


def end_of(call: Callable[[], Any]) -> tuple[str, str]:
    """Return type and words of the error that a call ends with."""
    with pytest.raises(DistError) as caught:
        call()
    return type(caught.value).__name__, str(caught.value)


def started(me: Member) -> None:
    """Start the group, so that nothing is left to wait for but what NCCL does within a first call."""
    me.comm.start(me.rank)


def prepared(me: Member, begin: Begin, phase: str) -> None:
    started(me)
    if phase == "warm":
        begin(me, T).synchronize()


def fail_both(
    begin: Begin, phase: str, fail: Callable[[Member], Any], fabric: Fabric, due_s: float
) -> list[tuple[str, str, float]]:
    """Have rank 0 begin what rank 1 never does, and return how that ends on both, and how much later than is due."""
    leave = threading.Barrier(2)
    store = HashStore()

    def body(me: Member) -> tuple[str, str, float]:
        prepared(me, begin, phase)
        leave.wait(T)
        with Timed(due_s) as timed:
            if me.rank == 0:
                ended = end_of(lambda: begin(me, SOON_S).synchronize())
            else:
                # It waits for a message that nobody sends.
                ended = end_of(lambda: fail(me) or me.comm.irecv(me.array([0.0]), 1, 0).synchronize())
        leave.wait(T)
        me.comm.shutdown()
        return (*ended, timed.late_s)

    found: list[tuple[str, str, float]] = world(
        2, body, close=False, fabric=fabric, store=store, timeout_s=SOON_S if begin is batch else T
    )
    return found


def fail_in_time(
    begin: Begin, phase: str, fail: Callable[[Member], Any], blocking: bool, due_s: float
) -> list[tuple[str, str]]:
    """Return how it ends on both; what is late is tried again, as a mistake is late each time and a machine is not."""
    for _ in range(_TRIES):
        fabric = Fabric()
        fabric.blocking = blocking
        found = fail_both(begin, phase, fail, fabric, due_s)
        late_s = max(late_s for _, _, late_s in found)
        if late_s < LATE_S:
            break
    assert late_s < LATE_S
    return [(kind, text) for kind, text, _ in found]


@pytest.fixture(params=[False, True], ids=["polled", "blocking"])
def blocking(request: pytest.FixtureRequest) -> bool:
    return bool(request.param)


@pytest.mark.parametrize("phase", ["first", "warm"])
@pytest.mark.parametrize("name", CALLS)
def test_a_call_that_the_peer_never_makes_ends_at_its_deadline_on_both(name: str, phase: str, blocking: bool) -> None:
    first, second = fail_in_time(CALLS[name], phase, lambda me: None, blocking, SOON_S)
    assert first == second
    assert first[0] == "DistTimeoutError"
    assert f"not done within {SOON_S:g} s, waiting for rank 1" in first[1] or name == "batch"


@pytest.mark.parametrize("phase", ["first", "warm"])
@pytest.mark.parametrize("name", CALLS)
def test_an_abort_of_the_peer_reaches_a_call_that_waits_within_nccl(name: str, phase: str, blocking: bool) -> None:
    def abort(me: Member) -> None:
        me.comm.fail(GroupAbortedError("group 'test' was aborted on rank 1"))

    first, second = fail_in_time(CALLS[name], phase, abort, blocking, 0.0)
    assert first == second == ("GroupAbortedError", "group 'test' was aborted on rank 1")


@pytest.mark.parametrize("phase", ["first", "warm"])
@pytest.mark.parametrize("name", CALLS)
def test_an_error_of_cuda_is_raised_on_its_rank_and_told_to_the_other(name: str, phase: str) -> None:
    def body(me: Member) -> tuple[str, str]:
        prepared(me, CALLS[name], phase)
        leave.wait(T)  # else the error may come while the other is still at the first call
        # Both make the call, so that it is not for want of a peer that it fails; on rank 0 the device never gets there.
        me.double.fails["eventQuery"] = 700 if me.rank == 1 else 600
        found = end_of(lambda: CALLS[name](me, T).synchronize())
        leave.wait(T)
        me.comm.shutdown()
        return found

    leave = threading.Barrier(2)
    first, second = world(2, body, close=False)
    assert first == told(1, second)
    assert second[0] == "DistBackendError"
    assert "rank 1: CUDARuntimeError: cudaError700" in second[1]


#: What is called for an all_reduce, and for a group of sends and receives.
OF_NCCL = ["allReduce", "groupStart", "groupEnd", "send", "recv", "async"]


@pytest.mark.parametrize("status", NAMES)
@pytest.mark.parametrize("call", OF_NCCL)
def test_every_result_of_every_call_of_nccl_is_the_same_error_on_both(call: str, status: int) -> None:
    begin = CALLS["all_reduce" if call == "allReduce" else "all_to_all"]
    leave = threading.Barrier(2)

    def body(me: Member) -> tuple[str, str]:
        prepared(me, begin, "warm")
        leave.wait(T)
        if me.rank == 1:
            me.double.fails[call] = status
        found = end_of(lambda: begin(me, T).synchronize())
        leave.wait(T)
        me.double.fails.clear()
        me.comm.shutdown()
        return found

    first, second = world(2, body, close=False)
    assert first == told(1, second)
    assert second[0] == "DistBackendError"
    assert f"rank 1: NcclError: {NAMES[status]}" in second[1]


@pytest.mark.parametrize("call", ["commInitRank", "allReduce"])
def test_ranks_that_fail_at_once_raise_what_one_of_them_has_met(call: str) -> None:
    both = threading.Barrier(2)

    def body(me: Member) -> tuple[str, str]:
        def refuse(_: Any, name: str) -> None:
            if name == call:
                both.wait(T)
                raise NcclError(2 + me.rank, "at once")

        me.double.api.nccl.NcclCommunicator._refuse = refuse
        found = end_of(lambda: me.comm.start(me.rank) or CALLS["all_reduce"](me, T).synchronize())
        both.wait(T)
        me.comm.shutdown()
        return found

    first, second = world(2, body, close=False)
    assert first == told(1, second) or second == told(0, first)
    assert "DistBackendError" in (first[0], second[0])


@pytest.mark.parametrize("call", ["record", "wait_event", "Event"])
def test_every_call_of_cuda_that_fails_is_the_same_error_on_both(call: str) -> None:
    leave = threading.Barrier(2)

    def body(me: Member) -> tuple[str, str]:
        prepared(me, CALLS["all_reduce"], "warm")
        leave.wait(T)
        if me.rank == 1:
            me.double.fails[call] = 719
        found = end_of(lambda: CALLS["all_reduce"](me, T).synchronize())
        leave.wait(T)
        me.double.fails.clear()
        me.comm.shutdown()
        return found

    first, second = world(2, body, close=False)
    assert first == told(1, second)
    assert "cudaError719" in second[1]


class Stop(Exception):
    """What a program's own handler raises."""


@pytest.fixture(params=[KeyboardInterrupt, Stop, TimeoutError])
def interrupt(request: pytest.FixtureRequest) -> type[BaseException]:
    kind: type[BaseException] = request.param
    return kind


@pytest.fixture
def alarm(interrupt: type[BaseException]) -> Iterator[Callable[[float], None]]:
    """Have the main thread be interrupted after some seconds."""

    def handler(number: int, frame: FrameType | None) -> None:
        if frame is not None and "weakref" in frame.f_code.co_filename:  # there Python drops what is raised
            signal.setitimer(signal.ITIMER_REAL, 0.001)
            return
        raise interrupt

    old = signal.signal(signal.SIGALRM, handler)
    yield lambda after_s: signal.setitimer(signal.ITIMER_REAL, after_s) and None
    signal.setitimer(signal.ITIMER_REAL, 0)
    signal.signal(signal.SIGALRM, old)


@pytest.mark.parametrize("name", CALLS)
def test_an_interrupt_is_heard_within_a_first_call(
    name: str, interrupt: type[BaseException], alarm: Callable[[float], None]
) -> None:
    store, fabric = HashStore(), Fabric()
    me, other = Member(0, 2, store, fabric), Member(1, 2, store, fabric)
    peer = threading.Thread(target=other.comm.start, args=(1,))
    peer.start()
    me.double.local.device = 0
    started(me)
    peer.join(T)

    def call() -> None:
        alarm(0.05)
        CALLS[name](me, T).synchronize()

    with Timed(0.05) as timed, pytest.raises(interrupt):
        call()
    assert timed.late_s < LATE_S
    me.comm.fail(GroupAbortedError("interrupted"))  # as the core does
    for member in (me, other):
        member.comm.shutdown()
    assert not fabric.crimes


def test_no_context_is_made_on_the_gpu_of_another_rank() -> None:
    def body(me: Member) -> Any:
        work = me.comm.run(Call("all_reduce", me.array([1.0]), SUM), T)
        work.add_done_callback(lambda _: None)
        work.synchronize()
        right, left = (me.rank + 1) % me.size, (me.rank - 1) % me.size
        me.comm.isend(me.array([1.0]), right, 0)
        me.comm.irecv(me.array([0.0]), left, 0).synchronize()
        me.comm.drain(T)
        me.comm.shutdown()
        return me.double.contexts

    assert world(3, body, close=False) == [{0}, {1}, {2}]


def test_closing_does_not_wait_for_a_message_that_never_comes() -> None:
    def body(me: Member) -> float:
        prepared(me, CALLS["batch"], "warm")
        me.comm.irecv(me.array([0.0]), 1 - me.rank, 0)
        meet.wait(T)
        began = time.monotonic()
        me.comm.drain(T)
        me.comm.shutdown()
        return time.monotonic() - began

    meet = threading.Barrier(2)
    assert max(world(2, body, close=False)) < T / 4


def test_closing_waits_for_what_a_stream_goes_on_to_use(monkeypatch: pytest.MonkeyPatch) -> None:
    """Rank 1 closes with a message that has been received as far as its stream is concerned, and has yet to be sent."""
    closing, leave = threading.Event(), threading.Barrier(2)
    finish = NcclWork.finish

    def told(work: NcclWork, timeout_s: float) -> None:
        if work.op.startswith("recv"):
            closing.set()
        finish(work, timeout_s)

    monkeypatch.setattr(NcclWork, "finish", told)

    def body(me: Member) -> float:
        prepared(me, CALLS["batch"], "warm")
        array = me.array([7.0 * (1 - me.rank)])
        leave.wait(T)
        if me.rank == 0:
            me.comm.queues()[0].api.cuda.get_current_stream().put(lambda: closing.wait(T))
            me.comm.send(array, 1, 0, T)
        else:
            me.comm.recv(array, 0, 0, T)
            me.comm.shutdown()
            closing.set()
        leave.wait(T)
        me.comm.shutdown()
        return float(array.host[0])

    assert world(2, body, close=False) == [7.0, 7.0]


@pytest.mark.parametrize(("before", "after"), [("entering", "pending"), ("queued", "pending"), ("entering", "queued")])
def test_works_are_seen_although_they_move_on_meanwhile(before: str, after: str) -> None:
    """A work that the watchdog misses it misses for good: nobody rings once more."""

    def body(me: Member) -> bool:
        started(me)
        queue, work = me.comm.queues()[0], me.comm.run(Call("barrier"), T)
        places: dict[str, Place] = {}

        class Place(deque[Any]):
            def copy(self) -> Any:
                found = deque(self)
                if any(self is places[name] for name in (before, after)) and not places[after]:
                    places[after].append([work] if after == "queued" else work)
                    places[before].clear()
                return found

        for name in ("entering", "queued", "pending"):
            places[name] = Place()
            setattr(queue, name, places[name])
        places[before].append([work] if before == "queued" else work)
        seen = work in queue.works()
        for place in places.values():
            place.clear()
        return seen

    assert world(1, body, close=False) == [True]


def total(me: Member, own: Any, other: Any) -> None:
    me.comm.run(Call("all_reduce", own, SUM), T).wait()


def both(me: Member, own: Any, other: Any) -> None:
    me.comm.run(Call("all_gather", own, outs=[other, own] if me.rank else [own, other]), T).wait()


def crossed(me: Member, own: Any, other: Any) -> None:
    with me.comm.batch():
        works = [me.comm.isend(own, 1 - me.rank, 0), me.comm.irecv(other, 1 - me.rank, 0)]
    for work in works:
        work.wait()


@pytest.mark.parametrize(
    ("call", "wanted"),
    [(total, [[8.0, 0.0], [8.0, 0.0]]), (both, [[1.0, 2.0], [2.0, 1.0]]), (crossed, [[1.0, 2.0], [2.0, 1.0]])],
)
def test_a_captured_graph_replays_calls_and_no_question_makes_it_invalid(call: Any, wanted: Any) -> None:
    """Each rank has one number and room for another; parts do not lie beside each other, so that they are packed."""

    def body(me: Member) -> list[float]:
        started(me)
        own, other = me.array([1.0]), me.array([0.0])
        call(me, own, other)  # which starts what the capture must not
        before = me.comm.run(Call("all_reduce", me.array([1.0]), SUM), T)
        stream = me.double.api.cuda.Stream(non_blocking=True)
        with stream:
            stream.begin_capture()
            before.is_completed()
            call(me, own, other)
            time.sleep(0.05)  # for the watchdog to ask about others
            graph = stream.end_capture()
        before.synchronize()
        own.host[0], other.host[0] = (2.0 if call is total else 1.0 + me.rank), 0.0
        for _ in range(2):
            graph.launch(stream)
        stream.synchronize()
        return [*own.host, *other.host]

    assert world(2, body) == wanted


def test_buffers_are_registered_before_they_are_used_and_forgotten_before_the_end() -> None:
    here, elsewhere = array([1.0, 2.0]), array([3.0], device=1)

    def body(me: Member) -> list[Any]:
        me.comm.run(Call("all_reduce", here, SUM), T).synchronize()
        me.comm.shutdown()
        return me.double.log

    [log] = world(1, body, close=False, options=Options(buffers=(here, elsewhere)))
    entry = (here.data.ptr, here.nbytes)
    names = [call[0] for call in log]
    assert [call[1:] for call in log if call[0].endswith("register")] == [entry, entry]
    wanted = ["commInitRank", "register", "allReduce", "deregister", "finalize", "destroy"]
    assert [name for name in names if name in wanted] == wanted


def test_a_buffer_that_nccl_refuses_fails_the_start() -> None:
    def body(me: Member) -> None:
        me.double.fails["register"] = 4
        assert (
            "starting NCCL for group 'test', rank 0: NcclError: NCCL_ERROR_INVALID_ARGUMENT"
            in end_of(lambda: started(me))[1]
        )
        me.comm.shutdown()

    world(1, body, close=False, options=Options(buffers=(array([1.0]),)))
