"""What those who know the secret can make a store hold, and what it does without free descriptors."""

from __future__ import annotations

import os
import resource
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any, cast

import pytest
import zmq
from tests.by_reference import command, returned

import rankwise
from rankwise.errors import DistError, DistStoreError, DistTimeoutError, ProtocolError
from rankwise.store.memory import Table
from rankwise.store.operations import multi_get, wait
from rankwise.store.primitives import Missing
from rankwise_network import doors, secret
from rankwise_stores import FileStore, TCPStore
from rankwise_stores.tcp import waiting, wire

PATIENCE_S = 30.0
MIB = 1 << 20


@pytest.fixture(autouse=True)
def _no_secret(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("RANKWISE_SECRET_FD", raising=False)
    monkeypatch.delenv("RANKWISE_SECRET_FILE", raising=False)


@contextmanager
def rude(port: int) -> Iterator[Callable[..., None]]:
    """Send requests, and read nothing."""
    with zmq.Context() as context, context.socket(zmq.DEALER) as dealer:
        dealer.linger, dealer.sndhwm, dealer.rcvhwm = 0, 0, 1
        dealer.connect(f"tcp://127.0.0.1:{port}")

        def ask(name: str, *args: Any, wait_s: float | None = None) -> None:
            for piece in wire.to_pieces(wire.encode_request(1, name, wait_s, args)):
                dealer.send(piece)

        yield ask


def peak_mib(pid: int) -> float:
    """Return the most memory that a process has had."""
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("VmHWM")) / 1024


# ---------------------------------------------------------------------- replies that nobody reads


def serve_a_large_value() -> None:
    store = TCPStore("127.0.0.1", is_master=True)
    store.set("large", bytes(8 << 20))
    print(store.port, flush=True)
    sys.stdin.read()


def test_replies_that_nobody_reads_do_not_fill_the_memory() -> None:
    with ExitStack() as stack:
        pipes: dict[str, Any] = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
        process = stack.enter_context(subprocess.Popen(command(serve_a_large_value), **pipes))
        stack.callback(process.kill)
        port = int(process.stdout.readline())
        client = stack.enter_context(TCPStore("127.0.0.1", port, timeout=PATIENCE_S))
        before = peak_mib(process.pid)
        for _ in range(25):
            ask = stack.enter_context(rude(port))
            for _ in range(8):
                ask("get", "large", wait_s=60)
                ask("peek", "large")
        for number in range(100):  # the server has had time for all of them when it has answered these
            assert client.add("n", 1) == number + 1
            time.sleep(0.01)
        assert peak_mib(process.pid) - before < 450  # else 3,200


