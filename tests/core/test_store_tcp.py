"""`TCPStore` beyond what all stores do: who gets in, what goes wrong on a network, and what is left behind."""

from __future__ import annotations

import os
import resource
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from functools import partial
from typing import Any

import pytest
import zmq
from tests.by_reference import call, command, returned
from tests.fresh import loaded
from tests.processes import forked, free_port, held, wait_until
from tests.threads import ends_in_time, soon, within

from rankwise.basics.deadline import Deadline
from rankwise.errors import (
    DistError,
    DistNetworkError,
    DistStoreError,
    DistTimeoutError,
    ForkedProcessError,
)
from rankwise_stores import TCPStore
from rankwise_stores.tcp import server as table
from rankwise_stores.tcp import waiting, wire
from rankwise_stores.tcp.connection import Connection
from rankwise_stores.tcp.pool import Pool

PATIENCE_S = 20.0
SECRET, OTHER_SECRET = b"s" * 32, b"o" * 32


pytestmark = pytest.mark.usefixtures("no_secret")


@pytest.fixture(params=[None, SECRET], ids=["no secret", "secret"])
def secret(request: pytest.FixtureRequest) -> bytes | None:
    return request.param  # type: ignore[no-any-return]


@contextmanager
def pair(secret: bytes | None = None, host: str = "127.0.0.1") -> Iterator[tuple[TCPStore, TCPStore]]:
    with (
        TCPStore(host, is_master=True, timeout=PATIENCE_S, secret=secret) as master,
        TCPStore(host, master.port, timeout=PATIENCE_S, secret=secret) as client,
    ):
        yield master, client


@contextmanager
def listening(handle: Callable[[socket.socket], None]) -> Iterator[int]:
    """Listen at a port with something that is no store; `handle` gets each connection, in a thread."""
    with socket.create_server(("127.0.0.1", 0)) as listener, ExitStack() as stack:

        def accept() -> None:
            while True:
                try:
                    connection = stack.enter_context(listener.accept()[0])
                except OSError:
                    return
                handle(connection)

        thread = threading.Thread(target=accept)
        thread.start()
        yield int(listener.getsockname()[1])
        listener.shutdown(socket.SHUT_RDWR)
        thread.join()


def silent(connection: socket.socket) -> None:
    """Say nothing."""


def web_server(connection: socket.socket) -> None:
    connection.settimeout(1)
    connection.recv(64)
    connection.sendall(b"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")
    connection.close()


def babbler(connection: socket.socket) -> None:
    connection.sendall(os.urandom(4096))


def process_of(words: list[str]) -> subprocess.Popen[str]:
    """Start Python, in which warnings are errors."""
    pipes: dict[str, Any] = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    return subprocess.Popen([sys.executable, "-W", "error", *words[1:]], text=True, **pipes)


def serve() -> None:
    with TCPStore("127.0.0.1", is_master=True) as store:
        print(store.port, flush=True)
        sys.stdin.read()


@contextmanager
def master_process() -> Iterator[tuple[subprocess.Popen[str], int]]:
    """Serve a store from another process."""
    with process_of(command(serve)) as process:
        assert process.stdout is not None
        try:
            yield process, int(process.stdout.readline())
        finally:
            process.kill()
            process.wait(PATIENCE_S)


# ---------------------------------------------------------------------- meeting


def test_the_master_takes_a_free_port_and_tells_it(secret: bytes | None) -> None:
    with pair(secret, "localhost") as (master, client):
        assert (master.host, master.is_master) == ("localhost", True)
        assert master.port > 0
        assert (client.port, client.is_master) == (master.port, False)
        client.set("key", "v")
        assert master.get("key") == b"v"


def test_clients_may_come_before_the_master(secret: bytes | None) -> None:
    port = free_port()
    with ThreadPoolExecutor(4) as threads:
        coming = [threads.submit(TCPStore, "127.0.0.1", port, timeout=PATIENCE_S, secret=secret) for _ in range(4)]
        with TCPStore("127.0.0.1", port, is_master=True, secret=secret) as master:
            for client in coming:
                with client.result(PATIENCE_S) as store:
                    store.add("come", 1)
            assert master.get("come") == b"4"


