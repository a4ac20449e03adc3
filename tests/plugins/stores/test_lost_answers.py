"""Swaps of which the answer is lost, or which arrive long after they were given up: each is carried out once."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
from tests.plugins.stores.proxy import Proxy, proxy_to
from tests.servers import Server

from rankwise.errors import DistNetworkError
from rankwise.store import Store
from rankwise_stores import EtcdStore, RedisStore

PATIENCE_S = 30.0

pytestmark = pytest.mark.usefixtures("no_secret")


@pytest.fixture
def proxy(server: Server) -> Iterator[Proxy]:
    with proxy_to(server.port) as made:
        yield made


@pytest.fixture
def store(server: Server, proxy: Proxy, prefix: str) -> Iterator[Store]:
    with at(server, proxy, prefix, PATIENCE_S) as made:
        yield made


def at(server: Server, proxy: Proxy, prefix: str, timeout_s: float) -> Store:
    kind = RedisStore if server.url("").startswith("redis") else EtcdStore
    return kind(server.url(prefix).replace(f":{server.port}", f":{proxy.port}"), timeout=timeout_s)


def test_what_is_added_and_appended_counts_once_though_the_answer_is_lost(store: Store, proxy: Proxy) -> None:
    for turn in range(6):
        proxy.to_lose = 1 + turn % 3  # those of the settling too
        assert store.add("n", 1) == turn + 1
        proxy.to_lose = 1
        store.append("text", "x")
        proxy.to_lose = 1
        assert store.swap("key", None if turn == 0 else b"%d" % (turn - 1), b"%d" % turn) == (
            None if turn == 0 else b"%d" % (turn - 1)
        )
    assert proxy.lost >= 18
    assert store.get("text") == b"x" * 6
    assert store.get("key") == b"5"


def test_a_queue_gives_each_item_once_though_answers_are_lost(store: Store, proxy: Proxy) -> None:
    for number in range(6):
        proxy.to_lose = 1
        store.queue_push("queue", str(number))
    taken = []
    for _ in range(6):
        proxy.to_lose = 2  # that of the loan, and that of the confirmation
        taken.append(int(store.queue_pop("queue")))
    assert taken == list(range(6))
    assert store.queue_len("queue") == 0


CALLS: dict[str, tuple[Callable[[Store], object], bytes]] = {
    "add": (lambda store: store.add("key", 1), b"1"),
    "append": (lambda store: store.append("key", "x"), b"x"),
    "swap": (lambda store: store.swap("key", None, b"new"), b"new"),
}


@pytest.mark.parametrize("name", CALLS)
def test_a_request_that_arrives_after_it_was_repeated_does_nothing(name: str, store: Store, proxy: Proxy) -> None:
    call, after = CALLS[name]
    proxy.to_hold = 1
    call(store)
    assert store.get("key") == after
    store.delete_key("key")  # so that the first request would find again what it expects
    proxy.release()
    assert not store.check(["key"])


def test_one_that_finds_another_value_and_is_late_does_nothing_either(store: Store, proxy: Proxy) -> None:
    store.set("key", "other")
    proxy.to_hold = 1
    assert store.swap("key", b"expected", b"desired") == b"other"
    store.set("key", "expected")
    proxy.release()
    assert store.get("key") == b"expected"


def test_who_cannot_learn_what_became_of_a_request_is_told_so_in_time(
    server: Server, proxy: Proxy, prefix: str
) -> None:
    with at(server, proxy, prefix, PATIENCE_S) as store:
        store.set("key", "1")
        store.set_timeout(0.2)
        proxy.to_lose = 1000
        with pytest.raises(DistNetworkError, match=r"cannot be reached"):
            store.append("key", "1")
        proxy.to_lose = 0
        store.set_timeout(PATIENCE_S)
        before = int(store.get("key"))
        assert store.add("key", 1) == before + 1
