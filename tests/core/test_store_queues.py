"""An item of a queue goes to exactly one caller that has confirmed it, or is in its place: whatever ends the others."""

from __future__ import annotations

import dis
import os
import random
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from types import FrameType
from typing import Any

import pytest
from tests.processes import wait_until
from tests.store_kinds import PLAIN_KINDS

from rankwise.basics.deadline import Deadline
from rankwise.errors import DistNetworkError, DistTimeoutError, QueueEmptyError
from rankwise.store import HashStore, Store, memory
from rankwise.store.memory import Table
from rankwise.store.primitives import Missing
from rankwise_stores import FileStore, TCPStore, queues
from rankwise_stores.queues import LEASE_S
from rankwise_stores.tcp import server
from rankwise_stores.tcp import waiting as lent

QUEUE = "jobs"
PATIENCE_S = 20.0


# ---------------------------------------------------------------------- the model


class Caller:
    """One that pops: it asks, gets the item or not, and confirms it, releases it, or is heard of no more."""

    def __init__(self, table: Any) -> None:
        self.table, self.token = table, os.urandom(16)
        self.item: bytes | None = None
        self.seen: dict[bytes, float] = {}

    def ask(self) -> None:
        if self.item is None:
            found = queues.queue_pop(self.table, QUEUE, self.token, self.seen)
            self.item = None if isinstance(found, Missing) else found

    def confirm(self) -> bool:
        return queues.queue_confirm(self.table, QUEUE, self.token)

    def release(self) -> None:
        queues.queue_release(self.table, QUEUE, self.token, self.item)


