"""`Work` as callers see it, the order in which operations run, and mailboxes."""

import asyncio
import concurrent.futures
import pickle
import random
import threading
import time

import numpy as np
import pytest
from tests.threads import at_once, on_ranks, within

import rankwise as dist
from rankwise.backends.mailbox import Mailbox
from rankwise.basics.deadline import Deadline
from rankwise.basics.work import COMPLETED, BoundWork, CompletedWork, FutureWork, Work
from rankwise.collective.issue_order import IssueOrder
from rankwise.errors import DistBackendError, GroupAbortedError

PATIENCE_S = 20.0
LEEWAY_S = 1.0


def test_a_work_ends_once_and_says_how():
    work = FutureWork()
    assert isinstance(work, Work)
    assert not work.is_completed()
    assert work.exception() is None
    work.succeed(source=3)
    work.fail(ValueError("too late"))
    assert work.wait() is True
    assert work.is_completed()
    assert work.is_success()
    assert work.source_rank() == 3
    assert work.exception() is None


def test_a_failed_work_raises_its_error_anew_each_time():
    """What is kept is not what is raised: that holds the frames that it has come through."""
    work = FutureWork()
    error = DistBackendError("broken")
    work.fail(error)
    for _ in range(2):
        with pytest.raises(DistBackendError) as caught:
            work.wait()
        assert type(caught.value) is DistBackendError
        assert str(caught.value) == "broken"
    assert work.exception() is error
    assert error.__traceback__ is None
    assert work.is_completed()
    assert not work.is_success()
    for ask in (work.result, work.synchronize):
        with pytest.raises(DistBackendError):
            ask()


def test_a_wait_that_times_out_may_be_repeated():
    work = FutureWork()
    with within(LEEWAY_S):
        with pytest.raises(dist.DistTimeoutError, match=r"0\.05 s"):
            work.wait(0.05)
        with pytest.raises(TimeoutError):
            work.wait(0)
    work.succeed()
    assert work.wait(0.05)


def test_an_operation_that_timed_out_is_told_from_a_wait_that_did():
    work = FutureWork()
    work.fail(dist.DistTimeoutError("the operation itself"))
    with pytest.raises(dist.DistTimeoutError, match="the operation itself"):
        work.wait(PATIENCE_S)


def test_only_receives_have_a_source():
    with pytest.raises(RuntimeError, match="receive"):
        COMPLETED.source_rank()
    assert CompletedWork(2).source_rank() == 2


@pytest.mark.parametrize("end", ["succeed", "fail", "lose"])
def test_what_is_over_stays_as_it_is_and_changes_no_other_work(end: str) -> None:
    works = [CompletedWork(), FutureWork()]
    works[1].succeed("done")
    for work in works:
        getattr(work, end)(ValueError("too late"))
    others = [CompletedWork(), *works]
    assert [work.exception() for work in others] == [None] * 3
    assert [work.get_future().result() for work in others] == [None, None, "done"]


def test_a_completed_work_answers_everything_at_once():
    assert COMPLETED.wait(0)
    assert COMPLETED.is_completed()
    assert COMPLETED.is_success()
    assert COMPLETED.exception() is None
    assert COMPLETED.result() is None
    assert COMPLETED.get_future().result() is None
    COMPLETED.synchronize()
    called = []
    COMPLETED.add_done_callback(called.append)
    assert called == [COMPLETED]
    assert COMPLETED.cancel() is False


def test_the_caller_sees_its_own_buffers_and_global_ranks():
    inner = FutureWork()
    buffer = np.zeros(2)
    work = BoundWork(inner, buffer, (4, 7, 9))
    future, called = work.get_future(), []
    assert isinstance(future, concurrent.futures.Future)
    work.add_done_callback(called.append)
    inner.succeed(source=1)
    assert work.source_rank() == 7
    assert work.result() is future.result(PATIENCE_S) is buffer
    assert called == [work]
    work.synchronize()