def test_one_who_does_not_read_is_told_so_and_nobody_else_is_hurt(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(waiting, "MAX_OF_ONE_NBYTES", 3 * MIB)
    with TCPStore("127.0.0.1", is_master=True, timeout=PATIENCE_S) as store:
        store.set("large", bytes(MIB))
        with zmq.Context() as context, context.socket(zmq.DEALER) as dealer:
            dealer.linger, dealer.rcvtimeo = 0, int(1000 * PATIENCE_S)
            dealer.connect(f"tcp://127.0.0.1:{store.port}")
            for number in range(5):
                dealer.send(wire.Piece.LAST + wire.encode_request(number, "get", 60, ["large"]))
            replies = [wire.decode_reply(wire.from_frames(dealer.recv_multipart())) for _ in range(5)]
            assert [reply.status for reply in replies] == 3 * [wire.OK] + 2 * [wire.STORE_ERROR]
            assert "has not read replies" in replies[-1].value
            assert len({reply.receipt for reply in replies[:3]}) == 3
            dealer.send(wire.Piece.RECEIPT + b"made up!")  # is none
            dealer.send(wire.Piece.LAST + wire.encode_request(6, "get", 60, ["large"]))
            assert wire.decode_reply(dealer.recv()).status == wire.STORE_ERROR
            dealer.send(wire.to_receipt(replies[0]))
            dealer.send(wire.Piece.LAST + wire.encode_request(7, "get", 60, ["large"]))
            assert wire.decode_reply(wire.from_frames(dealer.recv_multipart())).status == wire.OK
        for _ in range(10):
            assert len(store.get("large")) == MIB


def test_replies_wait_until_there_is_room_for_them(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(waiting, "_MAX_TOTAL_NBYTES", 2 * MIB)
    with TCPStore("127.0.0.1", is_master=True, timeout=PATIENCE_S) as store, ExitStack() as stack:
        store.set("large", bytes(MIB))
        users = [stack.enter_context(TCPStore("127.0.0.1", store.port, timeout=PATIENCE_S)) for _ in range(12)]
        with ThreadPoolExecutor(len(users)) as threads:
            calls = [threads.submit(user.get, "large") for user in users for _ in range(4)]
            calls += [threads.submit(user.peek, "large") for user in users]
            assert all(len(call.result(PATIENCE_S) or b"") == MIB for call in calls)


def test_what_a_client_has_not_read_counts_no_more_once_it_is_gone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(waiting, "_MAX_TOTAL_NBYTES", 8 * MIB)
    with TCPStore("127.0.0.1", is_master=True, timeout=PATIENCE_S) as store:
        store.set("large", bytes(8 * MIB))
        store.queue_push("q", bytes(MIB))
        with ThreadPoolExecutor(1) as threads, rude(store.port) as ask:
            ask("get", "large", wait_s=60)
            ask("set_", "asked", b"")
            store.get("asked")
            with pytest.raises(DistStoreError, match="no room for the reply"):
                store.get("large", timeout=0.3)
            with pytest.raises(DistStoreError, match="no room for the reply"):
                store.queue_pop("q", timeout=0.3)
            assert store.queue_len("q") == 1
            patient = threads.submit(store.get, "large")
            ask("set_", "again", b"")
            store.get("again")
            assert not patient.done()
        assert len(patient.result(PATIENCE_S)) == 8 * MIB
        assert len(store.queue_pop("q")) == MIB


# ---------------------------------------------------------------------- requests


def test_pieces_of_requests_are_bounded_for_one_and_for_all(monkeypatch: pytest.MonkeyPatch) -> None:
    pieces, piece = waiting.Assembly(), bytes(wire.FRAME_NBYTES)
    for _ in range(wire.MAX_MESSAGE_NBYTES // len(piece)):
        assert pieces.add(b"one", piece, more=True) is None
    with pytest.raises(ProtocolError, match="too large"):
        pieces.add(b"one", piece, more=True)
    assert pieces.add(b"one", b"data", more=False) == b"data"
    monkeypatch.setattr(waiting, "_MAX_TOTAL_NBYTES", 10 * len(piece))
    for number in range(100):
        pieces.add(b"%d" % number, piece, more=True)
        assert pieces._nbytes <= 10 * len(piece)
    assert pieces.add(b"99", b"!", more=False) == piece + b"!"
    assert pieces.add(b"5", b"the rest", more=False) == b"the rest"  # its beginning is forgotten


def test_a_request_without_end_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(wire, "MAX_MESSAGE_NBYTES", 1 << 20)
    with TCPStore("127.0.0.1", is_master=True, timeout=PATIENCE_S) as store:
        with zmq.Context() as context, context.socket(zmq.DEALER) as dealer:
            dealer.linger, dealer.rcvtimeo = 0, int(1000 * PATIENCE_S)
            dealer.connect(f"tcp://127.0.0.1:{store.port}")
            for _ in range(17):
                dealer.send(wire.Piece.MORE + bytes(wire.FRAME_NBYTES))
            reply = wire.decode_reply(dealer.recv())
            assert (reply.status, reply.value) == (wire.PROTOCOL_ERROR, "the message is too large")
        assert store.add("n", 1) == 1


def test_requests_that_wait_are_bounded_by_what_they_take(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(waiting, "_MAX_NBYTES", 100_000)
    with TCPStore("127.0.0.1", is_master=True, timeout=PATIENCE_S) as store, rude(store.port) as ask:
        for _ in range(3):
            ask("wait", ["k" * 8000] * 4, wait_s=60)
        ask("set_", "asked", b"")
        store.get("asked")
        with pytest.raises(DistStoreError, match="too many requests are waiting"):
            store.wait([str(number) * 1000 for number in range(9)])
        with pytest.raises(DistTimeoutError):
            store.wait(["k"], timeout=0.01)


class CountingTable(Table):
    looks = 0

    def peek(self, key: str) -> bytes | None:
        self.looks += 1
        return super().peek(key)


@pytest.mark.parametrize("operation", [wait, multi_get])
@pytest.mark.parametrize("backwards", [False, True])
def test_a_wait_for_many_keys_looks_at_each_a_few_times(operation: Callable[..., Any], backwards: bool) -> None:
    table, keys = CountingTable(), [f"key {number}" for number in range(2000)]
    found, order = operation(table, keys), reversed(keys) if backwards else keys
    for key in order:
        assert isinstance(found, Missing)
        table.swap(key, None, b"v")
        if found.key == key:
            assert found.operation is not None
            found = found.operation(table, *found.args)
    assert found == (True if operation is wait else len(keys) * [b"v"])
    assert table.looks < 6 * len(keys)


@pytest.mark.parametrize("operation", [wait, multi_get])
def test_a_key_that_is_deleted_while_others_are_waited_for_is_waited_for_again(operation: Callable[..., Any]) -> None:
    table = Table()
    table.swap("a", None, b"1")
    found = operation(table, ["a", "b"])
    assert found.key == "b"
    table.swap("a", b"1", None)
    table.swap("b", None, b"2")
    found = found.operation(table, *found.args)
    assert isinstance(found, Missing)
    assert found.key == "a"
    table.swap("a", None, b"3")
    assert found.operation is not None
    assert found.operation(table, *found.args) == (True if operation is wait else [b"3", b"2"])


def test_a_wait_for_100_000_keys_does_not_stall_the_store() -> None:
    keys = [f"key {number}" for number in range(100_000)]
    with TCPStore("127.0.0.1", is_master=True, timeout=2 * PATIENCE_S) as store, ThreadPoolExecutor(1) as threads:
        waiting = threads.submit(store.wait, keys)
        longest = 0.0
        for begin in range(0, len(keys), 500):
            store.multi_set(keys[begin : begin + 500], 500 * [b""])
            started = time.monotonic()
            store.add("n", 1)
            longest = max(longest, time.monotonic() - started)
        waiting.result(2 * PATIENCE_S)
    assert longest < 1.5


# ---------------------------------------------------------------------- no free descriptors

Made = Callable[[str, int, bytes | None], TCPStore | FileStore | None]

#: What takes descriptors, given the path of a file, the port of a store and its secret.
MADE: dict[str, Made] = {
    "a master": lambda path, port, secret: TCPStore("127.0.0.1", is_master=True, timeout=20, secret=secret),
    "a client": lambda path, port, secret: TCPStore("127.0.0.1", port, timeout=20, secret=secret),
    "a client by name": lambda path, port, secret: TCPStore("localhost", port, timeout=20, secret=secret),
    "a file": lambda path, port, secret: FileStore(path, secret=secret),
    "a world by a file": lambda path, port, secret: rankwise.init_process_group("gloo", f"file://{path}", **ALONE),
    "a world by a port": lambda path, port, secret: rankwise.init_process_group("gloo", "tcp://127.0.0.1:0", **ALONE),
}
ALONE: dict[str, Any] = {"rank": 0, "world_size": 1}
DESCRIPTORS = 128


def run_limited(function: Callable[..., object], *args: object) -> subprocess.CompletedProcess[str]:
    """Call a function in a process that may have few descriptors."""
    program = command(_limited, function.__name__, *args)
    return subprocess.run(program, capture_output=True, text=True, timeout=2 * PATIENCE_S)


def _limited(name: str, *args: object) -> object:
    resource.setrlimit(resource.RLIMIT_NOFILE, (DESCRIPTORS, DESCRIPTORS))
    return globals()[name](*args)


def _exhaust(left: int = 0) -> list[int]:
    held = []
    with suppress(OSError):
        while True:
            held.append(os.open("/dev/null", os.O_RDONLY))
    for _ in range(left):
        os.close(held.pop())
    return held


def _close(held: list[int]) -> None:
    for descriptor in held:
        os.close(descriptor)


def test_accepting_does_not_spin_and_recovers() -> None:
    run = run_limited(accept_without_descriptors)
    assert run.returncode == 0, run.stderr
    assert cast("float", returned(run.stdout)) < 0.5
    assert "no free file descriptor for those who connect" in run.stderr
    assert "ulimit -n" in run.stderr


def accept_without_descriptors() -> float:
    """Return which part of the time a server computes that cannot accept, the worst of several crowds."""
    worst = 0.0
    with TCPStore("127.0.0.1", is_master=True, timeout=20) as store:
        pipes: dict[str, Any] = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
        with subprocess.Popen(command(visit, store.port), **pipes) as process:
            for _ in range(20):
                held = _exhaust()
                process.stdin.write("come\n")
                process.stdin.flush()
                assert process.stdout.readline() == "9 are there\n"
                begin = time.process_time()
                time.sleep(0.2)
                worst = max(worst, (time.process_time() - begin) / 0.2)
                store.set("key", "v")
                _close(held)
            process.stdin.close()
        with TCPStore("127.0.0.1", store.port, timeout=20) as other:
            assert other.get("key") == b"v"
    return worst


def visit(port: int) -> None:
    """Come in a crowd, as often as is asked for; go when nobody asks any more."""
    while sys.stdin.readline():
        crowd = [socket.create_connection(("127.0.0.1", port)) for _ in range(9)]
        sys.stdout.write(f"{len(crowd)} are there\n")
        sys.stdout.flush()


def test_a_store_ends_without_free_descriptors() -> None:
    run = run_limited(close_without_descriptors)
    assert (run.returncode, run.stdout, run.stderr) == (0, "closed", "")


def close_without_descriptors() -> None:
    store = TCPStore("127.0.0.1", is_master=True, timeout=20)
    _exhaust()
    store.close()
    os.write(1, b"closed")
    os._exit(0)


@pytest.mark.parametrize("secret", [None, b"s" * 32], ids=["no secret", "secret"])
@pytest.mark.parametrize("made", MADE)
def test_whatever_number_of_descriptors_is_free_an_error_names_the_cause(
    made: str, secret: bytes | None, tmp_path: Path
) -> None:
    with TCPStore("127.0.0.1", is_master=True, secret=secret) as outside:
        run = run_limited(make_with_few_descriptors, made, str(tmp_path / "store"), outside.port, secret)
    assert run.returncode == 0, run.stderr[-3000:]
    assert returned(run.stdout) == []


def make_with_few_descriptors(made: str, path: str, port: int, secret: bytes | None) -> list[str]:
    """Return the problems that do not name the cause."""

    def attempt() -> None:
        store = MADE[made](path, port, secret)
        if store is None:
            rankwise.destroy_process_group()
        else:
            store.set("key", "v")
            store.close()

    attempt()  # loads what is loaded when it is needed
    problems = [""]
    for left in range(60):
        held = _exhaust(left)
        try:
            attempt()
            problems.append("")
        except DistError as error:
            problems.append(f"{left}: {error}")
        finally:
            _close(held)
    assert any(problems), "nothing ever failed"
    assert not problems[-1], "sixty are not enough"
    return [problem for problem in problems if problem and "no free file descriptor" not in problem]


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="only Linux says how much a client has taken")
def test_strangers_who_say_nothing_have_few_places_at_a_store_and_a_client_comes_in() -> None:
    key = secret.new()
    store = TCPStore("127.0.0.1", 0, 1, True, secret=key)
    before = len(os.listdir("/proc/self/fd"))
    with ExitStack() as stack:
        strangers = [stack.enter_context(socket.create_connection(("127.0.0.1", store.port))) for _ in range(300)]
        deadline = time.monotonic() + 0.8 * doors.PATIENCE_S  # by then they would have to go anyway
        while (held := len(os.listdir("/proc/self/fd")) - before - len(strangers)) > doors.PLACES + 8:
            assert time.monotonic() < deadline, f"the store holds {held} connections"
            os.sched_yield()
        client = TCPStore("127.0.0.1", store.port, 1, False, secret=key)
        client.set("key", b"value")
        assert store.get("key") == b"value"