@pytest.mark.skipif(not os.path.exists("/proc/net/if_inet6"), reason="this machine has no IPv6")
@pytest.mark.parametrize("host", ["::1", "[::1]"])
def test_ipv6_works(host: str, secret: bytes | None) -> None:
    with pair(secret, host) as (master, client):
        client.set("key", "v")
        assert master.get("key") == b"v"


def test_256_clients_at_once_join_and_pass_a_barrier() -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, max(soft, 8192)), hard))
    count = 256
    with TCPStore("127.0.0.1", is_master=True, secret=SECRET) as master, ThreadPoolExecutor(count) as threads:

        def join(number: int) -> int:
            with TCPStore("127.0.0.1", master.port, timeout=60, secret=SECRET) as client:
                client.set(f"rank/{number}", str(number))
                client.barrier("all here", count)
                seen = client.multi_get([f"rank/{other}" for other in range(count)])
                client.barrier("all done", count)
                return len(set(seen))

        assert set(threads.map(join, range(count), timeout=3 * PATIENCE_S)) == {count}


def test_the_master_waits_for_the_workers_and_says_how_many_have_come() -> None:
    port = free_port()
    with pytest.raises(DistTimeoutError, match="1 of 3 have joined"):
        TCPStore("127.0.0.1", port, 3, True, 1.0)
    with ThreadPoolExecutor(3) as threads:
        stores = threads.map(lambda rank: TCPStore("127.0.0.1", port, 3, rank == 0, PATIENCE_S), range(3))
        for store in stores:
            store.close()
    TCPStore("127.0.0.1", port, 3, True, 0.05, wait_for_workers=False).close()


def test_one_object_serves_many_threads_at_once(secret: bytes | None) -> None:
    with pair(secret) as (_, client), ThreadPoolExecutor(16) as threads:
        waiting = [threads.submit(client.get, f"key {index}") for index in range(8)]
        assert list(threads.map(lambda _: client.add("n", 1), range(200))).count(200) == 1
        for index in range(8):
            client.set(f"key {index}", str(index))
        assert [call.result(PATIENCE_S) for call in waiting] == [b"%d" % index for index in range(8)]


# ---------------------------------------------------------------------- time-outs and wrong addresses


@pytest.mark.parametrize("timeout_s", [0.01, 0.1, 0.3])
@pytest.mark.parametrize(
    ("there", "what"),
    [
        (None, "nobody listens there|no answer"),
        (silent, "does not answer|no answer"),
        (web_server, "breaks off the handshake|does not answer|no answer"),
    ],
    ids=["nobody", "silent", "web server"],
)
def test_connecting_ends_at_its_time_out_and_says_what_is_there(
    there: Callable[[socket.socket], None] | None, what: str, timeout_s: float, secret: bytes | None
) -> None:
    with ExitStack() as stack:
        port = free_port() if there is None else stack.enter_context(listening(there))
        words = f"(?s)^(?=.*127.0.0.1:{port}).*({what})"
        connect = partial(TCPStore, "127.0.0.1", port, timeout=timeout_s, secret=secret)
        assert ends_in_time(connect, timeout_s + 0.1, (DistTimeoutError, DistNetworkError), words)


def test_what_is_clearly_no_store_is_known_before_the_time_out() -> None:
    for there, secret in ((web_server, None), (babbler, SECRET)):
        with listening(there) as port, pytest.raises(DistNetworkError, match="breaks off the handshake"):
            TCPStore("127.0.0.1", port, timeout=PATIENCE_S, secret=secret)


def test_a_zeromq_server_of_another_kind_is_told_from_a_store() -> None:
    with zmq.Context() as context, context.socket(zmq.ROUTER) as alien:
        port = alien.bind_to_random_port("tcp://127.0.0.1")
        with pytest.raises(DistTimeoutError, match="speaks ZeroMQ, but does not answer"):
            TCPStore("127.0.0.1", port, timeout=PATIENCE_S / 400)
        alien.recv_multipart()
        with ThreadPoolExecutor(1) as threads:
            coming = threads.submit(TCPStore, "127.0.0.1", port, timeout=PATIENCE_S)
            client, _ = alien.recv_multipart()
            alien.send_multipart([client, b"what?"])
            with pytest.raises(DistNetworkError, match="does not answer as a rankwise store"):
                coming.result(PATIENCE_S)