@pytest.mark.parametrize("seed", range(300))
def test_no_interleaving_loses_doubles_or_reorders_an_item(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    draw, now = random.Random(seed), [0.0]
    monkeypatch.setattr(queues, "monotonic", lambda: now[0])
    table = Table()
    callers, all_callers = list[Caller](), list[Caller]()
    pushed, taken, returned = list[bytes](), list[bytes](), set[bytes]()
    for _ in range(60):
        move = draw.choice(["push", "ask", "again", "confirm", "confirm", "release", "regret", "die", "time"])
        if move == "push":
            pushed.append(b"%d" % len(pushed))
            queues.queue_push(table, QUEUE, pushed[-1])
        elif move == "ask":
            callers.append(Caller(table))
            all_callers.append(callers[-1])
            callers[-1].ask()
        elif move == "time":
            now[0] += draw.choice([1.0, LEASE_S + 1])
        elif callers:
            caller = draw.choice(callers)
            if move == "again":  # one that waits looks again
                caller.ask()
                continue
            callers.remove(caller)
            if move == "confirm" and caller.item is not None and caller.confirm():
                taken.append(caller.item)
            elif move == "release":
                caller.release()
            elif move == "regret" and caller.item is not None:  # interrupted when it had confirmed, or just before
                if caller.confirm():
                    returned.add(caller.item)
                caller.release()
                caller.release()  # a second time does nothing
    now[0] += LEASE_S + 1
    left = list[bytes]()
    while queues.queue_len(table, QUEUE):
        caller = Caller(table)
        caller.seen = dict.fromkeys((other.token for other in all_callers), -LEASE_S)  # they have had their time
        caller.ask()
        assert caller.item is not None
        assert caller.confirm()
        left.append(caller.item)
    assert sorted(taken + left, key=int) == pushed
    kept = [int(item) for item in left if item not in returned]
    assert kept == sorted(kept)
    assert not table.values


# ---------------------------------------------------------------------- interrupts


class Interrupt(BaseException):
    """What a signal handler raises."""


@contextmanager
def interrupted_at(step: int, count: list[int]) -> Iterator[None]:
    """Raise where the interpreter would run a signal handler in the code of stores: at the step of that number."""
    last: dict[FrameType, int] = {}

    def handles(frame: FrameType) -> bool:
        before, last[frame] = last.get(frame), frame.f_lasti
        return before is None or dis.opname[frame.f_code.co_code[before]].startswith(("CALL", "RESUME", "JUMP_BACK"))

    def trace(frame: FrameType, event: str, _: Any) -> Any:
        if not any(room in frame.f_code.co_filename for room in ("rankwise/store", "rankwise_stores")):
            return None
        frame.f_trace_opcodes, frame.f_trace_lines = True, False
        if event == "opcode" and handles(frame):
            count[0] += 1
            if count[0] == step:
                sys.settrace(None)
                raise Interrupt
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        yield
    finally:
        sys.settrace(before)


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")  # of a socket that nobody has yet
@pytest.mark.parametrize("kind", sorted(PLAIN_KINDS))
def test_a_pop_that_is_interrupted_anywhere_leaves_the_item_first(kind: str, tmp_path: Path) -> None:
    with ThreadPoolExecutor(1) as threads, ExitStack() as stack:
        store = PLAIN_KINDS[kind](stack, tmp_path)
        store.set_timeout(PATIENCE_S)
        store.queue_push(QUEUE, "first")
        store.queue_push(QUEUE, "second")
        count = [0]
        with interrupted_at(-1, count):
            assert store.queue_pop(QUEUE) == b"first"
        steps = count[0]
        assert steps > 50
        store.queue_pop(QUEUE)
        draw = random.Random(7)
        few = sorted(draw.sample(range(1, steps), min(150, steps - 1)))
        places = few if kind in ("tcp", "etcd") else range(1, steps)
        for place in places:
            first, second = b"%d" % place, b"%d behind it" % place
            store.queue_push(QUEUE, first)
            store.queue_push(QUEUE, second)
            try:
                with interrupted_at(place, [0]):
                    got = store.queue_pop(QUEUE)
            except Interrupt:
                got = threads.submit(store.queue_pop, QUEUE).result(PATIENCE_S)  # no lock is left held either
            other = threads.submit(store.queue_pop, QUEUE).result(PATIENCE_S)
            # A server may still have the request of a connection that was closed half-way, and lend it the item.
            may_be_late = kind.startswith(("tcp", "redis", "etcd")) and (other, got) == (first, second)
            assert (got, other) == (first, second) or may_be_late, place
            assert store.queue_len(QUEUE) == 0


# ---------------------------------------------------------------------- those that end, or stand still


@contextmanager
def child(body: Callable[[], object]) -> Iterator[int]:
    """Run a function in a forked process, which is killed in the end."""
    pid = os.fork()
    if pid == 0:
        try:
            body()
        finally:
            os._exit(0)
    try:
        yield pid
    finally:
        kill(pid)


def kill(pid: int) -> None:
    try:
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
    except (ProcessLookupError, ChildProcessError):
        pass


def test_a_client_that_is_killed_while_it_waits_takes_nothing_with_it() -> None:
    with TCPStore("127.0.0.1", is_master=True, timeout=PATIENCE_S) as store:
        for number in range(10):
            queue, at_it = f"{QUEUE}{number}", f"at it {number}"

            def wait(queue: str = queue, at_it: str = at_it) -> None:
                client = TCPStore("127.0.0.1", store.port, timeout=PATIENCE_S)
                client.set(at_it, "")
                client.queue_pop(queue)

            with child(wait) as pid:
                store.get(at_it)
                kill(pid)
                store.queue_push(queue, "item")
                assert store.queue_pop(queue) == b"item"


@pytest.mark.parametrize("end", [signal.SIGKILL, signal.SIGSTOP])
@pytest.mark.parametrize("kind", ["tcp", "file"])
def test_the_item_of_one_that_has_not_confirmed_it_returns(
    kind: str, end: signal.Signals, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in (queues, lent):
        monkeypatch.setattr(module, "LEASE_S", 1.0)
    with ExitStack() as stack:
        store: Store
        if kind == "tcp":
            store = stack.enter_context(TCPStore("127.0.0.1", is_master=True, timeout=PATIENCE_S))
            port = store.port
            open_ = lambda: TCPStore("127.0.0.1", port, timeout=PATIENCE_S)  # noqa: E731
        else:
            store = stack.enter_context(FileStore(tmp_path / "store", timeout=PATIENCE_S))
            open_ = lambda: FileStore(tmp_path / "store", timeout=PATIENCE_S)  # noqa: E731
        for item in ("first", "second"):
            store.queue_push(QUEUE, item)

        def take_and_stay() -> None:
            client = open_()
            assert client._run(queues.queue_pop, 1.0, QUEUE, os.urandom(16)) == b"first"
            client.set("has it", "")
            threading.Event().wait()

        with child(take_and_stay) as pid:
            store.get("has it")
            assert store.queue_pop(QUEUE) == b"second"
            os.kill(pid, end)
            assert store.queue_len(QUEUE) == 1
            assert store.queue_pop(QUEUE, block=kind == "tcp") == b"first"
            with pytest.raises(QueueEmptyError):
                store.queue_pop(QUEUE, block=False)


def test_a_pop_that_times_out_while_the_server_stands_still_has_taken_nothing() -> None:
    ready, tell = os.pipe()

    def serve() -> None:
        store = TCPStore("127.0.0.1", is_master=True, timeout=PATIENCE_S)
        os.write(tell, b"%d" % store.port)
        threading.Event().wait()

    with child(serve) as pid, ExitStack() as stack:
        port = int(os.read(ready, 10))
        one, other = (stack.enter_context(TCPStore("127.0.0.1", port, timeout=PATIENCE_S)) for _ in range(2))
        for number in range(5):
            one.queue_push(QUEUE, f"item {number}")
            other.check([])
            os.kill(pid, signal.SIGSTOP)
            os.waitpid(pid, os.WUNTRACED)  # until then a thread of it may still answer
            with pytest.raises(DistTimeoutError):
                other.queue_pop(QUEUE, timeout=0.05)
            os.kill(pid, signal.SIGCONT)
            assert one.queue_pop(QUEUE) == b"item %d" % number
        kill(pid)
        with pytest.raises((DistNetworkError, DistTimeoutError)):
            one.queue_pop(QUEUE, timeout=0.5)


def test_an_item_that_was_given_back_over_another_connection_is_not_lent_to_the_one_left_waiting() -> None:
    with TCPStore("127.0.0.1", is_master=True, timeout=PATIENCE_S) as store:
        token = os.urandom(16)
        waiting = threading.Thread(target=lambda: suppressed(store, token))
        waiting.start()
        assert wait_until(lambda: store._pool._server._waiting.has(queues.queue_key(QUEUE)), PATIENCE_S)  # type: ignore[union-attr]
        store._run(queues.queue_release, 1.0, QUEUE, token, None)
        store.queue_push(QUEUE, "item")
        assert store.queue_pop(QUEUE, block=False) == b"item"
        waiting.join()


def suppressed(store: TCPStore, token: bytes) -> None:
    with suppress(DistTimeoutError):
        store._await(queues.queue_pop, 0.5, QUEUE, token)


def test_an_item_that_comes_back_wakes_the_next_in_the_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server, "_PROBE_S", 0.05)
    with TCPStore("127.0.0.1", is_master=True, timeout=PATIENCE_S) as store:
        store.queue_push(QUEUE, "item")
        gone = TCPStore("127.0.0.1", store.port, timeout=PATIENCE_S)
        assert gone._run(queues.queue_pop, 1.0, QUEUE, os.urandom(16)) == b"item"
        threading.Timer(0.05, gone.close).start()
        assert store.queue_pop(QUEUE) == b"item"


def test_one_that_confirms_too_late_waits_for_the_next_item(monkeypatch: pytest.MonkeyPatch) -> None:
    store = HashStore()
    store.queue_push(QUEUE, "first")
    store.queue_push(QUEUE, "second")
    confirm, took = queues.queue_confirm, list[bytes]()

    def late(table: Any, queue: str, token: bytes) -> bool:
        if not took:
            queues.queue_release(table, queue, token, None)  # as when its lease has ended
            other = Caller(table)
            other.ask()
            assert other.item is not None
            assert confirm(table, queue, other.token)
            took.append(other.item)
        return confirm(table, queue, token)

    monkeypatch.setattr(queues, "queue_confirm", late)
    assert store.queue_pop(QUEUE) == b"second"
    assert took == [b"first"]


def test_as_many_tokens_are_remembered_as_are_promised() -> None:
    confirmed = memory.Confirmed()
    tokens = [b"%d" % number for number in range(memory._REMEMBERED + 1)]
    for token in tokens:
        confirmed.add(token)
    assert not confirmed.discard(tokens[0])  # forgotten for the last
    assert all(map(confirmed.discard, tokens[1:]))
    assert not confirmed.discard(tokens[-1])


def test_a_barrier_is_passed_once_all_have_come_who_have_not_left() -> None:
    table = Table()

    def state() -> bytes | None:
        return table.peek(queues._barrier("b"))

    assert isinstance(queues.barrier(table, "b", 3), Missing)
    assert isinstance(queues.barrier(table, "b", 3), Missing)
    assert isinstance(queues.barrier_leave(table, "b", 0), Missing)
    assert state() == b"0 1 3"
    assert isinstance(queues.barrier(table, "b", 3), Missing)
    assert queues.barrier(table, "b", 3) is True
    assert queues.barrier_wait(table, "b", 0) is True
    assert isinstance(queues.barrier_wait(table, "b", 1), Missing)
    assert queues.barrier_leave(table, "b", 0) is True  # too late: all have come
    assert state() == b"1 0 3"
    assert isinstance(queues.barrier_leave(table, "b", 1), Missing)  # of which nobody has come
    assert state() == b"1 0 3"


@pytest.mark.parametrize("returns", [True, False])
def test_nobody_is_told_that_a_queue_is_empty_whose_last_item_may_come_back(
    returns: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its caller does not read that it has been in time, and gives it back or stands still."""
    monkeypatch.setattr(lent, "LEASE_S", PATIENCE_S if returns else 0.5)
    monkeypatch.setattr(server, "_PROBE_S", 0.05)
    with TCPStore("127.0.0.1", is_master=True, timeout=PATIENCE_S) as store, ThreadPoolExecutor(1) as threads:
        at = store._pool._server
        store.queue_push(QUEUE, "item")
        late, token = TCPStore("127.0.0.1", store.port, timeout=PATIENCE_S), os.urandom(16)
        assert late._run(queues.queue_pop, 1.0, QUEUE, token) == b"item"
        with late._pool.connection(Deadline(PATIENCE_S)) as connection:
            connection._ask("queue_confirm", None, (QUEUE, token))
        assert wait_until(lambda: at._lent.is_leaving(QUEUE), PATIENCE_S)  # type: ignore[union-attr]
        length = threads.submit(store.queue_len, QUEUE)
        if returns:
            assert wait_until(lambda: at._waiting.has(server._LEAVING + QUEUE), PATIENCE_S)  # type: ignore[union-attr]
            late._run(queues.queue_release, 1.0, QUEUE, token, b"item")
        assert length.result(PATIENCE_S) == returns
        late.close()