@pytest.mark.parametrize("ask", ["wait", "result", "synchronize", "exception", "is_completed", "is_success"])
def test_whoever_looks_at_a_work_tells_of_its_end_once(ask):
    inner, noted = FutureWork(), []
    work = BoundWork(inner, None, (), noted.append)
    inner.succeed()
    for _ in range(2):
        getattr(work, ask)()
        assert noted == [None]


@pytest.mark.parametrize("ask", ["wait", "result", "synchronize", "source_rank", "get_future", "add_done_callback"])
def test_what_a_work_raises_ends_the_call_as_every_error_does(ask):
    class Failed(FutureWork):
        def add_done_callback(self, callback):
            raise DistBackendError("broken")

        def source_rank(self):
            raise DistBackendError("broken")

    inner, ended, given = Failed(), [], [print] if ask == "add_done_callback" else []
    inner.fail(DistBackendError("broken"))
    with pytest.raises(DistBackendError, match="broken") as caught:
        getattr(BoundWork(inner, None, (), broken=ended.append), ask)(*given)
    assert set(ended) == {caught.value}


def test_the_future_of_a_failed_work_fails():
    inner = FutureWork()
    future = BoundWork(inner, None, ()).get_future()
    inner.fail(DistBackendError("broken"))
    with pytest.raises(DistBackendError):
        future.result(PATIENCE_S)


@on_ranks(2)
def test_works_can_be_awaited():
    async def wait():
        array = np.ones(2)
        assert await dist.all_reduce(array, async_op=True) is array
        assert array.tolist() == [2.0, 2.0]

    asyncio.run(wait())


# ---------------------------------------------------------------------- the order of operations


class Line(IssueOrder):
    """An order whose operations have plenty of time, and whose failures are kept."""

    def __init__(self):
        super().__init__("test")
        self.given_up = []

    def now(self, operation, timeout_s=20):
        """Run an operation as a synchronous call does."""
        if not self.enter():
            self.later(operation, timeout_s).wait()
            return
        try:
            operation()
        finally:
            self.turn.holder = None
            if self.turn.watchers:
                self.tell()

    def later(self, operation, timeout_s=20, give_up=None):
        deadline = timeout_s if isinstance(timeout_s, Deadline) else Deadline(timeout_s)
        return super().later("an operation", operation, deadline, give_up or self.given_up.append)


@pytest.fixture
def order():
    order = Line()
    yield order
    order.close()


def test_a_synchronous_operation_runs_on_the_callers_thread_when_nothing_is_before_it(order):
    threads = []
    order.now(lambda: threads.append(threading.current_thread()))
    assert threads == [threading.current_thread()]


def test_operations_run_in_the_order_they_were_issued(order):
    done, gate = [], threading.Event()
    works = [order.later(lambda: gate.wait(PATIENCE_S) and done.append(0))]
    works += [order.later(lambda i=i: done.append(i)) for i in range(1, 20)]
    threading.Timer(0.02, gate.set).start()
    order.now(lambda: done.append(20))
    assert done == list(range(21))
    assert all(work.is_success() for work in works)


def test_an_error_belongs_to_its_own_operation(order):
    def fail():
        raise DistBackendError("mine")

    bad, good = order.later(fail), order.later(lambda: None)
    with pytest.raises(DistBackendError, match="mine"):
        bad.wait(PATIENCE_S)
    assert good.wait(PATIENCE_S)
    with pytest.raises(DistBackendError):
        order.now(fail)
    order.now(lambda: None)


def test_threads_take_turns(order):
    inside, worst = [0], [0]

    def operation():
        inside[0] += 1
        worst[0] = max(worst[0], inside[0])
        time.sleep(0)
        inside[0] -= 1

    at_once(lambda _: [order.now(operation) for _ in range(50)], range(8), PATIENCE_S)
    assert worst == [1]


@pytest.mark.parametrize("issue", ["now", "later"])
def test_a_callback_may_issue_and_wait_for_another_operation(order, issue):
    done, gate = [], threading.Event()
    issued = order.now if issue == "now" else lambda operation: order.later(operation).wait(PATIENCE_S)
    first = order.later(lambda: gate.wait(PATIENCE_S))
    first.add_done_callback(lambda _: issued(lambda: done.append("inner")))
    gate.set()
    order.later(lambda: done.append("second")).wait(PATIENCE_S)
    order.drain(5)
    assert sorted(done) == ["inner", "second"]