def test_a_port_in_use_is_an_error_at_once() -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        with pytest.raises(DistNetworkError, match=f"127.0.0.1:{port}: the port is in use"):
            TCPStore("127.0.0.1", port, is_master=True, timeout=PATIENCE_S)
    with pair() as (master, _), pytest.raises(DistNetworkError, match="in use"):
        TCPStore("127.0.0.1", master.port, is_master=True)


def test_the_port_is_free_again_as_soon_as_the_store_is_closed() -> None:
    port = free_port()
    for _ in range(5):
        with TCPStore("127.0.0.1", port, is_master=True), TCPStore("127.0.0.1", port) as client:
            client.set("key", "v")


def test_a_master_elsewhere_than_its_address_is_told_so() -> None:
    with pytest.raises(DistNetworkError, match="rank 0 must run on the host that the address names"):
        TCPStore("192.0.2.1", 29500, is_master=True, secret=SECRET)


@pytest.mark.parametrize("host", ["", "*", "0.0.0.0", "::", "[::]"])
def test_nobody_serves_at_all_addresses(host: str) -> None:
    with pytest.raises(ValueError, match="every address"):
        TCPStore(host, is_master=True, secret=SECRET)


def test_arguments_that_make_no_sense_are_refused() -> None:
    for port in (-1, 1 << 16):
        with pytest.raises(ValueError, match="is no port"):
            TCPStore("127.0.0.1", port, is_master=True)
    with pytest.raises(ValueError, match="only the master"):
        TCPStore("127.0.0.1")
    with pytest.raises(ValueError, match="a job secret has 32 bytes, not 5"):
        TCPStore("127.0.0.1", is_master=True, secret=b"short")
    with pytest.raises(TypeError, match="host_name must be a str"):
        TCPStore(None, 1)  # type: ignore[arg-type]


def test_a_name_that_nobody_knows_is_asked_for_until_the_time_out(monkeypatch: pytest.MonkeyPatch) -> None:
    def unknown(*_: Any, **__: Any) -> list[Any]:
        raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")

    monkeypatch.setattr(socket, "getaddrinfo", unknown)
    with pytest.raises(DistTimeoutError, match=r"no-such-host\.invalid' cannot be looked up.* so for 0\.\d+ s"):
        TCPStore("no-such-host.invalid", 1, timeout=0.1)


def test_a_name_server_that_does_not_answer_does_not_outlast_the_time_out(monkeypatch: pytest.MonkeyPatch) -> None:
    answered = threading.Event()

    def slow(*_: Any, **__: Any) -> list[Any]:
        answered.wait(PATIENCE_S)
        return []

    monkeypatch.setattr(socket, "getaddrinfo", slow)
    with within(PATIENCE_S), pytest.raises(DistTimeoutError, match=r"look-up of host name 'slow\.example'"):
        TCPStore("slow.example", 1, timeout=0.05)
    answered.set()


def test_only_the_one_address_is_bound() -> None:
    with pair() as (master, _):
        bound = {here for here, _, state in sockets() if state == "0A"}
        assert f"0100007F:{master.port:04X}" in bound
        assert f"00000000:{master.port:04X}" not in bound
        with socket.socket() as elsewhere:
            elsewhere.settimeout(1)
            assert elsewhere.connect_ex(("127.0.0.2", master.port)) != 0


# ---------------------------------------------------------------------- the door


@pytest.mark.parametrize("host", ["192.0.2.1", "2001:db8::1"])
@pytest.mark.parametrize("is_master", [True, False])
def test_without_a_secret_nobody_serves_or_joins_a_network(host: str, is_master: bool) -> None:
    with pytest.raises(DistNetworkError, match="rankwise secret new FILE") as caught:
        TCPStore(host, 29500, is_master=is_master, timeout=PATIENCE_S)
    assert "RANKWISE_SECRET_FILE=FILE" in str(caught.value)


