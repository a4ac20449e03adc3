"""What clients of a `TCPStore` want stored once they have gone: it is, unless somebody has been there before."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from tests.processes import forked, wait_until

from rankwise import TCPStore
from rankwise_stores.tcp.server import BoundedTable
from rankwise_stores.tcp.wills import Will, Wills

PATIENCE_S = 20.0

pytestmark = pytest.mark.usefixtures("no_secret")


@contextmanager
def master() -> Iterator[TCPStore]:
    with TCPStore("127.0.0.1", is_master=True, timeout=PATIENCE_S) as store:
        yield store


def client_of(store: TCPStore) -> TCPStore:
    return TCPStore("127.0.0.1", store.port, timeout=PATIENCE_S)


def becomes(store: TCPStore, value: bytes) -> bool:
    return wait_until(lambda: store.get("key") == value, PATIENCE_S)


def test_a_will_is_carried_out_once_the_process_has_ended_without_a_word() -> None:
    with master() as store:

        def work() -> None:
            client_of(store).set_with_will("key", "here", "gone")
            os._exit(0)

        with forked(work):
            assert store.get("key") in (b"here", b"gone")
            assert becomes(store, b"gone")


def test_who_is_suspended_has_not_gone() -> None:
    with master() as store:
        server = store._pool._server
        assert server is not None

        def work() -> None:
            client = client_of(store)
            client.set_with_will("key", "here", "gone")
            os.kill(os.getpid(), signal.SIGSTOP)
            client.set("awake", "yes")
            os._exit(0)

        with forked(work) as pid:
            assert store.get("key") == b"here"
            for _ in range(3):
                last = server._probe_at
                assert wait_until(lambda last=last: server._probe_at > last, PATIENCE_S)  # type: ignore[misc]
            assert store.get("key") == b"here"
            os.kill(pid, signal.SIGCONT)
            store.get("awake")
            assert becomes(store, b"gone")


def test_the_last_will_of_a_connection_counts() -> None:
    with master() as store, client_of(store) as client:
        client.set_with_will("key", "1", "gone from 1")
        client.set_with_will("key", "2", "gone from 2")
        client.close()
        assert becomes(store, b"gone from 2")


def test_what_was_changed_since_stays() -> None:
    """As when a client says last that it leaves in good order, or has another connection by then."""
    with master() as store, client_of(store) as client, client_of(store) as again:
        client.set_with_will("key", "1", "gone")
        again.set_with_will("key", "2", "gone")
        client.set_with_will("other", "here", "gone")  # instead of its first will
        client.close()
        assert wait_until(lambda: store.get("other") == b"gone", PATIENCE_S)
        assert store.get("key") == b"2"


def test_a_client_of_the_servers_own_process_has_a_will_too() -> None:
    with master() as store:
        store.set_with_will("key", "here", "gone")
        assert store.get("key") == b"here"


def test_a_store_that_is_full_goes_on_without(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rankwise_stores.tcp.server._MAX_TOTAL_NBYTES", 300)
    table, wills = BoundedTable(), Wills()
    table.swap("key", None, b"here")
    wills.note(b"client", Will("key", b"here", bytes(1000)))
    wills.carry_out(table, b"client")
    assert (table.peek("key"), wills.clients()) == (b"here", set())