@pytest.mark.parametrize("issue", ["now", "later"])
def test_an_operation_that_never_gets_its_turn_ends_at_its_time_out(order, issue):
    gate = threading.Event()
    order.later(lambda: gate.wait(PATIENCE_S))
    issued = order.now if issue == "now" else lambda *args: order.later(*args).wait()
    told = r"operation: timed out: not done within .*: operations before"
    with within(LEEWAY_S, at_least_s=0.1), pytest.raises(dist.DistTimeoutError, match=told):
        issued(lambda: None, 0.1)
    assert len(order.given_up) == 1
    gate.set()


def test_a_wait_that_is_too_short_says_what_goes_on(order):
    gate = threading.Event()
    work = order.later(lambda: gate.wait(PATIENCE_S))
    with pytest.raises(dist.DistTimeoutError, match=r"an operation: timed out: not done after .* s; it goes on"):
        work.wait(0.05)
    assert not work.is_completed()
    gate.set()
    assert work.wait(PATIENCE_S)


def test_draining_waits_and_gives_up_in_time(order):
    gate = threading.Event()
    order.later(lambda: gate.wait(PATIENCE_S))
    with within(LEEWAY_S), pytest.raises(dist.DistTimeoutError):
        order.drain(0.05)
    gate.set()
    order.drain(5)


def test_an_abort_fails_what_waits(order):
    begun, gate = threading.Event(), threading.Event()
    running = order.later(lambda: begun.set() or gate.wait(PATIENCE_S))
    assert begun.wait(PATIENCE_S)
    waiting = order.later(lambda: None)
    order.abort(GroupAbortedError("enough"))
    with pytest.raises(GroupAbortedError, match="enough"):
        waiting.wait(PATIENCE_S)
    gate.set()
    assert running.wait(PATIENCE_S)


# ---------------------------------------------------------------------- mailboxes


def test_messages_meet_receives_by_source_and_tag_in_order():
    box, buffers = Mailbox(), [np.zeros(1, np.uint8) for _ in range(4)]
    early = box.receive(buffers[0], 1, 5)
    box.deliver(1, 6, b"a")
    box.deliver(2, 5, b"b")
    assert not early.is_completed()
    box.deliver(1, 5, b"c")
    box.deliver(1, 5, b"d")
    works = [early, box.receive(buffers[1], None, 5), box.receive(buffers[2], 1, 5), box.receive(buffers[3], None, 6)]
    assert [work.source_rank() for work in works] == [1, 2, 1, 1]
    assert [bytes(buffer) for buffer in buffers] == [b"c", b"b", b"d", b"a"]


def test_a_message_that_is_too_long_fails_both_ends_and_writes_nothing():
    box, buffer, ended = Mailbox(), np.zeros(3, np.uint8), []
    work = box.receive(buffer[:2], 0, 1)
    box.deliver(0, 1, b"abc", ended.append)
    with pytest.raises(DistBackendError, match=r"3 bytes from rank 0 .* 2 bytes"):
        work.wait(PATIENCE_S)
    assert isinstance(ended[0], DistBackendError)
    assert not buffer.any()


def test_a_receive_that_nothing_has_met_can_be_withdrawn():
    box, buffer = Mailbox(), np.zeros(1, np.uint8)
    work = box.receive(buffer, 0, 1)
    assert work.cancel()
    assert not work.cancel()
    box.deliver(0, 1, b"x")
    assert not buffer.any()
    assert box.receive(buffer, 0, 1).wait(PATIENCE_S)
    assert buffer[0] == ord("x")


def test_a_lost_peer_fails_its_own_receives_and_an_abort_all():
    box, buffer = Mailbox(), np.zeros(1, np.uint8)
    box.deliver(1, 3, b"a")
    from_one, from_two, from_any = (box.receive(buffer, src, 0) for src in (1, 2, None))
    box.fail(DistBackendError("one is gone"), src=1)
    assert isinstance(from_one.exception(), DistBackendError)
    assert not from_two.is_completed()
    assert box.receive(buffer, 1, 3).is_success()
    assert isinstance(box.receive(buffer, 1, 3).exception(), DistBackendError)
    box.fail(GroupAbortedError("all"))
    for work in (from_two, from_any, box.receive(buffer, 2, 0)):
        assert isinstance(work.exception(), GroupAbortedError)