@pytest.mark.parametrize(
    ("inside", "outside"), [(SECRET, OTHER_SECRET), (SECRET, None), (None, SECRET)], ids=["other", "none", "one more"]
)
def test_another_secret_does_not_get_in_and_is_told_at_once(inside: bytes | None, outside: bytes | None) -> None:
    with pair(inside) as (master, client):
        with pytest.raises(DistNetworkError, match="secret"):
            TCPStore("127.0.0.1", master.port, timeout=PATIENCE_S, secret=outside)
        assert client.num_keys() == 0


def test_the_secret_of_the_environment_guards_loopback_too(tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    from rankwise_network import secret as job_secret

    job_secret.new_file(tmp_path / "secret")
    with monkeypatch.context() as patch:
        patch.setenv("RANKWISE_SECRET_FILE", str(tmp_path / "secret"))
        master = TCPStore("127.0.0.1", is_master=True)
        TCPStore("127.0.0.1", master.port).close()
    with master, pytest.raises(DistNetworkError, match=r"has a job secret, (but|and) this process has none"):
        TCPStore("127.0.0.1", master.port, timeout=PATIENCE_S)


def test_who_knows_the_servers_key_alone_is_not_let_in() -> None:
    """A client key of one's own is not enough: the server admits only the key derived from the secret."""
    from rankwise_stores.tcp.guard import Keys

    with pair(SECRET) as (master, _), zmq.Context() as context, context.socket(zmq.DEALER) as thief:
        thief.linger = 0
        thief.curve_serverkey = Keys.of(SECRET).server_public
        thief.curve_publickey, thief.curve_secretkey = zmq.curve_keypair()
        monitor = thief.get_monitor_socket(zmq.EVENT_HANDSHAKE_FAILED_AUTH)
        thief.connect(f"tcp://127.0.0.1:{master.port}")
        assert monitor.poll(int(1000 * PATIENCE_S))
        thief.disable_monitor()
        monitor.close(0)


def test_a_secret_is_shown_nowhere() -> None:
    with pair(b"topsecret-" * 3 + b"!!") as (master, client), pytest.raises(DistTimeoutError) as caught:
        client.get("key", timeout=0)
    for text in (repr(master), str(caught.value), repr(vars(master)), repr(vars(client._pool))):
        assert "topsecret" not in text


def test_garbage_and_half_open_connections_do_not_disturb(secret: bytes | None) -> None:
    with pair(secret) as (master, client), ExitStack() as stack:
        words = [b"", b"\xff", b"GET / HTTP/1.0\r\n\r\n", os.urandom(500), b"\xff" + bytes(8) + b"\x7f\x03"]
        for word in 10 * words:
            visitor = stack.enter_context(socket.create_connection(("127.0.0.1", master.port)))
            visitor.sendall(word)
        assert client.add("n", 1) == 1
        with TCPStore("127.0.0.1", master.port, timeout=PATIENCE_S, secret=secret) as late:
            assert late.add("n", 1) == 2


# ---------------------------------------------------------------------- requests that are none, or too many


@contextmanager
def raw(store: TCPStore) -> Iterator[Callable[..., wire.Reply]]:
    """Talk to a server that has no secret, without the manners of a client."""
    with zmq.Context() as context, context.socket(zmq.DEALER) as dealer:
        dealer.linger, dealer.rcvtimeo = 0, int(1000 * PATIENCE_S)
        dealer.connect(f"tcp://127.0.0.1:{store.port}")

        def ask(*frames: bytes, reply: bool = True) -> wire.Reply:
            if len(frames) == 1:
                frames = (wire.Piece.LAST + frames[0],)
            dealer.send_multipart(frames)
            return wire.decode_reply(dealer.recv()) if reply else wire.Reply(0, 0, None)

        yield ask


def test_malformed_requests_get_an_error_and_the_server_goes_on() -> None:
    with pair() as (_, client), raw(client) as ask:
        for junk in (b"", b"\xc1", b"\x90", wire.encode_request(1, "no such", None, []), os.urandom(1000)):
            assert ask(junk).status == wire.PROTOCOL_ERROR
        assert ask(b"two", b"frames").status == wire.PROTOCOL_ERROR
        assert ask(wire.encode_request(7, "add", None, ["n", 1])) == wire.Reply(7, wire.OK, 1)
        assert client.add("n", 1) == 2


def test_a_frame_beyond_the_bound_ends_that_connection_and_no_other() -> None:
    with pair() as (_, client), raw(client) as ask:
        assert ask(wire.encode_request(1, "add", None, ["n", 1])).value == 1
        ask(bytes(wire.MAX_FRAME_NBYTES + 1), reply=False)
        assert wait_until(lambda: connections(client.port) == 2, PATIENCE_S)
        assert client.add("n", 1) == 2


def test_what_the_store_keeps_for_itself_can_be_broken_by_a_guest_but_not_the_server() -> None:
    with pair() as (_, client), raw(client) as ask:
        ask(wire.encode_request(1, "set_", None, ["\0barrier/b", b"nonsense"]))
        ask(wire.encode_request(2, "set_", None, ["\0queue/q", b"\xff\xff\xff\xff"]))
        assert ask(wire.encode_request(3, "barrier", 1, ["b", 2])).status == wire.STORE_ERROR
        with pytest.raises(DistStoreError):
            client.barrier("b", 2)
        client.queue_len("q")
        assert client.add("n", 1) == 1


def test_a_client_has_only_so_many_requests_waiting() -> None:
    with pair() as (_, client), raw(client) as ask:
        for number in range(8):
            ask(wire.encode_request(number, "get", 60, ["key"]), reply=False)
        reply = ask(wire.encode_request(8, "get", 60, ["key"]))
        assert (reply.number, reply.status) == (8, wire.STORE_ERROR)


def test_a_store_does_not_grow_without_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(table, "MAX_KEYS", 10)
    monkeypatch.setattr(table, "_MAX_TOTAL_NBYTES", 4000)
    with pair() as (_, client):
        for key, value in (("large", bytes(4000)), ("large" * 1000, "")):
            with pytest.raises(DistStoreError, match="the store is full: its keys and values take"):
                client.set(key, value)
        while client.num_keys() < 10:
            client.append(str(client.num_keys()), "")
        with pytest.raises(DistStoreError, match="the store is full: it has 10 keys"):
            client.set("one more", "")
        client.delete_key("0")
        client.set("room for one", "")


def test_large_replies_that_wait_for_room_are_looked_at_when_there_is_some(monkeypatch: pytest.MonkeyPatch) -> None:
    clients, nbytes = 24, 10_000
    monkeypatch.setattr(waiting, "_MAX_TOTAL_NBYTES", 3 * nbytes)
    attempts, waiters, gate = [], set(), threading.Event()
    receive, attempt, put_off = Connection._receive, table.StoreServer._attempt, table.StoreServer._put_off

    def read_late(self: Connection, *terms: Any) -> bytes:
        assert gate.wait(PATIENCE_S)
        return receive(self, *terms)

    def counted(self: table.StoreServer, waiter: waiting.Waiter) -> None:
        attempts.append(waiter)
        attempt(self, waiter)

    def noted(self: table.StoreServer, waiter: waiting.Waiter, key: str) -> None:
        waiters.add(waiter)
        put_off(self, waiter, key)

    with pair() as (_, client), ThreadPoolExecutor(clients) as pool:
        client.set("large", bytes(nbytes))
        with ExitStack() as users:
            stores = [users.enter_context(TCPStore("127.0.0.1", client.port)) for _ in range(clients)]
            monkeypatch.setattr(table.StoreServer, "_attempt", counted)
            monkeypatch.setattr(table.StoreServer, "_put_off", noted)
            monkeypatch.setattr(Connection, "_receive", read_late)
            replies = [pool.submit(store.get, "large") for store in stores]
            assert wait_until(lambda: len(waiters) == clients - 3, PATIENCE_S)
            gate.set()
            assert all(reply.result(PATIENCE_S) == bytes(nbytes) for reply in replies)
    assert len(attempts) <= 2 * clients + 10  # not each of them again for each that has been read


def test_an_item_that_cannot_be_delivered_is_not_lost() -> None:
    with pair() as (_, client):
        with raw(client) as ask:
            ask(wire.encode_request(1, "queue_pop", 60, ["q", b"t" * 16]), reply=False)
            ask(wire.encode_request(2, "add", None, ["n", 1]))
        # The connection is down as soon as the server cannot reply to it; until then, an item is on its way to nobody.
        assert wait_until(lambda: connections(client.port) == 2, PATIENCE_S)
        client.queue_push("q", "item")
        assert client.queue_pop("q", timeout=PATIENCE_S) == b"item"


def sockets() -> list[list[str]]:
    """Return the address, the peer and the state of each TCP socket of this machine."""
    with open("/proc/net/tcp") as table:
        return [row.split()[1:4] for row in table]


def connections(port: int) -> int:
    """Count the ends of established connections to a port of 127.0.0.1."""
    return sum(f"0100007F:{port:04X}" in (here, there) and state == "01" for here, there, state in sockets())


# ---------------------------------------------------------------------- the server goes


def test_waiting_clients_hear_at_once_that_the_store_is_closed(secret: bytes | None) -> None:
    with pair(secret) as (master, client), ThreadPoolExecutor(2) as threads:
        waiting: list[Future[Any]] = [threads.submit(client.get, "key"), threads.submit(client.barrier, "b", 2)]
        soon(master.close)
        for call in waiting:
            with pytest.raises(DistNetworkError, match=r"the server is gone|nobody listens"):
                call.result(PATIENCE_S)
        with within(PATIENCE_S / 2), pytest.raises(DistNetworkError, match=r"the server is gone|nobody listens"):
            client.set("key", "v")


def test_waiting_clients_hear_at_once_that_the_master_was_killed() -> None:
    with master_process() as (process, port), TCPStore("127.0.0.1", port, timeout=PATIENCE_S) as client:
        soon(process.kill)
        with pytest.raises(DistNetworkError, match="the server is gone"):
            client.get("key")


def test_calls_to_a_master_that_is_stopped_end_at_their_time_out() -> None:
    with master_process() as (process, port), TCPStore("127.0.0.1", port, timeout=PATIENCE_S) as client:
        client.set("key", "v")
        process.send_signal(signal.SIGSTOP)
        wait = partial(client.get, "other", timeout=0.1)
        assert ends_in_time(wait, 0.2, DistTimeoutError, r"'other'.*has not answered")
        process.send_signal(signal.SIGCONT)
        assert client.get("key") == b"v"


def test_another_store_at_the_same_place_is_not_taken_for_the_first() -> None:
    with TCPStore("127.0.0.1", is_master=True) as first:
        client = TCPStore("127.0.0.1", first.port, timeout=PATIENCE_S)
    with client, TCPStore("127.0.0.1", first.port, is_master=True):
        for words in ("the server is gone", "another store has taken its place"):
            with pytest.raises(DistNetworkError, match=words):
                client.set("key", "v")


def test_who_was_answered_hears_it_even_if_the_master_closes_at_once() -> None:
    for _ in range(30):
        with pair() as (master, client), ThreadPoolExecutor(1) as threads:
            crossing = threads.submit(client.barrier, "b", 2)
            master.barrier("b", 2)
            master.close()
            crossing.result(PATIENCE_S)


# ---------------------------------------------------------------------- the process


def test_hundreds_of_stores_leave_nothing_behind() -> None:
    def cycle(index: int) -> None:
        with pair(SECRET if index % 2 else None) as (master, client):
            client.set("key", "v")
            with pytest.raises(DistTimeoutError):
                master.get("other", timeout=0)

    for index in range(4):
        cycle(index)
    before = held()
    for index in range(200):
        cycle(index)
    assert held() == before


def test_failed_attempts_leave_nothing_behind() -> None:
    with TCPStore("127.0.0.1", is_master=True, secret=SECRET) as master, listening(silent) as quiet:
        before = held()
        for port, secret in ((free_port(), None), (quiet, None), (master.port, OTHER_SECRET), (master.port, None)):
            for _ in range(5):
                with pytest.raises(DistError):
                    TCPStore("127.0.0.1", port, timeout=0.02, secret=secret)
        for _ in range(5):
            with pytest.raises(DistError):
                TCPStore("127.0.0.1", master.port, is_master=True)
            with pytest.raises(DistTimeoutError):
                TCPStore("127.0.0.1", 0, 2, is_master=True, timeout=0.01)
        assert wait_until(lambda: held()[1] == before[1], PATIENCE_S)


def test_a_store_that_is_forgotten_is_closed() -> None:
    before = held()
    master = TCPStore("127.0.0.1", is_master=True)
    client = TCPStore("127.0.0.1", master.port)
    client.set("key", "v")
    del master, client
    assert wait_until(lambda: held() == before, PATIENCE_S)


def test_an_interrupt_ends_the_waiting_and_the_store_can_still_be_used() -> None:
    with pair() as (_, client):
        soon(os.kill, os.getpid(), signal.SIGINT)
        with within(PATIENCE_S / 2), pytest.raises(KeyboardInterrupt):
            client.get("key")
        client.set("key", "v")
        assert client.get("key") == b"v"


def test_a_forked_child_is_refused_and_cannot_harm_the_parent() -> None:
    with pair() as (master, client):

        def try_both() -> None:
            for store in (master, client):
                with pytest.raises(ForkedProcessError):
                    store.set("key", "child")
                store.close()

        with forked(try_both):
            pass
        client.set("key", "parent")
        assert master.get("key") == b"parent"


def test_a_forked_child_does_not_keep_the_port() -> None:
    here, there = socket.socketpair()

    def stay() -> None:
        here.close()
        there.sendall(b"forked")
        there.recv(1)

    with ExitStack() as stack:
        with pair() as (master, _):
            stack.enter_context(forked(stay))
            stack.enter_context(here)
            there.close()
            assert here.recv(6) == b"forked"
        with TCPStore("127.0.0.1", master.port, is_master=True, timeout=PATIENCE_S) as again:
            assert again.num_keys() == 0


def forget_to_close(waits: bool) -> None:
    threading.excepthook = lambda _: None
    master = TCPStore("127.0.0.1", is_master=True)
    client = TCPStore("127.0.0.1", master.port)
    vars(sys.modules[__name__])["kept"] = master, client  # as a program's own globals
    client.set("key", "v")
    if waits:
        threading.Thread(target=client.get, args=("other",), daemon=True).start()


@pytest.mark.parametrize("waiting", [False, True], ids=["idle", "with a thread that waits"])
def test_a_process_that_forgets_to_close_ends_without_a_word(waiting: bool) -> None:
    with process_of(command(forget_to_close, waiting)) as process:
        out, problems = process.communicate(timeout=PATIENCE_S)
    assert (process.returncode, returned(out), problems) == (0, None, "")


def test_stores_are_there_without_zeromq() -> None:
    assert "zmq" not in call(loaded, "rankwise.store", "rankwise.store.rendezvous", timeout_s=PATIENCE_S)


def test_only_one_connection_is_kept_of_those_in_use_or_in_the_making_when_a_beginning_ends(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Who serves many ranks has a descriptor for each of theirs."""
    opening, go_on = threading.Event(), threading.Event()
    open_one = Pool._open

    def held_up(self: Pool, *args: Any) -> None:
        opening.set()
        assert go_on.wait(PATIENCE_S)
        open_one(self, *args)

    with pair() as (master, client), ThreadPoolExecutor(2) as threads:
        waiting_for = threads.submit(client.get, "key")
        assert wait_until(lambda: not client._pool._idle, PATIENCE_S)
        monkeypatch.setattr(Pool, "_open", held_up)
        made = threads.submit(client.set, "other", b"value")
        assert opening.wait(PATIENCE_S)
        client._have_met()
        monkeypatch.undo()
        go_on.set()
        made.result(PATIENCE_S)
        master.set("key", b"value")
        waiting_for.result(PATIENCE_S)
        assert wait_until(lambda: not client._pool._lenders, PATIENCE_S)
        assert len(client._pool._idle) == 1
        with client._pool.connection(Deadline(PATIENCE_S)), client._pool.connection(Deadline(PATIENCE_S)):
            pass
        assert len(client._pool._idle) == 2, "what comes later is kept: a program may need several again and again"
