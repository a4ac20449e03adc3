"""Whose keys lie under a prefix: who joins whom, what the killed leave, and what goes with the last to leave."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from functools import partial

import pytest
from tests.processes import forked, wait_until
from tests.servers import RedisServer, Server
from tests.threads import soon

from rankwise.errors import DistNetworkError, DistStoreError, ForkedProcessError
from rankwise.store import Store
from rankwise_stores import EtcdStore, RedisStore, kept, lives

PATIENCE_S = 30.0
#: For how long one who was killed counts as present: etcd has no leases below some two seconds.
PRESENT_S = 2.0

pytestmark = pytest.mark.usefixtures("no_secret")


@pytest.fixture(autouse=True)
def _soon_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lives, "PRESENT_S", PRESENT_S)
    monkeypatch.setattr(lives, "_BEAT_EVERY_S", PRESENT_S / 8)


def at(server: Server, prefix: str, rank: int = -1, size: int = -1, timeout_s: float = PATIENCE_S) -> Store:
    kind = RedisStore if isinstance(server, RedisServer) else EtcdStore
    return kind(server.url(prefix), size, timeout_s, rank=rank)


def keys_of(server: Server, prefix: str) -> list[str]:
    return [key for key in server.stored_keys() if key.startswith(prefix)]


def present(store: Store, seat: str) -> bool:
    """Tell whether a user of a store counts as present."""
    line = store._hold.server.line()
    try:
        return line.census(PATIENCE_S).seats[seat].is_present
    finally:
        line.disconnect()


@contextmanager
def killed(body: Callable[[], Store]) -> Iterator[None]:
    """Open a store in a process that is killed as the block begins, and does not close it."""
    pid = os.fork()
    if pid == 0:
        kept = None
        try:
            kept = body()
            kept.set("key", "of the dead")
        finally:
            os._exit(kept is None)
    assert os.waitpid(pid, 0)[1] == 0
    yield


def test_ranks_join_each_other_at_once_and_the_last_removes_all(server: Server, prefix: str) -> None:
    with ThreadPoolExecutor(4) as threads:
        stores = list(threads.map(lambda rank: at(server, prefix, rank, 4), range(4)))
        assert len({store.identity for store in stores}) == 1
        stores[0].set("key", "v")
        for store in stores[::-1]:
            assert store.get("key") == b"v"
            store.queue_push("queue", "item")
            store.close()
    assert keys_of(server, prefix) == []


def test_one_who_comes_later_waits_for_a_beat_alone(server: Server, prefix: str) -> None:
    with at(server, prefix, 0, 2) as first:
        first.set("key", "v")
        began = time.monotonic()
        with at(server, prefix, 1, 2) as second:
            assert time.monotonic() - began < PATIENCE_S / 10
            assert second.get("key") == b"v"


def test_two_prefixes_know_nothing_of_each_other(server: Server, prefix: str) -> None:
    with at(server, f"{prefix}-a") as one, at(server, f"{prefix}-a2") as other:
        one.set("key", "1")
        other.set("key", "2")
        assert one.get("key") == b"1"
        one.delete_prefix("")
        assert other.list_keys() == ["key"]


@pytest.mark.parametrize(
    ("rank", "size", "why"), [(0, 2, "rank 0 has joined already"), (0, 3, "joined already"), (2, 3, "it has 2 ranks")]
)
def test_another_job_with_the_same_prefix_is_told_so(
    server: Server, prefix: str, rank: int, size: int, why: str
) -> None:
    with at(server, prefix, 0, 2), pytest.raises(DistStoreError, match=rf"{prefix}.*another job.*{why}"):
        at(server, prefix, rank, size, timeout_s=0.3)


def test_a_rank_that_comes_back_waits_until_the_life_it_has_left_is_over(server: Server, prefix: str) -> None:
    with ExitStack() as stack, ThreadPoolExecutor(2) as threads:
        before = [at(server, prefix, rank, 2) for rank in range(2)]
        before[0].set("key", "v")
        before[0].close()
        again = threads.submit(at, server, prefix, 0, 2)
        soon(before[1].close)
        store = stack.enter_context(again.result(PATIENCE_S))
        assert store.identity != before[0].identity
        assert store.list_keys() == []


def test_what_a_killed_job_has_left_confuses_nobody(server: Server, prefix: str) -> None:
    """The killed rank still counts as present, and rank 1 of its job had not come: that of the next has its seat."""
    with killed(lambda: at(server, prefix, 0, 2)):
        assert keys_of(server, prefix)
        with ThreadPoolExecutor(2) as threads:
            second = threads.submit(at, server, prefix, 1, 2)
            first = threads.submit(at, server, prefix, 0, 2)
            with second.result(PATIENCE_S) as one, first.result(PATIENCE_S) as two:
                assert one.identity == two.identity
                assert one.list_keys() == []


def test_one_that_is_killed_among_others_is_nobody_the_others_wait_for(server: Server, prefix: str) -> None:
    with at(server, prefix, 0, 2) as store:
        with killed(lambda: at(server, prefix, 1, 2)):
            store.set("key", "v")
            assert store.get("key") == b"v"
        assert wait_until(lambda: not present(store, "1"), PATIENCE_S)
    assert keys_of(server, prefix) == []


def test_a_store_that_somebody_has_removed_under_its_users_says_so(server: Server, prefix: str) -> None:
    with at(server, prefix) as store, store.clone() as twin:  # whose lines have taken no number yet
        store.set("key", "v")
        store._hold.member._stop.put(None)  # as a process that stands still for long
        store._hold.member._thread.join(PATIENCE_S)
        assert wait_until(lambda: not present(store, store._hold.member.seat), PATIENCE_S)
        with at(server, prefix) as other:
            assert other.list_keys() == []
            for call in (partial(store.get, "key"), partial(twin.swap, "key", None, b"w"), store.list_keys):
                with pytest.raises(DistStoreError, match="is gone: another job"):
                    call()


def test_ranks_join_one_who_is_none(server: Server, prefix: str) -> None:
    with at(server, prefix) as store, at(server, prefix, 0, 2) as first, at(server, prefix, 1, 2) as second:
        first.set("key", "v")
        assert store.get("key") == second.get("key") == b"v"


def test_a_clone_keeps_the_seat(server: Server, prefix: str) -> None:
    store = at(server, prefix)
    store.set("key", "v")
    twin = store.clone()
    store.close()
    assert twin.get("key") == b"v"
    twin.close()
    assert keys_of(server, prefix) == []


def test_a_forked_child_is_told_to_open_the_store_anew(server: Server, prefix: str) -> None:
    with at(server, prefix) as store:

        def child() -> None:
            with pytest.raises(ForkedProcessError, match="open it anew"):
                store.set("key", "v")
            store.close()

        with forked(child):
            pass
        store.set("key", "v")
        assert store.get("key") == b"v"


def test_who_waits_is_woken_by_the_change(server: Server, prefix: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kept, "_LOOK_AGAIN_S", 2 * PATIENCE_S)
    with at(server, prefix, timeout_s=10 * PATIENCE_S) as store, ThreadPoolExecutor(2) as threads:
        waiting = threads.submit(store.get, "key"), threads.submit(store.queue_pop, "queue")
        soon(store.set, "key", "there")
        soon(store.queue_push, "queue", "item")
        assert [call.result(PATIENCE_S) for call in waiting] == [b"there", b"item"]


def test_a_change_after_the_look_and_before_the_listening_is_not_missed(
    server: Server, prefix: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kept, "_LOOK_AGAIN_S", 2 * PATIENCE_S)
    with at(server, prefix, timeout_s=10 * PATIENCE_S) as store, ThreadPoolExecutor(1) as threads:
        kind = type(store._hold.server.ear())
        listen = kind.listen

        def late(ear: object, mark: str, key: str, within_s: float) -> None:
            store.set("key", "there")
            listen(ear, mark, key, within_s)

        monkeypatch.setattr(kind, "listen", late)
        assert threads.submit(store.get, "key").result(PATIENCE_S) == b"there"


# ---------------------------------------------------------------------- servers that come, go, and refuse


def test_those_who_wait_go_on_with_a_server_that_comes_back(own_server: Server, prefix: str) -> None:
    with at(own_server, prefix) as store, ThreadPoolExecutor(2) as threads:
        store.set("before", "v")
        waiting = [threads.submit(store.get, "key"), threads.submit(store.queue_pop, "queue")]
        own_server.stop()
        adding = threading.Thread(target=store.add, args=("n", 1))
        adding.start()
        own_server.start()
        adding.join(PATIENCE_S)
        store.set("key", "there")
        store.queue_push("queue", "item")
        assert [call.result(PATIENCE_S) for call in waiting] == [b"there", b"item"]
        assert store.multi_get(["before", "n"]) == [b"v", b"1"]


def test_a_server_that_has_lost_all_is_an_error_rather_than_a_wait(tmp_path_factory: pytest.TempPathFactory) -> None:
    with ExitStack() as stack:
        server = stack.enter_context(RedisServer(tmp_path_factory.mktemp("server"), keeps=False))
        store, threads = stack.enter_context(at(server, "job")), stack.enter_context(ThreadPoolExecutor(1))
        waiting = threads.submit(store.get, "key")
        server.stop()
        server.start()
        with pytest.raises(DistStoreError, match="appendonly"):
            waiting.result(PATIENCE_S)
        with pytest.raises(DistStoreError, match="appendonly"):
            store.set("key", "v")


def test_a_server_that_is_away_is_an_error_in_time_that_names_it(own_server: Server, prefix: str) -> None:
    own_server.stop()
    began = time.monotonic()
    with pytest.raises(DistNetworkError, match=rf":{own_server.port}.*cannot be reached"):
        at(own_server, prefix, timeout_s=0.3)
    assert time.monotonic() - began < PATIENCE_S / 10


def test_who_does_not_know_the_password_is_told_so_at_once(tmp_path_factory: pytest.TempPathFactory) -> None:
    with RedisServer(tmp_path_factory.mktemp("server"), password="open-sesame") as server:
        url = server.url("job").replace("//", "//:wrong-word@")
        for wrong in (url, server.url("job")):
            with pytest.raises(DistStoreError, match=r"refuses this user") as caught:
                RedisStore(wrong, timeout=PATIENCE_S)
            assert "wrong-word" not in str(caught.value)
        with RedisStore(url.replace("wrong-word", "open-sesame"), timeout=PATIENCE_S) as store:
            store.set("key", "v")
            assert "sesame" not in repr(store)


def test_a_redis_is_reached_by_a_socket_of_its_host(tmp_path_factory: pytest.TempPathFactory) -> None:
    folder = tmp_path_factory.mktemp("server")
    with RedisServer(folder), RedisStore(f"redis+unix://{folder}/socket?prefix=job&db=3") as store:
        store.set("key", "v")
        assert store.get("key") == b"v"
        assert store.host is None


def test_the_first_member_of_an_etcd_that_answers_will_do(prefix: str) -> None:
    from tests.servers import etcd_server

    url = etcd_server().url(prefix).replace("127.0.0.1", "127.0.0.1:1,127.0.0.1")
    with EtcdStore(url) as store:
        store.set("key", "v")
        assert store.get("key") == b"v"