@pytest.mark.parametrize("seed", range(20))
def test_a_mailbox_matches_as_a_list_that_is_searched_from_the_front_does(seed):
    choose = random.Random(seed)
    box, begun, met = Mailbox(), [], {}
    messages, receives = [], []  # the model: (number, source, tag)
    for number in range(600):
        src, tag = choose.randrange(3), choose.randrange(3)
        action = choose.choice(("receive", "receive from anyone", "deliver", "deliver", "withdraw"))
        if action == "deliver":
            box.deliver(src, tag, number.to_bytes(4, "little"))
            fits = next((r for r in receives if r[1] in (None, src) and r[2] == tag), None)
            if fits is None:
                messages.append((number, src, tag))
            else:
                receives.remove(fits)
                met[fits[0]] = number
        elif action == "withdraw":
            if receives:
                gone = receives.pop(choose.randrange(len(receives)))
                assert begun[gone[0]][0].cancel()
        else:
            wanted = src if action == "receive" else None
            buffer = np.zeros(1, np.uint32)
            begun.append((box.receive(buffer, wanted, tag), buffer))
            fits = next((m for m in messages if wanted in (None, m[1]) and m[2] == tag), None)
            if fits is None:
                receives.append((len(begun) - 1, wanted, tag))
            else:
                messages.remove(fits)
                met[len(begun) - 1] = fits[0]
    for index, (work, buffer) in enumerate(begun):
        assert work.is_success() == (index in met)
        assert not work.is_success() or buffer[0] == met[index]


@pytest.mark.parametrize("src", [0, None], ids=["from one", "from anyone"])
def test_what_a_match_costs_does_not_grow_with_what_waits(src):
    box, count, buffer = Mailbox(), 10_000, np.zeros(1, np.uint8)
    begin = time.process_time()
    works = [box.receive(buffer, src, tag) for tag in range(count)]
    for tag in reversed(range(count)):
        box.deliver(0, tag, b"x")
    for tag in range(count):
        box.deliver(0, tag, b"x")
    works += [box.receive(buffer, src, tag) for tag in reversed(range(count))]
    withdrawn = [box.receive(buffer, src, 0) for _ in range(count)]
    assert all(work.cancel() for work in reversed(withdrawn))
    assert all(work.is_success() for work in works)
    assert time.process_time() - begin < 5  # a fifth of a second; looking through a list takes a hundred times as long


@pytest.mark.parametrize("text", ["get('x') on a store: waited 5 s for it", "", "x: timed out: not done within 1 s"])
def test_every_time_out_has_the_words_in_its_text(text):
    error = dist.DistTimeoutError(text) if text else dist.DistTimeoutError()
    assert str(error).count("timed out") == 1
    assert text in str(error)
    copy = pickle.loads(pickle.dumps(error))
    assert (type(copy), str(copy), copy.args) == (dist.DistTimeoutError, str(error), (str(error),))
    assert isinstance(copy, TimeoutError)


@on_ranks(2)
def test_a_work_says_what_it_is():
    other = 1 - dist.get_rank()
    works = [dist.all_reduce(np.ones(2), async_op=True) for _ in range(2)]
    works += [dist.isend(np.ones(1), other), dist.irecv(np.ones(1), other)]
    words = ["all_reduce, number 0", "all_reduce, number 1"]
    words += [f"isend, number 0, to rank {other},", f"irecv, number 1, from rank {other},"]
    told = [repr(work) for work in works if work.wait()]
    assert told == [f"<Work: {each} on group 'default': done>" for each in words]


def test_a_work_says_how_far_it_has_come() -> None:
    work = FutureWork()
    assert repr(work) == "<FutureWork: pending>"
    work.fail(ValueError("no"))
    assert repr(work) == "<FutureWork: failed with ValueError: no>"
